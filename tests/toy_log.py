"""The log on which published closed forms were worked out by hand: three users, five items, the last one new."""

from __future__ import annotations

import numpy as np

from evenhand.data.interactions import Interactions

PAIRS = {0: (0, 1), 1: (0, 2), 2: (0, 1, 3)}
TOY = Interactions.from_pairs(
    [user for user, items in PAIRS.items() for _ in items],
    [item for items in PAIRS.values() for item in items],
    n_items=5,
)
USERS = np.array([[1, 0], [0, 1], [1, 1]], dtype=float)
ITEMS = np.array([[1, 1], [2, 0], [0, 3], [1, -1], [-1, 2]], dtype=float)


def matrix(log: Interactions) -> np.ndarray:
    """users × items of zeros and ones."""
    cells = np.zeros((log.n_users, log.n_items))
    cells[log.users, log.items] = 1
    return cells


def random_log(seed: int, n_users: int = 25, n_items: int = 14) -> Interactions:
    """Some users and items have no pair."""
    chance = np.random.default_rng(seed).random((n_users, n_items)) < np.linspace(0, 0.6, n_items)
    users, items = np.nonzero(chance)
    return Interactions.from_pairs(users, items, n_users=n_users + 1, n_items=n_items + 1)
