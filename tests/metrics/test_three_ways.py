"""An outside recommender, our own model folder and `compare` get the same numbers for the same lists, to the digit."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.write import write_table
from evenhand.metrics.catalogue import METRICS
from run_cli import evenhand

L2, K = 50.0, 10
SPLIT = ("--split", "per-user")
"""Everybody has a test item, so that an audit, which looks at every list, sees the same users as the others."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """log.csv, and parts/ as `data split` writes them."""
    folder = tmp_path_factory.mktemp("three")
    rng = np.random.default_rng(1)
    appeal = rng.exponential(1.0, 60)
    pairs = {(int(u), int(i)) for u in range(120) for i in rng.choice(60, 14, replace=False, p=appeal / appeal.sum())}
    users, items = zip(*sorted(pairs), strict=True)
    log = pa.table({"user": [f"u{u:03}" for u in users], "item": [f"i{i:02}" for i in items]})
    write_table(log, folder / "log.csv")
    assert evenhand("data", "split", folder / "log.csv", "--split", "per-user", "--out", folder / "parts").code == 0
    return folder


def outside_ease(folder: Path) -> Path:
    """EASE as its paper writes it, by somebody who has numpy and the files; known items are left out."""
    read = {name: eh.Interactions.read(folder / "parts" / f"{name}.csv") for name in ("train", "validation")}
    users = sorted({u for part in read.values() for u in part.user_ids.to_pylist()})
    items = sorted({i for part in read.values() for i in part.item_ids.to_pylist()})

    def matrix(part: eh.Interactions) -> np.ndarray:
        cells = np.zeros((len(users), len(items)))
        rows = [users.index(part.user_ids[u].as_py()) for u in part.users.tolist()]
        cells[rows, [items.index(part.item_ids[i].as_py()) for i in part.items.tolist()]] = 1
        return cells

    train, known = matrix(read["train"]), matrix(read["train"]) + matrix(read["validation"])
    inverse = np.linalg.inv(train.T @ train + L2 * np.eye(len(items)))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = np.where(known > 0, -np.inf, train @ weights)
    top = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    rows = [(users[u], items[i], rank) for u, row in enumerate(top) for rank, i in enumerate(row, 1)]
    columns = dict(zip(("user", "item", "rank"), map(list, zip(*rows, strict=True)), strict=True))
    write_table(pa.table(columns), folder / "outside.csv")
    return folder / "outside.csv"


def parts(folder: Path, *names: str) -> list[Any]:
    """The options that name these files."""
    return [text for name in names for text in (f"--{name}", folder / "parts" / f"{name}.csv")]


def row(document: dict[str, Any]) -> dict[str, float | None]:
    (found,) = [row for row in document["rows"] if row["k"] == K]
    return {name: value["mean"] for name, value in found["metrics"].items() if value is not None}


def same(one: dict[str, float | None], other: dict[str, float | None]) -> None:
    for name in METRICS:
        if one[name] is None:
            assert other[name] is None, name
        else:
            assert round(one[name], 10) == round(other[name], 10), name  # type: ignore[arg-type]


def test_an_outside_ease_is_scored_as_compare_scores_its_own(folder: Path) -> None:
    ours = row(evenhand("compare", folder / "log.csv", "--methods", f"ease:l2={L2:g}", *SPLIT, "--json").document)
    lists = outside_ease(folder)
    files = parts(folder, "train", "validation", "test")
    evaluated = row(evenhand("evaluate", lists, *files, "--json").document)
    audited = row(evenhand("audit", "--recs", lists, *files, "--json").document)
    same(ours, evaluated)
    same(ours, audited)


def test_without_validation_its_lists_would_be_evaluated_by_other_numbers(folder: Path) -> None:
    lists = outside_ease(folder)
    files = parts(folder, "train", "test")
    whole = row(evenhand("evaluate", lists, *parts(folder, "train", "validation", "test"), "--json").document)
    blind = row(evenhand("evaluate", lists, *files, "--json").document)
    assert blind["fpr_true"] != whole["fpr_true"]
    assert blind["arp"] != whole["arp"]


@pytest.mark.parametrize("data", [("log.csv", *SPLIT), ("parts",)], ids=["log", "folder of parts"])
def test_a_model_folder_is_scored_as_compare_scores_the_method(
    folder: Path, tmp_path: Path, data: tuple[str, ...]
) -> None:
    ease = f"ease:l2={L2:g}"
    given = (folder / data[0], *data[1:])
    ours = row(evenhand("compare", folder / "log.csv", "--methods", ease, *SPLIT, "--json").document)
    same(ours, row(evenhand("compare", *given, "--methods", ease, "--json").document))
    assert evenhand("train", *given, "--method", ease, "--no-refit", "--out", tmp_path / "model").code == 0
    assert evenhand("recommend", tmp_path / "model", "-k", "20", "--out", tmp_path / "ours.csv").code == 0
    files = parts(folder, "train", "validation", "test")
    same(ours, row(evenhand("evaluate", tmp_path / "ours.csv", *files, "--json").document))


def test_python_takes_validation_too(folder: Path) -> None:
    lists = outside_ease(folder)
    train, validation, test = (
        eh.Interactions.read(folder / "parts" / f"{n}.csv") for n in ("train", "validation", "test")
    )
    split = eh.given_split(train, test)
    direct = eh.evaluate(lists, eh.given_split(train, test, validation_part=validation), k=K).at(K).metrics
    for given in (validation, folder / "parts" / "validation.csv"):
        found = eh.evaluate(lists, split, k=K, validation=given).at(K).metrics
        assert {name: one.mean for name, one in found.items()} == {name: one.mean for name, one in direct.items()}
        audited = eh.audit(lists, train, test, k=K, validation=given).row("outside", K).metrics
        for name, one in found.items():
            assert audited[name].value == pytest.approx(one.mean, nan_ok=True), name
    with pytest.raises(eh.InputError, match="validation part already"):
        eh.evaluate(lists, eh.given_split(train, test, validation_part=validation), validation=validation)


def test_an_audit_without_test_knows_validation_too(folder: Path) -> None:
    train, validation = (eh.Interactions.read(folder / "parts" / f"{n}.csv") for n in ("train", "validation"))
    found = eh.audit(outside_ease(folder), train, validation=validation, k=K)
    assert found.data["validation_interactions"] == len(validation)
    assert not any("already" in note for note in found.notes)
    shown = found.row("outside", K).metrics["top_tenth_share"].value
    assert shown / found.demand["train"][0] == pytest.approx(found.row("outside", K).metrics["top_tenth_ratio"].value)
