"""The n-th smallest of numbers that lie on many processes, by counting digits; in one process by the same counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.data.reading.wire import total
from evenhand.utils.world import World

_DIGIT = 16
"""Bits that are counted at a time: four rounds of 65,536 counts find a number of 64 bits."""


def nth_smallest(world: World, values: np.ndarray, n: int) -> tuple[int, int]:
    """(the n-th smallest, from 0, of the uint64 numbers of all ranks; how many are smaller than that one).

    >>> nth_smallest(World.alone(), np.array([5, 2**40, 5, 1], dtype=np.uint64), 2)
    (5, 1)
    """
    found, below = 0, 0
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        digits = (values >> np.uint64(shift)) & np.uint64(2**_DIGIT - 1)
        ends = np.cumsum(total(world, np.bincount(digits.astype(np.int64), minlength=2**_DIGIT)))
        digit = int(np.searchsorted(ends, n - below, side="right"))
        found |= digit << shift
        below += int(ends[digit - 1]) if digit else 0
        values = values[digits == digit]
    return found, below


def first_rows(world: World, n: int, columns: Sequence[np.ndarray]) -> np.ndarray:
    """bool [rows of this rank]: the n rows of all ranks that come first, sorted by uint64 columns.

    The first column counts most; no two rows agree in all of them.

    >>> first_rows(World.alone(), 2, [np.array([7, 3, 7], dtype=np.uint64), np.array([1, 0, 2], dtype=np.uint64)])
    array([ True,  True, False])
    """
    chosen = np.zeros(len(columns[0]), dtype=bool)
    left = np.arange(len(chosen))
    for column in columns:
        if n == 0:
            break
        if int(total(world, np.array([len(left)]))[0]) <= n:
            chosen[left] = True
            break
        border, below = nth_smallest(world, column[left], n)
        chosen[left[column[left] < border]] = True
        left, n = left[column[left] == border], n - below
    return chosen


def as_ordered(numbers: np.ndarray) -> np.ndarray:
    """uint64: numbers of any kind, none of them NaN, as integers in the same order."""
    if numbers.dtype.kind != "f":
        return numbers.astype(np.uint64)
    bits = (numbers.astype(np.float64) + 0.0).view(np.uint64)  # adding nothing makes -0.0 and 0.0 the same
    sign = np.uint64(2**63)
    return np.where(bits & sign, ~bits, bits | sign)


def from_ordered(value: int) -> float:
    """The float64 that `as_ordered` made this of."""
    sign = 2**63
    bits = value ^ sign if value & sign else ~value & (2**64 - 1)
    return float(np.uint64(bits).view(np.float64))
