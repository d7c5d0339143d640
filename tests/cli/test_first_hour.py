"""From a raw shop log to lists: what is said at training need not be said again, and real lists do no harm."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from run_cli import Ended, evenhand

HATS = [f"{n:04}" for n in range(40) if n % 2]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 customers, 40 articles with leading zeros, blanks, refunds and repeats; a model with titles."""
    desk = tmp_path_factory.mktemp("shop")
    generator = np.random.default_rng(0)
    rows = [(f"c{u:02}", f"{i:04}", 1) for u in range(50) for i in np.flatnonzero(generator.random(40) < 0.25)]
    rows += [("", "0001", 1), ("c01", " ", 2), rows[0], (*rows[5][:2], -1)]
    lines = "".join(f"{customer},{sku},{qty}\n" for customer, sku, qty in rows)
    (desk / "log.csv").write_text("customer,sku,qty\n" + lines)
    items = "".join(f"{n:04};Café {n};{'hat' if n % 2 else 'shoe'};{n % 4}\n" for n in range(45))
    (desk / "items.csv").write_bytes(("sku;name;category;stock\n" + items).encode("latin-1"))
    reading = ("--user", "customer", "--item", "sku", "--weight", "qty")
    titles = ("--items-file", desk / "items.csv", "--title", "name")
    ended = evenhand("train", desk / "log.csv", *reading, *titles, "--method", "ease", "-k", 5, "--out", desk / "model")
    assert ended.code == 0, ended.err
    return desk


def rows_of(ended: Ended) -> list[dict[str, str]]:
    assert ended.code == 0, ended.err
    return list(csv.DictReader(ended.out.splitlines()))


def test_columns_are_remembered_and_lists_keep_the_names_of_the_log(shop: Path) -> None:
    (shop / "who.csv").write_text("customer\nc01\nc02\n")
    rows = rows_of(evenhand("recommend", shop / "model", "-k", 2, "--users", shop / "who.csv"))
    assert list(rows[0]) == ["customer", "sku", "title", "score", "rank"]
    assert [row["customer"] for row in rows] == ["c01", "c01", "c02", "c02"]
    assert all(row["title"] == f"Café {int(row['sku'])}" for row in rows)
    ended = evenhand("recommend", shop / "model", "-k", 2, "--users", shop / "who.csv", "--out", shop / "lists.csv")
    assert ended.code == 0
    assert (shop / "lists.csv").read_text().startswith('"customer","sku","title"')
    (shop / "plain.csv").write_text("user\nc01\n")
    assert len(rows_of(evenhand("recommend", shop / "model", "-k", 2, "--users", shop / "plain.csv"))) == 2


@pytest.mark.parametrize("option", ["--users", "--exclude", "--exclude-pairs"])
@pytest.mark.parametrize("content", ["", "customer,sku\n", "customer,sku\nnobody,nothing\n,\n"])
def test_empty_lists_and_unknown_ids_never_stop_the_job(shop: Path, option: str, content: str) -> None:
    (shop / "list.csv").write_text(content)
    ended = evenhand("recommend", shop / "model", "-k", 2, option, shop / "list.csv", "--json")
    assert ended.code == 0, ended.err
    assert len(ended.document["recommendations"]) == (0 if option == "--users" else 100)
    assert any("unknown to the model" in note for note in ended.document["notes"]) == ("nobody" in content)


def test_an_empty_only_is_one_sentence_and_replaces_nothing(shop: Path) -> None:
    (shop / "nothing.csv").write_text("sku\n")
    (shop / "kept.csv").write_text("yesterday")
    out = ("--out", shop / "kept.csv", "--force")
    ended = evenhand("recommend", shop / "model", "-k", 2, "--only", shop / "nothing.csv", *out)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "`only` is empty, so no item is allowed" in ended.err
    assert (shop / "kept.csv").read_text() == "yesterday"


def test_only_what_is_in_stock(shop: Path) -> None:
    pytest.importorskip("duckdb")
    where = ("--filter", shop / "items.csv", "--where", "category = 'hat' and stock > 1")
    rows = rows_of(evenhand("recommend", shop / "model", "-k", 3, *where))
    assert {row["sku"] for row in rows} <= {sku for sku in HATS if int(sku) % 4 > 1}
    (shop / "some.csv").write_text("sku\n0003\n0007\n0001\n")
    rows = rows_of(evenhand("recommend", shop / "model", "-k", 3, *where, "--only", shop / "some.csv"))
    assert {row["sku"] for row in rows} == {"0003", "0007"}
    for options, message in (
        (("--filter", shop / "items.csv"), "--where"),
        (("--where", "stock > 0"), "--filter"),
        (("--filter", shop / "items.csv", "--where", "stock > 99"), "no row of"),
    ):
        ended = evenhand("recommend", shop / "model", *options)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert message in ended.err


def test_everybody_gets_a_list_with_the_fallback(shop: Path) -> None:
    (shop / "who.csv").write_text("customer\nc01\nnobody\n")
    rows = rows_of(evenhand("recommend", shop / "model", "-k", 2, "--users", shop / "who.csv", "--fallback"))
    assert [(row["customer"], row["fallback"]) for row in rows] == [
        *[("c01", "false")] * 2,
        *[("nobody", "true")] * 2,
    ]


