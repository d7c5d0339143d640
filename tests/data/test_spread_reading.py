"""A log read by several processes is the one that a single process reads, and each holds its users' pairs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.reading import codes, read
from evenhand.data.reading.read import read_interactions
from evenhand.data.reading.spread import SortedIds, owners, read_spread
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.world import World
from ranks import on_ranks

ROWS = 3000


def table(texts: bool, times: bool) -> pa.Table:
    """Rows in no order, with repeats, blanks, missing values, and ids whose texts sort by bytes."""
    draw = np.random.default_rng(1)
    users, items = draw.integers(0, 200, ROWS), (80 * draw.random(ROWS) ** 2).astype(int)
    columns: dict[str, Any] = {
        "user": [f"{'é' if u % 3 else 'z'}{u}" for u in users] if texts else users * 10**12,
        "item": pa.array(items, mask=draw.random(ROWS) < 0.01),
        "rating": pa.array(draw.integers(1, 6, ROWS).astype(float), mask=draw.random(ROWS) < 0.05),
    }
    if texts:
        columns["user"] = [name if n % 97 else ("" if n % 2 else " ") for n, name in enumerate(columns["user"])]
    if times:
        columns["timestamp"] = pa.array(1.6e9 + draw.integers(0, 50, ROWS), mask=draw.random(ROWS) < 0.05)
    return pa.table(columns)


def write(folder: Path, log: pa.Table, parts: int) -> Path:
    step = -(-len(log) // parts)
    for number in range(parts):
        below = folder / f"day={number % 3}"
        below.mkdir(parents=True, exist_ok=True)
        part = log.slice(number * step, step)
        pq.write_table(part, below / f"part-{number}.parquet", row_group_size=max(1, step // 2))
    pq.write_table(log.slice(0, 0), folder / "empty.parquet")
    return folder


def same(a: Interactions, b: Interactions) -> bool:
    sides = zip((a.indptr, a.items, a.ratings, a.timestamps), (b.indptr, b.items, b.ratings, b.timestamps), strict=True)
    ids = a.user_ids.equals(b.user_ids) and a.item_ids.equals(b.item_ids)
    equal = all(
        (one is None) == (other is None)
        and (one is None or (one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")))
        for one, other in sides
    )
    return ids and equal and a.notes == b.notes


def read_all(world: World, asked: list[tuple[str, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """For each log: whether it is the one of a single process, this rank's share, and what was said of a mistake."""
    read._ROWS, codes.STEP = 200, 300  # so that ranks have several pieces, and not as many each
    found = []
    for folder, options in asked:
        expected, problem = None, None
        try:
            expected = read_interactions(folder, **options)
        except InputError as error:
            problem = str(error)
        try:
            log = read_spread(folder, world, **options)
        except InputError as error:
            found.append((str(error) == problem, 0, str(error)))
            continue
        assert expected is not None, problem
        mine = SpreadLog.of(expected, world).mine
        numbers = (
            expected.keys[log.pair_numbers]
            == log.mine.items + np.repeat(log.user_numbers, log.mine.activity) * expected.n_items
        )
        right = same(log.gathered(), expected) and same(log.mine, mine) and numbers.all() and len(log) == len(expected)
        found.append((bool(right), len(log.mine), ""))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_log_of_any_number_of_ranks_is_that_of_one_process(size: int, tmp_path: Path) -> None:
    texts, integers = write(tmp_path / "texts", table(True, True), 5), write(tmp_path / "ints", table(False, False), 1)
    pq.write_table(table(False, True).slice(0, 40), integers / "day=0" / "x.parquet")  # fewer columns elsewhere
    lone = tmp_path / "lone.parquet"
    pq.write_table(table(True, False), lone)
    mixed = write(tmp_path / "mixed", table(True, True), 2)
    pq.write_table(table(False, True), mixed / "x.parquet")
    dated = tmp_path / "dated"
    dated.mkdir()
    times = pa.array((1_600_000_000 + np.arange(90) * 86_400) * 1000, pa.timestamp("ms"))
    for number in range(2):
        part = pa.table({"user": pa.array(np.arange(90) % 7, pa.float64()), "item": np.arange(90) % 11})
        written = pa.array([str(t.as_py().date()) for t in times]) if number else times
        pq.write_table(part.append_column("timestamp", written).slice(45 * number, 45), dated / f"{number}.parquet")
    asked: list[tuple[str, dict[str, Any]]] = [
        (str(texts), {}),
        (str(texts), {"min_rating": 3, "since": "2020-09-13T12:26:45", "until": 1.6e9 + 40}),
        (str(integers), {}),
        (str(integers), {"user": "item", "item": "user"}),
        (str(lone), {}),
        (str(dated), {"since": "2020-10-01", "until": "2020-11-20"}),
        (str(texts), {"strict": True}),
        (str(texts), {"min_rating": 9}),
        (str(texts), {"user": "usr"}),
        (str(integers / "day=0"), {"since": "2020-01-01", "rating": "rating"}),
        (str(mixed), {}),
        (str(tmp_path / "nothing"), {}),
    ]
    answers = on_ranks(size, read_all, asked)
    for found in answers:
        for (folder, options), (right, _, said) in zip(asked, found, strict=True):
            if options.get("strict") and size > 1:  # of several such rows, any rank's first may be named
                assert "has no id in row " in said
            else:
                assert right, (folder, options, said)
    shares = [found[0][1] for found in answers]
    assert max(shares) < 1.5 * sum(shares) / size


LISTS: list[list[Any]] = [[5, -3, 2**62, 0, 9], ["b", "ß", "a", "aa", "\U0001f600", "\uffff"], ["only"]]


def sorted_ids(world: World) -> list[tuple[list[Any], list[int], list[Any]]]:
    answers = []
    for ids in LISTS:
        values = pa.array(ids)
        mine = values.filter(pa.array(owners(values, world.size) == world.rank))
        found, place = SortedIds.of(world, mine)
        answers.append((found.everywhere().to_pylist(), place.tolist(), mine.to_pylist()))
    return answers


def test_ids_are_sorted_over_ranks_some_of_which_have_none() -> None:
    for answers in on_ranks(3, sorted_ids):
        for ids, (every, place, mine) in zip(LISTS, answers, strict=True):
            expected = pa.array(ids).sort().to_pylist()
            assert every == expected
            assert [expected[n] for n in place] == mine


def test_what_several_processes_cannot_read_is_refused(tmp_path: Path) -> None:
    world = World.alone()
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    with pytest.raises(InputError, match=r"a\.csv' is no parquet file, and several processes read such files only"):
        read_spread(str(tmp_path), world)
    huge = pa.table({"user": pa.array([1, 2**63], pa.uint64()), "item": [1, 2]})
    pq.write_table(huge, tmp_path / "b.parquet")
    with pytest.raises(InputError, match="numbers from"):
        read_spread(str(tmp_path / "b.parquet"), world)
    with pytest.raises(InputError, match="weight"):
        read_spread(str(tmp_path / "b.parquet"), world, weight="amount")
