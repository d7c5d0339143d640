"""How commands read and split: raw logs, rules of a split, folders that hold one, standard input."""

from __future__ import annotations

import getpass
import io
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenhand.cli.options import SPLITS
from evenhand.data.reading.read import read_interactions
from evenhand.data.split_rules import RULES
from run_cli import evenhand, small_log, write_log

FAST = ("--methods", "popular", "--json", "--k", "5")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(small_log(), tmp_path_factory.mktemp("cli-data") / "log.csv")


def compare(*arguments: object) -> dict[str, object]:
    ended = evenhand("compare", *arguments, *FAST)
    assert ended.code == 0, ended.err
    return ended.document


def test_every_rule_is_offered_by_name(log: Path) -> None:
    assert all(name in SPLITS for name in RULES)
    for how in RULES:
        assert compare(log, "--split", how)["data"].startswith(RULES[how].label)


def test_the_rule_of_test_and_that_of_validation_can_differ(log: Path) -> None:
    found = compare(log, "--split", "popularity-shift", "--validation", "random")["data"]
    assert found.startswith("popularity shift: items drawn uniformly")
    assert found.endswith("validation by the random rule")


def test_a_test_from_a_moment_on(log: Path) -> None:
    assert compare(log, "--test-from", "700")["data"] == "by time: test from 700 on, validation 10 % of the rest"


def test_validation_beside_a_test_file(log: Path, tmp_path: Path) -> None:
    assert evenhand("data", "split", log, "--how", "popularity-shift", "--out", tmp_path / "parts").code == 0
    train, test = tmp_path / "parts" / "train.csv", tmp_path / "parts" / "test.csv"
    found = compare(train, "--test", test, "--validation", "popularity-shift")["data"]
    assert found.endswith("validation 10 % of train, split seed 0, by the popularity-shift rule")


def test_data_split_writes_what_the_library_splits(log: Path, tmp_path: Path) -> None:
    made = read_interactions(log).split(how="time", test_from="500", gap=50, validation=0.2)
    more = ("--how", "time", "--test-from", "500", "--gap", "50", "--validation-share", "0.2", "--json")
    ended = evenhand("data", "split", log, "--out", tmp_path / "parts", *more)
    assert ended.document["pairs"] == {name: len(part) for name, part in made.parts().items()}
    assert ended.document["split"] == made.description


