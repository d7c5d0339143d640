"""One column of ids, piece by piece, as codes: four bytes a row, whatever the ids are.

A log is read in pieces, and no piece knows the ids of the others; their dictionaries are merged now and then.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

STEP = 2**20
"""Rows that are worked on at once, so that what is made on the way stays small."""
_PENDING = 2**19
"""Ids of pieces that may wait to be merged; as many as are known already where these are more."""


class Codes:
    """Codes of the rows so far over the ids so far, which stand in the order of their first appearance."""

    def __init__(self) -> None:
        self._codes = np.empty(0, dtype=np.int32)
        self._rows = 0
        self._values: pa.Array | None = None
        self._pending: list[tuple[int, pa.Array]] = []
        """Pieces whose codes are still their own: where each begins, and its dictionary."""

    def __len__(self) -> int:
        return self._rows

    def add(self, column: pa.Array) -> None:
        """Take in the next rows, of one and the same type throughout."""
        if pa.types.is_floating(column.type):
            column = column.cast(pa.float64())
        if str(column.type) == "string_view":
            column = column.cast(pa.large_string())
        if pa.types.is_nested(column.type):
            # No id at all, which is told when the ids are looked at.
            column = pa.DictionaryArray.from_arrays(pa.nulls(len(column), pa.int32()), column[:0])
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        begin, self._rows = self._rows, self._rows + len(column)
        if self._rows > len(self._codes):
            # The system extends large arrays without a copy.
            self._codes.resize(self._rows + STEP, refcheck=False)
        self._codes[begin : self._rows] = column.indices.cast(pa.int32()).fill_null(-1)
        self._pending.append((begin, column.dictionary))
        known = 0 if self._values is None else len(self._values)
        if sum(len(values) for _, values in self._pending) > max(_PENDING, known):
            self._merge()

    def finish(self) -> tuple[pa.Array, np.ndarray]:
        """The ids and an int32 code for each row, -1 where there is none; the array is the caller's."""
        self._merge()
        self._codes.resize(self._rows, refcheck=False)
        return pa.array([]) if self._values is None else self._values, self._codes

    def _merge(self) -> None:
        known = [] if self._values is None else [self._values]
        parts = [*known, *(values for _, values in self._pending)]
        if len(parts) > 1:
            # The order is that of first appearance, so earlier codes stay as they are.
            merged = pa.concat_arrays(parts).dictionary_encode("encode")
            self._values = merged.dictionary
            new, place = np.asarray(merged.indices), sum(map(len, known))
            ends = [*(begin for begin, _ in self._pending[1:]), self._rows]
            for (begin, values), end in zip(self._pending, ends, strict=True):
                recode(self._codes[begin:end], new[place : place + len(values)])
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
