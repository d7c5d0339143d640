"""The per-user split draws each user's held-out items at random, by its seed."""

from __future__ import annotations

import numpy as np

from evenhand.data.interactions import Interactions

USERS, ITEMS = 3000, 10
LOG = Interactions.from_pairs(np.repeat(np.arange(USERS), ITEMS), np.tile(np.arange(ITEMS), USERS))


def held_out(seed: int) -> np.ndarray:
    """bool [users, items]"""
    test = LOG.split(test=0.2, validation=0.0, seed=seed, how="per-user").test
    assert (test.activity == 2).all()
    found = np.zeros((USERS, ITEMS), dtype=bool)
    found[test.users, test.items] = True
    return found


def test_every_item_of_a_user_is_held_out_equally_often() -> None:
    """Two of ten each: 600 ± 22 times, were it chance."""
    often = held_out(0).sum(0)
    assert np.abs(often - 600).max() < 5 * 22


def test_the_seed_decides() -> None:
    first, again, other = held_out(0), held_out(0), held_out(1)
    assert np.array_equal(first, again)
    same = (first & other).sum() / first.sum()
    assert abs(same - 0.2) < 0.03  # as two independent draws agree