def test_a_folder_of_parts_is_a_split_of_its_own(log: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    assert evenhand("data", "split", log, "--out", parts).code == 0
    direct, given = compare(log), compare(parts)
    assert given["data"] == "given train and validation and test parts"
    assert given["rows"][0]["metrics"] == direct["rows"][0]["metrics"]
    assert compare(parts, "--protocol", "paper")["data"].endswith("validation in train")
    assert compare(parts, "--test-part", "random")["data"].startswith("random: test 20 %")
    assert compare(parts, "--split", "popularity-shift")["data"].startswith("popularity shift")
    refused = evenhand("compare", parts, "--validation", "time")
    assert refused.code == 2
    assert "the folder holds validation.csv" in refused.err
    (parts / "train.tsv").write_text("user\titem\n1\t2\n")
    refused = evenhand("compare", parts)
    assert refused.code == 2
    assert "holds train.csv and train.tsv; keep one of them" in refused.err


def test_published_splits_are_read_from_their_folder(tmp_path: Path) -> None:
    for name, shift in (("train", 0), ("test", 10)):
        lines = (f"{user} " + " ".join(str(user % 3 + item + shift) for item in range(5)) for user in range(20))
        (tmp_path / f"{name}.txt").write_text("\n".join(lines) + "\n")
    found = compare(tmp_path)
    assert found["data"] == "given train and test parts, validation 10 % of train, split seed 0"


def test_what_was_cleaned_is_printed(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    rows = [f"u{n % 40},i{n * 7 % 60:03},{1 if n % 9 else -1},{n}" for n in range(2000)]
    raw.write_text("customer,sku,qty,timestamp\n" + "\n".join([*rows, ",i1,1,5"]) + "\n")
    columns = ("--user", "customer", "--item", "sku", "--weight", "qty", "--until", "1900")
    ended = evenhand("data", "describe", raw, *columns)
    assert ended.code == 0, ended.err
    printed = " ".join(ended.out.split())
    assert "1 row without an id skipped; 100 rows from 1900 on skipped; " in printed
    assert "repeats merged." in printed


def test_standard_input_is_data(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO(log.read_bytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content, isatty=lambda: False))
    assert compare("-")["rows"] == compare(log)["rows"]


def test_no_path_of_ours_is_in_a_model_folder(log: Path, tmp_path: Path) -> None:
    """People publish model folders; where a file lay, and whose it was, is nobody's business."""
    secret = tmp_path / "home-of-anna"
    assert evenhand("data", "split", log, "--out", secret).code == 0
    train, test = secret / "train.csv", secret / "test.csv"
    ended = evenhand("train", train, "--test", test, "--method", "popular", "--out", tmp_path / "model")
    assert ended.code == 0, ended.err
    for file in (tmp_path / "model").rglob("*"):
        assert b"anna" not in file.read_bytes(), file.name
    record = json.loads((tmp_path / "model" / "config.json").read_text())["info"]["data"]
    assert (record["source"], record["splitting"]["test"]) == ("train.csv", "test.csv")
    assert [set(one) for one in record["files"]] == [{"file", "bytes", "sha256"}] * 2


def test_nor_in_anything_else_that_is_written(log: Path, tmp_path: Path) -> None:
    """Files, folders of files and lines of items, through every command that leaves something to pass on."""
    secret, given = tmp_path / "home-of-anna", tmp_path / "given"
    given.mkdir()
    for folder, to in (("parts", "csv"), ("more", "parquet")):
        assert evenhand("data", "split", log, "--out", secret / folder, "--to", to).code == 0
    history = secret / "history"
    history.mkdir()
    for part in ("train", "validation"):
        (secret / "more" / f"{part}.parquet").rename(history / f"of-{part}.parquet")
    lines = "\n".join(f"{user} " + " ".join(str(user + n) for n in range(6)) for user in range(30))
    (secret / "lines").mkdir()
    (secret / "lines" / "train.txt").write_text(lines)
    (secret / "newer.csv").write_text("user,item\n7777,1\n7777,2\n7777,3\n")
    train, test = secret / "parts" / "train.csv", secret / "parts" / "test.csv"
    short = ("--epochs", 2, "--dim", 4, "--k", 5)
    lists = given / "lists.csv"
    search = ("--trials", 2, "--epochs", 1, "--dim", 4, "--metric", "ndcg@5,ohr@5")
    asked = ("--train", history, "--test", test, "--k", 5, "--recs", f"mine={lists}", "--fail-if", "ohr@5>0")
    left = ("--out", given / "audit.html", "--save", given / "audit.json", "--junit", given / "junit.xml")
    for command in (
        ("train", history, "--method", "dns", *short, "--seeds", 1, "--out", given / "model"),
        ("train", secret / "lines" / "train.txt", "--method", "popular", "--k", 5, "--out", given / "of-lines"),
        ("update", given / "model", secret / "newer.csv", "--epochs", 1, "--out", given / "updated"),
        ("compare", history, "--methods", "popular,dns", *short, "--seeds", 1, "--out", given / "run"),
        ("tune", history, "--method", "dns", *search, "--out", given / "search", "--model", given / "tuned"),
        ("recommend", given / "updated", "-k", 5, "--out", lists),
        ("export", given / "model", "--to", "parquet", "--out", given / "vectors"),
        ("rerank", lists, "--train", train, "-k", 3, "--to", given / "again.csv"),
        ("audit", *asked, *left),
    ):
        ended = evenhand(*command)
        assert ended.code == (1 if command[0] == "audit" else 0), (command, ended.err)
    words = ["anna", str(tmp_path), *(word for word in (getpass.getuser(), socket.gethostname()) if len(word) > 5)]
    for file in filter(Path.is_file, given.rglob("*")):
        assert not [word for word in words if word.encode() in file.read_bytes()], file
