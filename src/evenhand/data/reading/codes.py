"""From a log read in batches to unique pairs in order, within a few bytes a row.

Ids become codes, four bytes a row, batch by batch; the batches' dictionaries are merged now and then. A pair of
codes becomes one number, user * n_items + item, and those are sorted in place; where ratings or times must follow,
the row's number is packed into the same 64 bits if it fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

STEP = 2**20
"""Rows that are worked on at once, so that what is made on the way stays small."""
_PENDING = 2**19
"""Ids of batches that may wait to be merged; as many as are known already where these are more."""


class Growing:
    """Numbers of one dtype to which more are appended; the array is extended in place."""

    def __init__(self, dtype: type) -> None:
        self._room: np.ndarray = np.empty(0, dtype=dtype)
        self._end = 0

    def __len__(self) -> int:
        return self._end

    def append(self, values: np.ndarray) -> None:
        begin, self._end = self._end, self._end + len(values)
        if self._end > len(self._room):
            # The system extends large arrays without a copy.
            self._room.resize(self._end + STEP, refcheck=False)
        self._room[begin : self._end] = values

    def part(self, begin: int, end: int) -> np.ndarray:
        """Some of them, to be changed in place; of no use once more are appended."""
        return self._room[begin:end]

    def finish(self) -> np.ndarray:
        """All of them; the array is the caller's."""
        self._room.resize(self._end, refcheck=False)
        return self._room


class Codes:
    """Codes of the rows so far over the ids so far, which stand in the order of their first appearance."""

    def __init__(self) -> None:
        self._codes = Growing(np.int32)
        self._values: pa.Array | None = None
        self._pending: list[tuple[int, pa.Array]] = []
        """Batches whose codes are still their own: where each begins, and its dictionary."""

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, column: pa.Array) -> None:
        """Take in the next rows, of one and the same type throughout."""
        if pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
        if str(column.type) == "string_view":
            column = column.cast(pa.large_string())
        if pa.types.is_nested(column.type):
            # No id at all, which is reported when the ids are looked at.
            column = pa.DictionaryArray.from_arrays(pa.nulls(len(column), pa.int32()), column[:0])
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        self._pending.append((len(self), column.dictionary))
        self._codes.append(np.asarray(column.indices.cast(pa.int32()).fill_null(-1)))
        known = 0 if self._values is None else len(self._values)
        if sum(len(values) for _, values in self._pending) > max(_PENDING, known):
            self._merge()

    def finish(self) -> tuple[pa.Array, np.ndarray]:
        """The ids and an int32 code for each row, -1 where there is none; the array is the caller's."""
        self._merge()
        return pa.array([]) if self._values is None else self._values, self._codes.finish()

    def _merge(self) -> None:
        known = [] if self._values is None else [self._values]
        parts = [*known, *(values for _, values in self._pending)]
        if len(parts) > 1:
            # The order is that of first appearance, so earlier codes stay as they are.
            merged = pa.concat_arrays(parts).dictionary_encode("encode")
            self._values = merged.dictionary
            new, place = np.asarray(merged.indices), sum(map(len, known))
            ends = [*(begin for begin, _ in self._pending[1:]), len(self)]
            for (begin, values), end in zip(self._pending, ends, strict=True):
                recode(self._codes.part(begin, end), new[place : place + len(values)])
                place += len(values)
            pa.default_memory_pool().release_unused()
        elif parts:
            self._values = parts[0]
        self._pending = []


def recode(codes: np.ndarray, new: np.ndarray) -> None:
    """Replace each code by its new one, in place; -1 stays."""
    new = np.append(new, -1).astype(np.int32)
    for part in steps(len(codes)):
        codes[part] = new[codes[part]]


def used(codes: np.ndarray, size: int) -> np.ndarray:
    """bool [size]: which of 0…size-1 occur among the codes."""
    found = np.zeros(size + 1, dtype=bool)
    for part in steps(len(codes)):
        found[codes[part]] = True
    return found[:size]


def steps(n: int) -> Iterator[slice]:
    """Consecutive slices of n rows, a moderate number each."""
    for begin in range(0, n, STEP):
        yield slice(begin, min(begin + STEP, n))


def from_the_end(*arrays: np.ndarray) -> Iterator[slice]:
    """The same from the last to the first; rows that were seen are given back to the system.

    The arrays must be of one length, own their memory, and be of no further use to anyone.
    """
    for begin in reversed(range(0, len(arrays[0]), STEP)):
        yield slice(begin, len(arrays[0]))
        for array in arrays:
            array.resize(begin, refcheck=False)


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
    repeats: int
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
    key: np.ndarray, n_users: int, n_items: int, ratings: np.ndarray | None = None, timestamps: np.ndarray | None = None
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
    repeats = rows - len(key)
    items = np.empty(len(key), dtype=np.int32)
    for part in from_the_end(key):
        items[part] = key[part] % max(n_items, 1)
    return Pairs(indptr, items, _taken(ratings, order, np.float32), _taken(timestamps, order, np.float64), repeats)


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


def _taken(values: np.ndarray | None, order: np.ndarray | None, dtype: type) -> np.ndarray | None:
    if values is None or order is None:
        return None
    out: np.ndarray = np.empty(len(order), dtype=dtype)
    for part in steps(len(order)):
        out[part] = values[order[part]]
    return out
