"""When a user had what: the order of their pairs in time, and how much less the earlier ones count."""

from __future__ import annotations

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError


def time_order(pairs: Interactions) -> np.ndarray:
    """int64 [n_pairs]: the pairs of each user from the earliest on, of one moment by item; unknown times first."""
    return np.lexsort((pairs.items, _times(pairs), pairs.users))


def later_pairs(pairs: Interactions) -> np.ndarray:
    """int64 [n_pairs]: how many pairs of the same user are later.

    >>> log = Interactions.from_pairs([0, 0, 0, 1], [4, 7, 9, 4], timestamps=[3, 1, 3, 2])
    >>> later_pairs(log).tolist()
    [0, 2, 0, 0]
    """
    order, times = time_order(pairs), _times(pairs)
    users, when = pairs.users[order], times[order]
    last = np.ones(len(order), dtype=bool)  # of the user's pairs of this time
    last[:-1] = (users[1:] != users[:-1]) | (when[1:] != when[:-1])
    ends = np.flatnonzero(last)
    group = np.cumsum(last) - last
    found = np.empty(len(order), dtype=np.int64)
    found[order] = pairs.indptr[users + 1] - 1 - ends[group]
    return found


def recency_counts(pairs: Interactions, exponent: float) -> np.ndarray | None:
    """float32 [n_pairs]: `(1 + r)^-exponent` for a pair with r later ones; None where all count the same."""
    if not exponent or pairs.timestamps is None:
        return None
    return ((1.0 + later_pairs(pairs)) ** -exponent).astype(np.float32)


def check_times(pairs: Interactions, what: str) -> None:
    if pairs.timestamps is None:
        raise InputError(f"{what} needs timestamps; name their column with timestamp= or --timestamp.")


def _times(pairs: Interactions) -> np.ndarray:
    assert pairs.timestamps is not None
    return np.where(np.isnan(pairs.timestamps), -np.inf, pairs.timestamps)
