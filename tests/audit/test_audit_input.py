"""Tables as they come: every oddity is judged and told in one sentence, or refused in one."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
from audit_lists import LISTS, TEST, TRAIN, pairs
from evenhand.audit.result import Audit, to_json
from evenhand.utils.errors import InputError


def rows(lists: dict[str, str] = LISTS) -> list[dict[str, Any]]:
    return [
        {"user": user, "item": item, "rank": rank}
        for user, items in lists.items()
        for rank, item in enumerate(items, 1)
    ]


def table(of: dict[str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"user": user, "item": item} for user, item in pairs(of)])


def audited(recs: Any, **more: Any) -> Audit:
    given = {"train": table(TRAIN), "test": table(TEST), "k": (3, 4), "hot": 2} | more
    return eh.audit({"mine": pa.Table.from_pylist(recs) if isinstance(recs, list) else recs}, **given)


def values(found: Audit) -> dict[str, float]:
    return {name: estimate.value for name, estimate in found.row("mine", 4).metrics.items()}


@cache
def clean() -> dict[str, float]:
    return values(audited(rows()))


def noted(found: Audit, sentence: str) -> None:
    assert f"mine: {sentence}." in found.notes, found.notes


def same(found: Audit) -> None:
    assert values(found) == pytest.approx(clean(), nan_ok=True)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl", "ndjson", "jsonl.gz"])
def test_every_kind_of_file_gives_the_same(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"lists.{ending}"
    data = pd.DataFrame(rows())
    if ending == "parquet":
        pq.write_table(pa.Table.from_pandas(data), path)
    elif ending.endswith("gz"):
        path.write_bytes(gzip.compress(data.to_json(orient="records", lines=True).encode()))
    elif ending in ("jsonl", "ndjson"):
        data.to_json(path, orient="records", lines=True)
    else:
        data.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    same(audited(path))


def test_frames_give_the_same() -> None:
    same(audited(pd.DataFrame(rows())))
    same(audited(pl.DataFrame(rows())))


def test_ids_may_be_numbers_here_and_texts_there() -> None:
    number = {letter: str(n) for n, letter in enumerate("abcdefghij", 10)}
    as_text = [row | {"item": number[row["item"]]} for row in rows()]
    as_number = [row | {"item": int(number[row["item"]])} for row in rows()]
    past, wanted = (
        pa.Table.from_pylist([{"user": u, "item": int(number[i])} for u, i in pairs(of)]) for of in (TRAIN, TEST)
    )
    for recs in (as_text, as_number):
        same(audited(recs, train=past, test=wanted))


def test_columns_can_be_named_and_scores_rank_downwards() -> None:
    odd = [{"who": r["user"], "what": r["item"], "points": -2.5 * r["rank"]} for r in reversed(rows())]
    same(audited(odd, columns={"user": "who", "item": "what", "score": "points"}))
    with pytest.raises(InputError, match="--rec-user"):
        audited(odd)
    with pytest.raises(InputError, match="no column for 'points'"):
        audited(odd, columns={"points": "points"})


def test_lists_may_call_columns_as_train_does() -> None:
    past = table(TRAIN).rename_columns(["who", "item"])
    wanted = table(TEST).rename_columns(["who", "item"])
    for name in ("user", "who"):
        recs = [{name: r["user"], "item": r["item"], "rank": r["rank"]} for r in rows()]
        same(audited(recs, train=past, test=wanted, reading={"user": "who"}))


def test_a_repeated_item_counts_once() -> None:
    found = audited([*rows(), {"user": "ann", "item": "f", "rank": 9}])
    noted(found, "ignored 1 row naming an item already higher in the same list")
    same(found)


def test_gaps_and_ties_in_ranks() -> None:
    found = audited([row | {"rank": 10 * row["rank"]} for row in rows()])
    noted(found, "5 lists with gaps in the ranks, of which only the order counts")
    same(found)
    found = audited([row | {"rank": 1} for row in rows()])
    noted(found, "5 lists with equal ranks, whose rows count in the order of the table")
    same(found)
    from_zero = audited([row | {"rank": row["rank"] - 1} for row in rows()])
    assert not any("gaps" in note for note in from_zero.notes)


def test_unknown_users_are_dropped_and_unknown_items_kept() -> None:
    found = audited([*rows(), *({"user": "zoe", "item": item, "rank": 1} for item in "ab")])
    noted(found, "dropped 2 rows of 1 user unknown to train and test")
    same(found)
    found = audited([*rows(), {"user": "dan", "item": "new", "rank": 4}])
    noted(found, "kept 1 item unknown to train and test (1 row) as cold misses")
    assert values(found)["aclt"] == pytest.approx(clean()["aclt"] + 1 / 5)
    assert values(found)["precision"] == clean()["precision"]
    assert values(found)["coverage"] == clean()["coverage"]


def test_what_only_test_knows_is_reported() -> None:
    found = audited([*rows(), {"user": "gus", "item": "a", "rank": 1}], test=table(TEST | {"gus": "ab"}))
    noted(found, "2 recommendations of 1 item that test has and train has not")  # h, to dan and eve
    noted(found, "1 list of users who are in test and not in train")


def test_rows_without_a_score_are_dropped() -> None:
    scored = [{"user": r["user"], "item": r["item"], "score": 1 / r["rank"]} for r in rows()]
    found = audited([*scored, {"user": "ann", "item": "h", "score": float("nan")}])
    noted(found, "dropped 1 row without a finite score")
    same(found)


def test_short_and_missing_lists() -> None:
    found = audited([row for row in rows() if row["user"] != "bob"])
    noted(found, "1 list shorter than 4; the empty slots count as misses")
    noted(
        found,
        "1 of 5 test users have no list; it counts as empty (to evaluate served users alone, leave the others "
        "out of test)",
    )
    assert values(found)["precision"] == pytest.approx(clean()["precision"] - 2 / 4 / 5)
    assert values(found)["aplt"] == pytest.approx((1 + 2 / 4 + 1 + 3 / 4) / 4)


def test_what_the_user_has_already_is_reported() -> None:
    noted(
        audited([*rows(), {"user": "dan", "item": "a", "rank": 4}]),
        "1 recommendation of what the user has in train already, counted as shown and not wanted",
    )


def test_users_without_a_wish_count_for_exposure_only() -> None:
    found = audited([*rows(), {"user": "fay", "item": "a", "rank": 1}])
    noted(found, "1 list of users without a test item; they count for exposure only")
    assert values(found)["ndcg"] == clean()["ndcg"]
    assert values(found)["arp"] == pytest.approx((5 * clean()["arp"] + 4) / 6)


def test_a_test_that_overlaps_train_is_reported_with_the_count() -> None:
    both = TEST | {"ann": "dea"}
    found = audited(rows(), test=table(both))
    assert "1 test pair also occurs in train; it is left out." in found.notes
    same(found)


def test_a_table_of_several_systems() -> None:
    two = [row | {"name": name} for name in ("z", "a") for row in rows()]
    found = eh.audit({"run": pa.Table.from_pylist(two)}, table(TRAIN), table(TEST), k=4, hot=2)
    assert found.systems == ("z", "a")
    found = eh.audit({"old": pa.Table.from_pylist(two), "new": pa.Table.from_pylist(rows())}, table(TRAIN), k=4, hot=2)
    assert found.systems == ("old/z", "old/a", "new")


def test_of_several_seeds_the_first_is_audited() -> None:
    seeds = [row | {"seed": seed} for seed in (3, 1) for row in (rows() if seed == 1 else rows()[::2])]
    found = audited(seeds)
    noted(found, "holds lists of 2 seeds, of which seed 1 is audited")
    same(found)


@pytest.mark.parametrize(
    ("recs", "more", "why"),
    [
        ([{"user": "zoe", "item": "a", "rank": 1}], {}, "no user of"),
        ([{"user": "ann", "item": "zzz", "rank": 1}], {}, "no item of"),
        ([{"user": "ann", "item": "a"}], {}, "neither a column 'rank' nor 'score'"),
        ([{"user": "ann", "item": "a", "score": float("nan")}], {}, "no usable row is left of the Table"),
        (rows(), {"test": table({"ann": "ab"})}, "the test part is empty"),
        (rows(), {"k": 0}, "k must be"),
        (rows(), {"hot": "warm"}, "unknown hot rule"),
        (rows(), {"slice_by": ["age"]}, "--users-file or --items-file"),
        (rows(), {"title": "name"}, "--items-file"),
        (
            rows(),
            {"users_file": pa.table({"user": ["ann"], "sex": ["f"]}), "slice_by": ["age"]},
            "no column 'age'",
        ),
        (rows(), {"users_file": pa.table({"user": ["x"], "sex": ["f"]}), "slice_by": ["sex"]}, "is in train"),
    ],
)
def test_what_makes_no_sense_is_refused(recs: Any, more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why) as message:
        audited(recs, **more)
    assert "\n" not in str(message.value)


def test_broken_json_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text('{"user": 1, "item"')
    with pytest.raises(InputError, match="cannot be read as JSON lines"):
        audited(path)
    path.write_text("")
    with pytest.raises(InputError, match="is empty"):
        audited(path)


def test_many_values_are_put_together_and_missing_ones_named() -> None:
    users = pa.table({"user": ["ann", "bob", "cat", "dan"], "city": ["x", "x", None, "y"]})
    found = audited(rows(), users_file=users, slice_by=["city"])
    assert {r.part: r.size for r in found.slices if r.by == "city"} == {"not given": 2, "x": 2, "y": 1}
    assert any("has no city for 3 users" in note for note in found.notes)
    items = pa.table({"item": list("abcdefghij"), "n": list(range(10))})
    wide = pa.table({"user": [f"u{n:02}" for n in range(40)], "item": list("abcdefghij" * 4)})
    many = pa.table({"user": wide["user"], "home": [f"h{n % 20:02}" for n in range(40)]})
    recs = pa.table({"user": wide["user"], "item": ["a"] * 40, "rank": np.ones(40, int)})
    found = eh.audit(recs, wide, k=1, users_file=many, items_file=items, slice_by=["home", "n"], hot=2)
    homes = [r for r in found.slices if r.by == "home"]
    assert len(homes) == 12
    assert homes[-1].part == "all others"
    assert homes[-1].size == 18


def test_one_user_has_no_interval() -> None:
    found = audited([row for row in rows() if row["user"] == "ann"], test=table({"ann": "de"}))
    precision = found.row("mine", 4).metrics["precision"]
    assert (precision.value, precision.low) == (0.5, None)
    json.dumps(to_json(found), allow_nan=False)
