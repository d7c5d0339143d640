"""Arrays that lie on many processes: exchanged, gathered, added up, and the n-th smallest of all their numbers.

In a world of one process nothing is sent, and the same code does the same for that process alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import pyarrow as pa

from evenhand.utils.memory import slices_within
from evenhand.utils.world import World

_TOGETHER = 2**24
"""Bytes up to which columns of all ranks travel in one message: more would be held twice."""
_DIGIT = 16
"""Bits that are counted at a time: four rounds of 65,536 counts find a number of 64 bits."""


def exchange_arrays(world: World, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Send parts[r], all of one dtype, to rank r; back comes what every rank had for this one."""
    if world.size == 1:
        return list(parts)
    import torch

    return [got.numpy() for got in world.exchange([torch.from_numpy(np.ascontiguousarray(part)) for part in parts])]


def exchange_ids(world: World, parts: Sequence[pa.Array]) -> list[pa.Array]:
    """Send parts[r] to rank r; back comes what every rank had for this one. All are of one type, int64 or string."""
    if world.size == 1:
        return list(parts)
    import torch

    schema = pa.schema({"id": parts[0].type})
    sent = [np.frombuffer(pa.record_batch([part], schema=schema).serialize(), dtype=np.uint8) for part in parts]
    came = world.exchange([torch.from_numpy(one.copy()) for one in sent])
    return [pa.ipc.read_record_batch(pa.py_buffer(one.numpy().tobytes()), schema).column(0) for one in came]


def gather_columns(world: World, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns [n] or [n, m] of any dtypes, those of all ranks one below the other; small ones travel together."""
    import torch

    n = len(next(iter(columns.values())))
    send = [n] * world.size
    counts = world.counts(send)
    limit = _TOGETHER // max(1, sum(counts.receive))
    rows = {name: np.ascontiguousarray(column).reshape(n, prod(column.shape[1:])) for name, column in columns.items()}
    widths = np.array([of_one.shape[1] * of_one.itemsize for of_one in rows.values()])
    names, found = list(columns), {}
    for part in slices_within(widths, limit):
        message = names[part]
        packed = np.concatenate([rows[name].view(np.uint8) for name in message], axis=1)
        came = world.swap(torch.from_numpy(packed).repeat(world.size, 1), send, counts).numpy()
        ends = np.cumsum([rows[name].shape[1] * rows[name].itemsize for name in message])[:-1]
        for name, bytes_of in zip(message, np.split(came, ends, axis=1), strict=True):
            column = columns[name]
            found[name] = np.ascontiguousarray(bytes_of).view(column.dtype).reshape(len(came), *column.shape[1:])
    return found


def total(world: World, counts: np.ndarray) -> np.ndarray:
    """The sum of integers over ranks, everywhere."""
    if world.size == 1:
        return counts
    import torch

    return world.total(torch.from_numpy(np.array(counts, dtype=np.int64))).numpy()


def total_count(world: World, n: int) -> int:
    """The sum of one number of each rank, everywhere."""
    return int(total(world, np.array([n], dtype=np.int64))[0])


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
        if total_count(world, len(left)) <= n:
            chosen[left] = True
            break
        border, below = nth_smallest(world, column[left], n)
        chosen[left[column[left] < border]] = True
        left, n = left[column[left] == border], n - below
    return chosen


def as_ordered(numbers: np.ndarray) -> np.ndarray:
    """uint64: numbers, none of them NaN, taken as float64, as integers in the same order."""
    bits = (numbers.astype(np.float64) + 0.0).view(np.uint64)  # adding nothing makes -0.0 and 0.0 the same
    sign = np.uint64(2**63)
    return np.where(bits & sign, ~bits, bits | sign)


def from_ordered(value: int) -> float:
    """The float64 that `as_ordered` made this of."""
    sign = 2**63
    bits = value ^ sign if value & sign else ~value & (2**64 - 1)
    return float(np.uint64(bits).view(np.float64))
