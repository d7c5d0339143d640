"""The one reader of lists: every oddity has one answer, and evaluation, audit and re-ranking give the same."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.metrics.lists import LONGEST_LIST, ListColumns, list_lengths, read_lists
from evenhand.models.rerank import rerank_lists
from evenhand.utils.errors import InputError

USERS, ITEMS = pa.array(["ann", "bob", "cat"]), pa.array(list("abcdef"))


def part(**rows: str) -> Interactions:
    pairs = [(USERS.to_pylist().index(user), ITEMS.to_pylist().index(i)) for user, items in rows.items() for i in items]
    users, items = zip(*pairs, strict=True)
    return Interactions.from_pairs(users, items, user_ids=USERS, item_ids=ITEMS)


SPLIT = Split(part(ann="a", bob="ab", cat="b"), None, part(ann="c", bob="d", cat="e"), "by hand")


def recs(rows: list[tuple[Any, ...]], *columns: str) -> pa.Table:
    return pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


def lists_of(table: Any) -> dict[str, str]:
    """By user, the items in order; x for one that is unknown."""
    by_seed, _ = read_lists(table)[None].in_vocabulary(SPLIT.test)
    (lists,) = by_seed.values()
    top = lists.top(np.arange(3), 6)
    letters = [*"abcdef", "x", ""]
    return {
        user: "".join(letters[item] for item in row)
        for user, row in zip(USERS.to_pylist(), top, strict=True)
        if row[0] != -1
    }


COLUMNS = ("user", "item", "score")
ODD = {
    "ties": ([("ann", "c", 1), ("ann", "d", 1), ("ann", "b", 2)], "bcd"),
    "missing": ([("ann", "c", 1.0), ("ann", "d", None), ("ann", "e", math.nan)], "c"),
    "infinite": ([("ann", "c", 1.0), ("ann", "d", -math.inf), ("ann", "e", math.inf)], "c"),
    "repeated": ([("ann", "c", 3.0), ("ann", "d", 2.0), ("ann", "c", 1.0), ("ann", "e", 0.0)], "cde"),
    "unknown item": ([("ann", "new", 2.0), ("ann", "c", 1.0)], "xc"),
    "unordered": ([("ann", "c", 1.0), ("ann", "d", 3.0), ("ann", "e", 2.0)], "dec"),
}


@pytest.mark.parametrize("odd", ODD)
def test_evaluate_audit_and_rerank_read_the_same_list(odd: str) -> None:
    rows, expected = ODD[odd]
    table = recs(rows, *COLUMNS)
    assert lists_of(table)["ann"] == expected
    again = rerank_lists(table, SPLIT.train, "calibrated", 0.0, k=6).table
    assert ["x" if item == "new" else item for item in again["item"].to_pylist()] == list(expected)
    evaluated = eh.evaluate(table, SPLIT, k=3, hot=2).at(3).metrics
    audited = eh.audit(table, SPLIT.train, SPLIT.test, k=3, hot=2).row("recommendations", 3).metrics
    for name, summary in evaluated.items():
        assert audited[name].value == pytest.approx(summary.mean, nan_ok=True), name


def test_each_decision_is_noted_in_the_same_words() -> None:
    rows = [
        ("ann", "c", 1.0),
        ("ann", "d", 1.0),
        ("ann", "c", 0.5),
        ("ann", "e", None),
        ("zoe", "c", 1.0),
        ("bob", "new", 1.0),
    ]
    table = recs(rows, *COLUMNS)
    expected = [
        "dropped 1 row without a finite score",
        "1 list with equal scores, whose rows count in the order of the table",
        "ignored 1 row naming an item already higher in the same list",
        "dropped 1 row of 1 user unknown to train and test",
        "kept 1 item unknown to train and test (1 row) as cold misses",
    ]
    assert [f"{note[0].upper()}{note[1:]}." for note in expected] == list(eh.evaluate(table, SPLIT, k=2).notes[:5])
    notes = eh.audit({"mine": table}, SPLIT.train, SPLIT.test, k=2).notes
    assert [note for note in notes if note.startswith("mine: ")][:5] == [f"mine: {note}." for note in expected]


def test_ranks_decide_over_scores_unless_scores_are_named() -> None:
    table = recs([("ann", "c", 1, 0.1), ("ann", "d", 2, 0.9)], "user", "item", "rank", "score")
    assert lists_of(table)["ann"] == "cd"
    by_score = read_lists(table, ListColumns({"score": "score"}))[None]
    assert by_score.item_ids.take(pa.array(by_score.item_codes)).to_pylist() == ["d", "c"]


def test_names_and_seeds_are_distinguished() -> None:
    rows = [("ann", "c", 1, "a", 7), ("ann", "d", 1, "b", 7), ("ann", "e", 1, "b", 8)]
    found = read_lists(recs(rows, "user", "item", "rank", "name", "seed"))
    assert {name: table.seeds for name, table in found.items()} == {"a": [7], "b": [7, 8]}
    by_seed, _ = found["b"].in_vocabulary(SPLIT.test)
    assert [lists.top(np.array([0]), 1)[0, 0] for lists in by_seed.values()] == [3, 4]
    with pytest.raises(InputError, match=r"lists of 2 recommenders in its column 'name' .a, b…"):
        eh.evaluate(recs(rows, "user", "item", "rank", "name", "seed"), SPLIT)


def test_a_blank_id_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "lists.csv"
    path.write_text("user,item,rank\nann,c,1\n,d,2\n")
    for read in (
        lambda: eh.evaluate(path, SPLIT),
        lambda: eh.audit(path, SPLIT.train, SPLIT.test),
        lambda: eh.rerank(path, SPLIT.train),
    ):
        with pytest.raises(InputError, match="no id in line 3"):
            read()


def test_a_missing_column_is_reported_with_the_option_that_lists_have() -> None:
    table = recs([("ann", "c", 1)], "customer", "item", "rank")
    message = "has no column 'user' .it has customer.*; did you mean .customer.. Name it with columns= or --rec-user."
    for read in (
        lambda: eh.evaluate(table, SPLIT),
        lambda: eh.audit(table, SPLIT.train, SPLIT.test),
        lambda: eh.rerank(table, SPLIT.train),
    ):
        with pytest.raises(InputError, match=message):
            read()
    assert eh.evaluate(table, SPLIT, k=1, columns={"user": "customer"}).at(1).metrics["recall"].mean == pytest.approx(
        1 / 3
    )


@pytest.mark.parametrize("k", [10**9, LONGEST_LIST + 1, (5, 10**12)])
def test_a_length_beyond_all_use_is_refused_before_anything_is_read(k: Any) -> None:
    for run in (
        lambda: eh.evaluate("no such file", SPLIT, k=k),
        lambda: eh.audit("no such file", SPLIT.train, SPLIT.test, k=k),
        lambda: eh.compare(SPLIT, ["popular"], k=k),
        lambda: list_lengths(k),
    ):
        with pytest.raises(InputError, match="k may be up to 10,000"):
            run()