def test_new_users_are_read_as_the_log_was(shop: Path) -> None:
    new = "customer,sku,qty\nn1,0001,1\nn1,0002,1\nn1,0002,-1\nn2,9999,1\nn1,0003,2\n"
    (shop / "new.csv").write_text(new)
    rows = rows_of(evenhand("recommend", shop / "model", "-k", 40, "--new-users", shop / "new.csv", "--fallback"))
    first = {row["sku"] for row in rows if row["customer"] == "n1"}
    assert "0002" in first  # sent back, so it may be shown
    assert not first & {"0001", "0003"}
    assert {row["fallback"] for row in rows if row["customer"] == "n2"} == {"true"}
    (shop / "rated.csv").write_text("customer,sku,stars\nn1,0001,5\nn1,0002,1\n")
    rated = ("--new-users", shop / "rated.csv", "--rating", "stars", "--min-rating", 4)
    ended = evenhand("recommend", shop / "model", "-k", 40, *rated)
    assert "0002" in {row["sku"] for row in rows_of(ended)}
    assert "the training log had 'qty', this file has not" in ended.err


def test_similar_items_have_titles(shop: Path) -> None:
    lines = evenhand("similar", shop / "model", "0001", "-k", 3).out.splitlines()
    assert lines[0].split() == ["item", "title", "weight"]
    assert "Café" in lines[1]
    found = evenhand("similar", shop / "model", "0001", "-k", 3, "--json").document["similar"]
    assert [row["title"] for row in found] == [f"Café {int(row['item'])}" for row in found]
    ended = evenhand("similar", shop / "model", "0001", "--title", "name")
    assert (ended.code, "--items-file" in ended.err) == (2, True)


def test_update_keeps_titles_and_columns_and_records_both_files(shop: Path) -> None:
    (shop / "newer.csv").write_text("customer,sku,qty\nc01,0044,1\nn1,0001,1\nc02,0043,1\nc02,0043,-1\n")
    assert evenhand("update", shop / "model", shop / "newer.csv", "--out", shop / "second").code == 0
    old, new = (eh.load(shop / name) for name in ("model", "second"))
    assert new.known.n_items == old.known.n_items + 1
    assert dict(zip(new.known.item_ids.to_pylist(), new.titles.to_pylist(), strict=True))["0001"] == "Café 1"
    before, after = (one.info["data"] for one in (old, new))
    assert after["source"] == "log.csv + newer.csv"
    assert after["reading"] == before["reading"]
    digest = hashlib.sha256((shop / "newer.csv").read_bytes()).hexdigest()
    assert [file["sha256"] for file in after["files"]] == [before["files"][0]["sha256"], digest]
    assert old.info["fingerprint"] != new.info["fingerprint"]
    pairs = {(row["user"], row["item"]) for row in new.known.to_table().to_pylist()}
    assert {(row["user"], row["item"]) for row in old.known.to_table().to_pylist()} < pairs
    assert ("c01", "0044") in pairs


@pytest.mark.parametrize("refit", [True, False])
def test_update_keeps_the_test_part_or_says_that_it_never_had_it(shop: Path, tmp_path: Path, refit: bool) -> None:
    (tmp_path / "newer.csv").write_text("customer,sku\nc01,0044\n")
    given = ("train", shop / "log.csv", "--user", "customer", "--item", "sku", "--method", "popular", "-k", 5)
    assert evenhand(*given, "--refit" if refit else "--no-refit", "--out", tmp_path / "model").code == 0
    ended = evenhand("update", tmp_path / "model", tmp_path / "newer.csv", "--out", tmp_path / "second", "--json")
    assert any("without the test part" in note for note in ended.document["notes"]) != refit
    log = eh.Interactions.read(shop / "log.csv", user="customer", item="sku")
    new = eh.load(tmp_path / "second").known
    assert (len(new) == len(log) + 1) == refit


@pytest.mark.parametrize("command", ["train", "update"])
def test_force_does_not_touch_somebodys_own_files(shop: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "config.json").write_text('{"mine": true}')
    (tmp_path / "newer.csv").write_text("customer,sku,qty\nc01,0044,1\n")
    given: tuple[Any, ...] = ("train", shop / "log.csv", "--user", "customer", "--item", "sku", "--method", "popular")
    if command == "update":
        given = ("update", shop / "model", tmp_path / "newer.csv")
    ended = evenhand(*given, "--out", tmp_path, "--force")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "that no model of evenhand wrote" in ended.err
    assert (tmp_path / "README.md").read_text() == "mine"
    assert json.loads((tmp_path / "config.json").read_text()) == {"mine": True}


def test_hot_items_are_defined_where_they_are_asked_for() -> None:
    text = " ".join(evenhand("compare", "--help").out.replace("│", " ").split())
    assert "honest: the top 15 % by train interactions" in text


def test_a_file_to_write_to_is_called_out_everywhere(shop: Path) -> None:
    evenhand("recommend", shop / "model", "-k", 20, "--out", shop / "candidates.csv", "--force")
    columns = ("--user", "customer", "--item", "sku")
    given = ("rerank", shop / "candidates.csv", "--train", shop / "log.csv", *columns, "-k", 5)
    for option in ("--out", "--to"):
        ended = evenhand(*given, option, shop / "better.csv", "--force")
        assert ended.code == 0, ended.err
        assert (shop / "better.csv").is_file()
        (shop / "better.csv").unlink()


@pytest.mark.parametrize("command", ["recommend", "update", "similar"])
def test_help_shows_the_common_options_first(command: str) -> None:
    text = evenhand(command, "--help").out
    common, _, rest = text.partition("─ Options ─")[2].partition("─ Titles ─")
    assert rest
    assert "--seed" not in common.partition("╰")[0]
    assert "--rating" not in common.partition("╰")[0]
