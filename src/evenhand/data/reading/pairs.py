"""From rows of a log to unique pairs in order, within a few bytes a row.

A pair becomes one number, user * n_items + item, and those are sorted in place; where ratings or times must
follow, the row's number is packed into the same 64 bits if it fits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evenhand.data.reading.codes import from_the_end, steps

_KEY_BITS = 63


class Pairs(NamedTuple):
    """Unique pairs as CSR rows over users, sorted by item."""

    indptr: np.ndarray
    """int64 [n_users + 1]"""
    items: np.ndarray
    """int32 [n_pairs]"""
    ratings: np.ndarray | None
    """float32 [n_pairs]"""
    timestamps: np.ndarray | None
    """float64 [n_pairs]"""
    collapsed: int
    """Rows that repeated a pair."""


def pair_keys(users: np.ndarray, items: np.ndarray, n_items: int) -> np.ndarray:
    """int64 [n]: one number a pair."""
    key = np.multiply(users, n_items, dtype=np.int64)
    key += items
    return key


def keys_instead(users: np.ndarray, items: np.ndarray, n_items: int) -> np.ndarray:
    """The same in the place of `users` and `items`, which are empty afterwards; see `from_the_end`."""
    key = np.empty(len(users), dtype=np.int64)
    for part in from_the_end(users, items):
        key[part] = pair_keys(users[part], items[part], n_items)
    return key


def collect(
    key: np.ndarray,
    n_users: int,
    n_items: int,
    ratings: np.ndarray | None = None,
    timestamps: np.ndarray | None = None,
) -> Pairs:
    """Unique pairs out of keys, which are used up; of repeated ones the latest stays, or the last.

    A missing timestamp (NaN) counts as the earliest.
    """
    rows = len(key)
    if ratings is None and timestamps is None:
        order = None
        key.sort()
        last = _last_of_each(key)
    else:
        key, order = _sorted_with_order(key, n_users * n_items)
        last = _last_of_each(key)
        if timestamps is not None and not last.all():
            _latest_last(key, order, last, timestamps)
    if not last.all():
        key = _only(key, last)
        order = None if order is None else _only(order, last)
    indptr = np.searchsorted(key, np.arange(n_users + 1) * n_items)
    collapsed = rows - len(key)
    items = np.empty(len(key), dtype=np.int32)
    for part in from_the_end(key):
        items[part] = key[part] % max(n_items, 1)
    return Pairs(
        indptr,
        items,
        None if ratings is None or order is None else _taken(ratings, order, np.float32),
        None if timestamps is None or order is None else _taken(timestamps, order, np.float64),
        collapsed,
    )


def _sorted_with_order(key: np.ndarray, n_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys in order, and the row that each comes from; rows of one key in the order they came in."""
    bits = max(1, len(key).bit_length())
    if n_keys.bit_length() + bits > _KEY_BITS:
        order = np.argsort(key, kind="stable")
        return key[order], order
    for part in steps(len(key)):
        key[part] = (key[part] << bits) | np.arange(part.start, part.stop)
    key.sort()
    order = np.empty(len(key), dtype=np.int32 if bits < 32 else np.int64)
    for part in steps(len(key)):
        order[part] = key[part] & ((1 << bits) - 1)
        key[part] >>= bits
    return key, order


def _last_of_each(key: np.ndarray) -> np.ndarray:
    """bool [n]: whether the next key is another one."""
    last = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=last[:-1])
    return last


def _latest_last(key: np.ndarray, order: np.ndarray, last: np.ndarray, when: np.ndarray) -> None:
    """Bring the rows of each repeated key into the order of their times, in place."""
    repeated = ~last
    repeated[1:] |= ~last[:-1]
    places = np.flatnonzero(repeated)
    rows = order[places]
    times = when[rows]
    # By itself numpy sorts NaN last, which would let a missing time win over every known one.
    order[places] = rows[np.lexsort((times, ~np.isnan(times), key[places]))]


def _only(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The values that the mask marks, moved together in the memory of the others."""
    end = 0
    for part in steps(len(values)):
        kept = values[part][mask[part]]
        values[end : end + len(kept)] = kept
        end += len(kept)
    values.resize(end, refcheck=False)
    return values


def _taken(values: np.ndarray, order: np.ndarray, dtype: type) -> np.ndarray:
    out: np.ndarray = np.empty(len(order), dtype=dtype)
    for part in steps(len(order)):
        out[part] = values[order[part]]
    return out
