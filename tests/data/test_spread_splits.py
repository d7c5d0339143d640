"""Splits and summaries of a log that several processes hold are those of one process."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from evenhand.data.describe import describe, fingerprint
from evenhand.data.interactions import Interactions
from evenhand.data.splits import split_interactions, split_spread
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.world import World
from ranks import on_ranks


def log(times: str) -> Interactions:
    draw = np.random.default_rng(5)
    n = 4000
    when = {"many": draw.integers(0, 10**6, n) - 5e5, "few": draw.integers(0, 7, n), "one": np.full(n, 3.0)}
    users, items = (150 * draw.random(n) ** 2).astype(int), (70 * draw.random(n) ** 3).astype(int)
    found = Interactions.from_pairs(users, items, timestamps=when[times], n_users=160, n_items=75)
    return found if times != "few" else found.with_notes("a note")


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("many", {"seed": 3}),
    ("many", {"how": "per-user", "test": 0.29, "validation_how": "random"}),
    ("few", {"how": "last"}),
    ("many", {"how": "time"}),
    ("few", {"how": "time", "gap": 1.5}),
    ("many", {"how": "time", "test_from": 250_000, "gap": 1000, "validation": 0.2}),
    ("one", {"how": "time", "seed": 2}),
    ("many", {"how": "popularity-shift", "test": 0.3, "seed": 1}),
    ("few", {"how": "popularity-shift", "validation_how": "time"}),
    ("few", {"test": 0.001, "validation": 0}),
    ("many", {"test": 0.00001}),
    ("many", {"how": "popularity-shift", "test": 0.99}),
    ("many", {"how": "time", "test_from": "soon"}),
]


def splits(world: World) -> list[Any]:
    """For each split whether it equals that of one process; of a refused one whether the same is said."""
    found: list[Any] = []
    for times, options in ASKED:
        data = log(times)
        try:
            spread = split_spread(SpreadLog.of(data, world), **options)
        except InputError as problem:
            with pytest.raises(InputError) as alone:
                split_interactions(data, **options)
            found.append(str(alone.value) == str(problem))
            continue
        one = split_interactions(data, **options)
        parts = zip((spread.train, spread.validation, spread.test), (one.train, one.validation, one.test), strict=True)
        equal = (one.description, one.notes, one.how) == (spread.description, spread.notes, spread.how)
        for mine, whole in parts:
            equal &= (mine is None) == (whole is None)
            if mine is not None and whole is not None:
                back = mine.gathered()
                equal &= fingerprint(back) == fingerprint(whole) and len(mine) == len(whole)
                equal &= np.array_equal(back.timestamps, whole.timestamps)
        found.append(bool(equal))
    found.append(asdict(describe(SpreadLog.of(log("few"), world))) == asdict(describe(log("few"))))
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_splits_over_ranks_are_those_of_one_process(size: int) -> None:
    for found in on_ranks(size, splits):
        assert found == [True] * (len(ASKED) + 1)


def test_a_pair_has_its_random_key_wherever_it_lies() -> None:
    data = log("many")
    assert np.array_equal(SpreadLog.of(data, World.alone()).random_keys(7), np.random.PCG64(7).random_raw(len(data)))
    for rank in range(3):
        part = SpreadLog.of(data, World(rank, 3))
        numbers = np.flatnonzero(part.users.owner(data.users) == rank)
        object.__setattr__(part, "_of_blocks", SpreadLog.of(data, World.alone())._of_blocks)
        assert np.array_equal(part.pair_numbers, numbers)
        assert np.array_equal(part.random_keys(7), np.random.PCG64(7).random_raw(len(data))[numbers])
