"""Lists of ids from other systems: what a model does not know is counted, the rest counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.models.filters import positions
from evenhand.utils.errors import InputError
from small_model import model


def pairs(table: pa.Table) -> list[tuple[object, object]]:
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("users", "served", "note"),
    [
        (["u01", "x"], ["u01"], "1 of 2 users is unknown to the model; no list."),
        (["x", "y", "z"], [], "3 of 3 users are unknown to the model; no list."),
    ],
)
def test_unknown_users_are_counted_and_get_no_list(users: list[str], served: list[str], note: str) -> None:
    table = model("string").recommend(users, k=2)
    assert sorted(set(table["user"].to_pylist())) == served
    assert eh.notes_of(table) == (note,)


@pytest.mark.parametrize("option", ["exclude", "only"])
def test_unknown_items_are_counted_and_the_known_ones_count(option: str) -> None:
    known, both = [10, 20, 30, 40, 50, 60], [10, 20, 30, 40, 50, 60, 1, 2, 3]
    expected = model("integer").recommend(k=3, **{option: known})
    found = model("integer").recommend(k=3, **{option: both})
    assert pairs(found) == pairs(expected)
    assert eh.notes_of(found) == (f"3 of 9 items in `{option}` are unknown to the model.",)
    assert eh.notes_of(expected) == ()


def test_an_empty_exclude_excludes_nothing_and_an_empty_only_allows_nothing() -> None:
    assert model("integer").recommend(k=3, exclude=[]).equals(model("integer").recommend(k=3))
    with pytest.raises(InputError, match=r"^nothing is left to recommend: `only` is empty, so no item is allowed\.$"):
        model("integer").recommend(k=3, only=[])
    with pytest.raises(InputError, match="nothing is left to recommend"):
        model("integer").recommend(k=3, only=[7])


def test_pairs_are_left_out_for_their_users_alone() -> None:
    made = model("integer")
    before = made.recommend(k=12)
    gone = pa.table({"user": [102, 104, 104, 999], "item": [0, 10, 20, 10]})
    expected = [pair for pair in pairs(before) if pair not in [(102, 0), (104, 10), (104, 20)]]
    found = made.recommend(k=12, exclude_pairs=gone)
    assert sorted(pairs(found)) == sorted(expected)
    assert eh.notes_of(found) == ("1 of 3 users in the pairs to exclude is unknown to the model.",)
    every = made.recommend(k=12, known=True, exclude_pairs=gone)
    assert len(every) == 9 * 12 - 3


def test_an_empty_file_of_pairs_leaves_nothing_out(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("user,item\n")
    assert model("integer").recommend(k=3, exclude_pairs=tmp_path / "none.csv").equals(model("integer").recommend(k=3))


def test_users_without_history_get_what_is_popular_among_the_allowed_items() -> None:
    made = model("integer")
    (empty,) = np.flatnonzero(made.known.activity == 0)
    empty_id = made.known.user_ids[int(empty)].as_py()
    asked = [104, empty_id, 555]
    found = made.recommend(
        asked, k=3, exclude=[0], exclude_pairs=pa.table({"user": [555], "item": [20]}), fallback=True
    )
    counts = made.known.popularity
    order = [10 * int(i) for i in np.lexsort((np.arange(12), -counts)) if i != 0]
    rows = found.to_pylist()
    assert [row["user"] for row in rows if row["fallback"]] == [empty_id] * 3 + [555] * 3
    assert [row["item"] for row in rows if row["user"] == empty_id] == order[:3]
    assert [row["item"] for row in rows if row["user"] == 555] == [item for item in order if item != 20][:3]
    assert [row["score"] for row in rows if row["user"] == empty_id] == [counts[item // 10] for item in order[:3]]
    own = made.recommend([104], k=3, exclude=[0])
    assert [row["item"] for row in rows if row["user"] == 104] == own["item"].to_pylist()
    assert eh.notes_of(found)[:2] == (
        "1 of 3 users is unknown to the model; the popular items instead.",
        "1 of 3 users is without history; the popular items instead.",
    )
    assert set(made.recommend([555], k=3, seed="all", fallback=True)["seed"].to_pylist()) == {7, 3, 11}


def test_new_users_whom_the_model_knows_are_not_shown_what_it_knew_of_them() -> None:
    made = model("integer")
    user = int(np.flatnonzero((made.known.activity > 1) & (made.known.activity < 8))[0])
    name, had = made.known.user_ids[user].as_py(), {10 * int(item) for item in made.known.row(user)}
    new = next(item for item in range(0, 120, 10) if item not in had)
    history = Interactions.read(pa.table({"user": [name, name], "item": [new, 999]}))
    shown = set(made.fold_in(history).recommend(k=12)["item"].to_pylist())
    assert shown == set(range(0, 120, 10)) - had - {new}


@pytest.mark.parametrize(
    ("asked", "ids", "found"),
    [
        (["7", "007", "8"], [6, 7, 8], [1, -1, 2]),
        ([7, 8], ["007", "7"], [1, -1]),
        (["7", "007"], ["007", "7"], [1, 0]),
        ([8, 7], [6, 7], [-1, 1]),
    ],
)
def test_ids_of_another_type_are_compared_by_their_text(
    asked: list[object], ids: list[object], found: list[int]
) -> None:
    assert positions(pa.array(asked), pa.array(ids)).tolist() == found
