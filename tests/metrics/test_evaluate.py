"""From a table to metrics: a hand-worked split, every oddity of foreign tables, and all ways to bring one."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.evaluate import evaluate, score_lists
from evenhand.utils.errors import InputError

USERS, ITEMS = pa.array(["ann", "bob", "cat", "dan"]), pa.array(["a", "b", "c", "d", "e", "f"])


def part(pairs: str) -> Interactions:
    """'ann:ab bob:c' → an Interactions over USERS and ITEMS."""
    users, items = [], []
    for row in pairs.split():
        user, letters = row.split(":")
        users += [USERS.to_pylist().index(user)] * len(letters)
        items += [ITEMS.to_pylist().index(letter) for letter in letters]
    return Interactions.from_pairs(users, items, user_ids=USERS, item_ids=ITEMS)


# By train counts a and b are hot from two interactions on. Dan has no test item.
SPLIT = Split(
    train=part("ann:b bob:ad cat:a dan:b"),
    validation=part("ann:f"),
    test=part("ann:ac bob:b cat:ef"),
    description="by hand",
)
LISTS = {"ann": "ad", "bob": "ebc", "cat": "fe", "dan": "a"}


def table(lists: dict[str, str] = LISTS, **more: Any) -> pa.Table:
    rows = [(user, item, rank) for user, items in lists.items() for rank, item in enumerate(items, 1)]
    users, items, ranks = zip(*rows, strict=True)
    columns = {"user": users, "item": items, "rank": ranks} | more
    return pa.table({name: list(values) for name, values in columns.items()})


def metric(recs: Any, name: str, k: int = 2) -> list[float]:
    return evaluate(recs, SPLIT, k=k, hot=2).at(k).per_seed[0].per_user(name).tolist()


def test_a_hand_worked_table() -> None:
    found = evaluate(table(), SPLIT, k=2, hot=2).at(2)
    means = {name: summary.mean for name, summary in found.metrics.items()}
    assert tuple(means) == tuple(METRICS)
    assert found.per_seed[0].users.tolist() == [0, 1, 2]
    assert means["precision"] == pytest.approx((1 / 2 + 1 / 2 + 2 / 2) / 3)
    assert means["recall"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert means["ohr"] == 0.0  # ann: a hit of one hot; bob: a hit of one hot; cat: no hot item
    assert means["ocr"] == pytest.approx((1 + 1 + 0) / 3)
    assert means["uhr"] == 0.0
    assert means["ucr"] == pytest.approx((1 + 0 + 0) / 3)
    assert means["ucr_defined"] == pytest.approx((1 + 0) / 2)
    # Negatives: ann d e, bob c e f, cat b c d.
    assert means["fpr_true"] == pytest.approx((1 / 2 + 1 / 3 + 0) / 3)
    assert found.metrics["precision"].std is None


def test_the_hot_rule_is_applied_and_named() -> None:
    few = evaluate(table(), SPLIT, k=2, hot=3)
    assert few.hot == "items with at least 3 train interactions"
    assert few.at(2).metrics["uhr_pooled"].values == pytest.approx([math.nan], nan_ok=True)
    many = evaluate(table(), SPLIT, k=2, hot=HotRule(share=None, at_least=1))
    assert many.at(2).metrics["ohr"].mean == pytest.approx((1 / 2 + 0 + 0) / 3)


def test_several_k_come_in_ascending_order() -> None:
    found = evaluate(table(), SPLIT, k=[3, 1, 3])
    assert [row.k for row in found.rows] == [1, 3]
    assert found.at(1).metrics["precision"].mean == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="k = 2 was not evaluated; there is 1, 3"):
        found.at(2)


@pytest.mark.parametrize("k", [0, (), (5, 0), 2.5, "5", (10, 2.5)])
def test_a_wrong_k_is_refused(k: Any) -> None:
    with pytest.raises(InputError, match="whole numbers from 1 up"):
        evaluate(table(), SPLIT, k=k)


def test_rows_may_come_in_any_order_and_ranks_may_have_gaps() -> None:
    shuffled = pa.table({"user": ["bob", "ann", "bob", "ann"], "item": ["b", "d", "e", "a"], "rank": [30, 7, 10, 0]})
    assert metric(shuffled, "ndcg", k=1) == [1, 0, 0]
    assert metric(shuffled, "precision", k=2) == [0.5, 0.5, 0]


def test_without_ranks_the_highest_score_comes_first_and_ties_keep_their_order() -> None:
    scored = pa.table(
        {
            "user": ["ann", "ann", "bob", "bob", "cat", "cat"],
            "item": ["d", "a", "b", "c", "a", "f"],
            "score": [0.1, 0.9, 0.5, 0.5, -2.0, -1.0],
        }
    )
    assert metric(scored, "precision", k=1) == [1, 1, 1]
    ranked = scored.append_column("rank", pa.array([1, 2] * 3))
    assert metric(ranked, "precision", k=1) == [0, 1, 0]


def test_seeds_are_summarised() -> None:
    both = pa.concat_tables(
        [
            table(seed=[10] * 8),
            table({"ann": "ac", "bob": "b", "cat": "ab"}, seed=[9] * 5),
        ]
    )
    found = evaluate(both, SPLIT, k=2, hot=2)
    precision = found.at(2).metrics["precision"]
    assert found.seeds == (9, 10)
    assert precision.values == pytest.approx((1 / 2, 2 / 3))
    assert precision.mean == pytest.approx(7 / 12)
    assert precision.std == pytest.approx((2 / 3 - 1 / 2) / math.sqrt(2))
    assert [one.users.tolist() for one in found.at(2).per_seed] == [[0, 1, 2]] * 2


def test_users_without_recommendations_count_as_empty_lists() -> None:
    found = evaluate(table({"ann": "ac"}), SPLIT, k=2, hot=2)
    assert found.at(2).metrics["precision"].mean == pytest.approx(1 / 3)
    assert found.at(2).metrics["uhr"].mean == pytest.approx(1 / 3)  # bob wants b, which is hot
    assert found.notes == ("Counted as empty: the lists of 2 of 3 test users without recommendations.",)


def test_foreign_users_are_dropped_and_foreign_items_are_cold_misses() -> None:
    found = evaluate(table({"ann": "xyac", "eve": "ab", "bob": "b", "cat": "efz"}), SPLIT, k=3, hot=2)
    per_user = found.at(3).per_seed[0].per_user
    assert per_user("precision") == pytest.approx([1 / 3, 1 / 3, 2 / 3])
    assert per_user("ocr") == pytest.approx([1, 0, 1 / 3])
    assert per_user("fpr_true").tolist() == [0, 0, 0]
    assert found.notes == (
        "Dropped 2 rows of 1 user unknown to train and test.",
        "Kept 3 items unknown to train and test (3 rows) as cold misses.",
        "Counted empty slots as misses in 1 list shorter than 3.",
    )


def test_a_repeated_item_counts_once_and_the_list_closes_up() -> None:
    found = evaluate(table({"ann": "ddac", "bob": "xxb", "cat": "ef"}), SPLIT, k=2, hot=2)
    assert found.at(2).per_seed[0].per_user("precision").tolist() == [0.5, 0.5, 1]
    assert "Ignored 2 rows naming an item already higher in the same list." in found.notes


def test_lists_nobody_asked_for_and_items_the_user_has_are_reported() -> None:
    found = evaluate(table({"ann": "bf", "bob": "cb", "cat": "ef", "dan": "a"}), SPLIT, k=2, hot=2)
    assert found.at(2).per_seed[0].per_user("fpr_true") == pytest.approx([0, 1 / 3, 0])
    assert found.at(2).per_seed[0].per_user("ohr").tolist() == [1, 0, 0]
    assert found.notes == (
        "Left out 1 list of users without a test item.",
        "Counted as misses 2 recommendations of what the user has in train or validation already.",
    )


def test_numbers_and_their_texts_are_the_same_ids() -> None:
    train = Interactions.from_pairs([0, 1], [0, 1], n_users=2, n_items=3)
    split = Split(train, None, Interactions.from_pairs([0, 1], [2, 2], n_users=2, n_items=3), "by hand")
    for ids in (["0", "1"], [0, 1], np.array([0, 1], dtype=np.int16)):
        recs = pa.table({"user": ids, "item": ["2", "1"], "rank": [1, 1]})
        assert evaluate(recs, split, k=1).at(1).per_seed[0].per_user("recall").tolist() == [1, 0]


def test_every_way_to_bring_a_table_gives_the_same(tmp_path: Path) -> None:
    recs = table()
    csv, tsv, parquet = (tmp_path / f"recs.{ending}" for ending in ("csv", "tsv", "parquet"))
    recs.to_pandas().to_csv(csv, index=False)
    recs.to_pandas().to_csv(tsv, index=False, sep="\t")
    pq.write_table(recs, parquet)
    expected = evaluate(recs, SPLIT, k=(1, 2)).to_json()
    chunked = pa.concat_tables([recs.slice(0, 3), recs.slice(3)])
    frames: list[Any] = [recs.to_pandas(), pl.from_arrow(recs), chunked, csv, str(tsv), parquet]
    for same in frames:
        assert evaluate(same, SPLIT, k=(1, 2)).to_json() == expected


def test_the_json_document() -> None:
    document = evaluate(table({"ann": "c", "bob": "c", "cat": "c"}), SPLIT, k=1, hot=2, name="mine").to_json()
    (row,) = json.loads(json.dumps(document, allow_nan=False))["rows"]
    assert (row["name"], row["encoder"], row["method"], row["k"]) == ("mine", None, None, 1)
    assert row["metrics"]["recall"] == {
        "mean": pytest.approx(1 / 6),
        "std": None,
        "values": [pytest.approx(1 / 6)],
    }
    assert row["metrics"]["ohr_defined"] == {"mean": None, "std": None, "values": [None]}
    assert row["metrics"]["mse"] is None


def test_the_table_has_a_line_per_k_and_metric() -> None:
    found = evaluate(table(), SPLIT, k=(1, 2), hot=2, name="mine")
    lines = found.to_table().to_pandas()
    assert len(lines) == 2 * len(METRICS)
    line = lines[(lines.k == 2) & (lines.metric == "precision")].iloc[0]
    assert (line["name"], line["mean"], list(line["values"])) == ("mine", 2 / 3, [2 / 3])
    assert pd.isna(line["std"])


@pytest.mark.parametrize(
    ("recs", "message"),
    [
        (table().drop_columns(["rank"]), "neither a column 'rank' nor 'score'"),
        (table().drop_columns(["item"]), "no column 'item'"),
        (
            table().drop_columns(["rank"]).append_column("score", [[math.nan] * 8]),
            "no usable row is left of the Table: dropped 8 rows without a finite score",
        ),
        (table({"eve": "ab"}), "no user of the Table is in the split .'eve' is not, 'ann' would be"),
        (table({"ann": "xy"}), "no item of the Table is in the split"),
        (42, "cannot read"),
    ],
)
def test_a_table_that_cannot_be_evaluated_is_refused(recs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(recs, SPLIT)


def test_an_empty_test_part_is_refused() -> None:
    nothing = SPLIT.test.take(np.zeros(len(SPLIT.test), dtype=bool))
    with pytest.raises(InputError, match="test part of the split is empty"):
        evaluate(table(), Split(SPLIT.train, None, nothing, "by hand"))


def test_a_random_table_agrees_with_the_arrays_it_was_made_from() -> None:
    rng = np.random.default_rng(0)
    n_users, n_items, k = 60, 50, 8
    log = Interactions.from_pairs(rng.integers(0, n_users, 900), rng.integers(0, n_items, 900))
    split = log.split(test=0.3, validation=0.1)
    top = np.argsort(rng.random((n_users, n_items)), axis=1)[:, :k]
    rows = rng.permutation(n_users * k)
    recs = pa.table(
        {
            "user": np.repeat(np.arange(n_users), k)[rows],
            "item": top.ravel()[rows],
            "score": -np.tile(np.arange(k), n_users)[rows].astype(float),
        }
    )
    hot = HotRule.parse("paper").mask(split)
    expected = score_lists(top, np.arange(n_users), split.test, hot, [3, k], split.consumed)
    found = evaluate(recs, split, k=(3, k), hot="paper")
    for n in (3, k):
        assert found.at(n).per_seed[0].means() == expected[n].means()
