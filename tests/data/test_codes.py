"""Reading in pieces against plain Python: codes of ids that grow, and unique pairs out of sorted numbers."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.reading import codes, read
from evenhand.data.reading import text_files as text
from evenhand.data.reading.codes import Codes, from_the_end, recode, steps, used
from evenhand.data.reading.read import read_interactions
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

PATCHES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
ids = st.one_of(
    st.lists(st.lists(st.none() | st.integers(-5, 5), max_size=6), min_size=1, max_size=8),
    st.lists(st.lists(st.none() | st.sampled_from("abcdé"), max_size=6), min_size=1, max_size=8),
)


@PATCHES
@given(pieces=ids, pending=st.sampled_from([0, 3, 2**18]), dictionary=st.booleans())
def test_codes_are_those_of_a_growing_dictionary(monkeypatch, pieces, pending, dictionary) -> None:
    monkeypatch.setattr(codes, "_PENDING", pending)
    kind = pa.string() if any(isinstance(i, str) for piece in pieces for i in piece) else pa.int64()
    made = Codes()
    for piece in pieces:
        array = pa.array(piece, kind)
        made.add(array.dictionary_encode() if dictionary else array)
    assert len(made) == sum(map(len, pieces))
    values, found = made.finish()
    assert found.dtype == np.int32
    rows = [i for piece in pieces for i in piece]
    known = list(dict.fromkeys(i for i in rows if i is not None))
    assert [values[int(c)].as_py() if c >= 0 else None for c in found] == rows
    assert [v for v in values.to_pylist() if v is not None] == known


def test_recode_and_used_work_in_steps(monkeypatch) -> None:
    monkeypatch.setattr(codes, "STEP", 2)
    assert [(s.start, s.stop) for s in steps(5)] == [(0, 2), (2, 4), (4, 5)]
    some = np.array([2, 0, -1, 2, 1], dtype=np.int32)
    assert used(some, 4).tolist() == [True, True, True, False]
    recode(some, np.array([7, 8, 9]))
    assert some.tolist() == [9, 7, -1, 9, 8]


def test_from_the_end_gives_rows_back(monkeypatch) -> None:
    monkeypatch.setattr(codes, "STEP", 2)
    rows, other, seen = np.arange(5), np.arange(5) * 10, []
    for part in from_the_end(rows, other):
        seen.append((rows[part].tolist(), other[part].tolist(), len(rows)))
    assert seen == [([4], [40], 5), ([2, 3], [20, 30], 4), ([0, 1], [0, 10], 2)]
    assert len(rows) == len(other) == 0


@PATCHES
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 2),
            st.integers(1, 9),
            st.sampled_from([math.nan, 1.0, 2.0, 3.0]),
        ),
        max_size=20,
    ),
    timed=st.booleans(),
    step=st.sampled_from([1, 3, 2**20]),
    bits=st.sampled_from([63, 4]),
)
def test_of_repeated_pairs_the_latest_stays(monkeypatch, rows, timed, step, bits) -> None:
    """Also in small steps, and where the number of a row does not fit beside the pair."""
    monkeypatch.setattr(codes, "STEP", step)
    monkeypatch.setattr(codes, "_KEY_BITS", bits)
    kept: dict[tuple[int, int], tuple[float, int]] = {}
    for user, item, rating, when in rows:
        now = (-math.inf if math.isnan(when) else when) if timed else 0.0
        if (user, item) not in kept or now >= kept[user, item][0]:
            kept[user, item] = (now, rating)
    users, items, ratings, times = (np.array([row[i] for row in rows]) for i in range(4))
    log = Interactions.from_pairs(
        users, items, ratings=ratings, timestamps=times if timed else None, n_users=4, n_items=3
    )
    assert list(zip(log.users.tolist(), log.items.tolist(), strict=True)) == sorted(kept)
    assert log.ratings is not None
    assert log.ratings.tolist() == [kept[pair][1] for pair in sorted(kept)]
    assert log.ratings.dtype == np.float32
    if timed:
        assert log.timestamps is not None
        assert np.nan_to_num(log.timestamps, nan=-np.inf).tolist() == [kept[p][0] for p in sorted(kept)]
    bare = Interactions.from_pairs(users, items, n_users=4, n_items=3)
    assert np.array_equal(bare.indptr, log.indptr)
    assert np.array_equal(bare.items, log.items)
    if len(rows) > len(kept):
        assert log.notes == (f"{count(len(rows) - len(kept), 'repeat')} merged.",)


def test_from_codes_is_from_pairs_and_empties_its_arrays() -> None:
    users, items = np.array([1, 0, 1], dtype=np.int32), np.array([0, 1, 0], dtype=np.int32)
    names = pa.array(["a", "b"])
    log = Interactions.from_codes((users, items), (names, names), ratings=np.array([1.0, 2.0, 3.0]))
    assert log.to_table().to_pydict() == {"user": ["a", "b"], "item": ["b", "a"], "rating": [2.0, 3.0]}
    assert len(users) == len(items) == 0


LATE = {
    "a rating with a fraction": ("3", "3.5", [3.0, 3.5]),
    "a rating that is absent in words": ("3", "NA", [3.0, None]),
    "no rating at first": ("", "4", [None, 4.0]),
}


@pytest.mark.parametrize("case", LATE)
def test_what_comes_late_in_a_file_is_read_all_the_same(tmp_path, monkeypatch, case) -> None:
    """Types are guessed from the first block; a later one that differs must not matter."""
    early, late, expected = LATE[case]
    monkeypatch.setattr(text, "_BLOCK", 64)
    path = tmp_path / "log.csv"
    body = "".join(f"{u},{u % 7},{early}\n" for u in range(200)) + f"200,1,{late}\n"
    path.write_text("user,item,rating\n" + body)
    log = read_interactions(path)
    assert log.ratings is not None
    found = [None if math.isnan(r) else r for r in log.ratings.tolist()]
    assert [found[0], found[-1]] == expected
    assert log.user_ids.to_pylist() == list(range(201))


@pytest.mark.parametrize("late", ["2020-01-02", "2020-01-01T00:00:01.5"])
def test_dates_are_read_in_blocks_and_otherwise(tmp_path, monkeypatch, late) -> None:
    monkeypatch.setattr(text, "_BLOCK", 64)
    path = tmp_path / "log.csv"
    path.write_text(
        "user,item,timestamp\n" + "".join(f"{u},{u % 7},2020-01-01\n" for u in range(99)) + f"99,1,{late}\n"
    )
    log = read_interactions(path)
    assert log.timestamps is not None
    assert log.timestamps[0] == 1577836800
    assert log.timestamps[-1] == (1577923200 if late == "2020-01-02" else 1577836801.5)


def test_a_text_among_numbers_keeps_all_ids_texts_across_blocks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(text, "_BLOCK", 64)
    path = tmp_path / "log.csv"
    path.write_text("user,item\n" + "".join(f"{u},{u % 7}\n" for u in range(200)) + "x,1\n")
    log = read_interactions(path)
    assert log.user_ids.type == pa.string()
    assert log.item_ids.type == pa.int64()
    assert log.user_ids.to_pylist() == sorted([*map(str, range(200)), "x"])
    path.write_text("user,item\n" + "".join(f"{u},{u % 7}\n" for u in range(200)) + ",1\n")
    with pytest.raises(InputError, match=r"column 'user' of .* has no id in line 202"):
        read_interactions(path, strict=True)


@pytest.mark.parametrize("strings", [False, True])
def test_parquet_in_many_batches(tmp_path, monkeypatch, strings) -> None:
    monkeypatch.setattr(read, "_ROWS", 5)
    monkeypatch.setattr(codes, "_PENDING", 4)
    users = [(7 * i) % 23 for i in range(60)]
    items = [(5 * i) % 11 for i in range(60)]
    table = pa.table({"extra": users, "item": items, "user": [f"u{u:02}" for u in users] if strings else users})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=17)
    log = read_interactions(tmp_path / "log.parquet")
    expected = sorted({(f"u{u:02}" if strings else u, i) for u, i in zip(users, items, strict=True)})
    found = log.to_table()
    assert list(zip(found["user"].to_pylist(), found["item"].to_pylist(), strict=True)) == expected
