"""Arrays over ranks: columns however they travel, and order statistics against a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.utils import spread_arrays
from evenhand.utils.spread_arrays import as_ordered, first_rows, from_ordered, nth_smallest
from evenhand.utils.world import World
from ranks import on_ranks


def columns_of(rank: int) -> dict[str, np.ndarray]:
    n = (4, 0, 3)[rank]
    found = np.arange(10.0 * n).reshape(n, 10) + 100 * rank
    return {"wide": found, "flag": found[:, 0] > 101, "small": found[:, 1].astype(np.int32), "value": found[:, 2]}


def gathered_columns(world: World, limit: int) -> list[tuple[str, str, list[Any]]]:
    spread_arrays._TOGETHER = limit
    found = spread_arrays.gather_columns(world, columns_of(world.rank))
    return [(name, str(column.dtype), column.tolist()) for name, column in found.items()]


@pytest.mark.parametrize("limit", [1, 7 * 10, 2**24])
def test_columns_are_those_of_all_ranks_however_they_travel(limit: int) -> None:
    whole = [columns_of(rank) for rank in range(3)]
    expected = [
        (name, str(column.dtype), np.concatenate([one[name] for one in whole]).tolist())
        for name, column in whole[0].items()
    ]
    assert on_ranks(3, gathered_columns, limit) == [expected] * 3


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.data())
def test_order_statistics_are_those_of_a_sort(values: list[float], data: Any) -> None:
    n = data.draw(st.integers(0, len(values) - 1))
    numbers = np.array(values)
    found, below = nth_smallest(World.alone(), as_ordered(numbers), n)
    assert from_ordered(found) == np.sort(numbers)[n]
    assert below == np.count_nonzero(numbers < np.sort(numbers)[n])
    first = np.argsort(numbers + 0.0, kind="stable")[:n]
    places = np.arange(len(values), dtype=np.uint64)
    assert np.flatnonzero(first_rows(World.alone(), n, [as_ordered(numbers), places])).tolist() == sorted(
        first.tolist()
    )
