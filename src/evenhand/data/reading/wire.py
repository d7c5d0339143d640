"""Ids on their way between processes: as bytes, and which process an id belongs to.

An id belongs to the process that its hash names, so that whoever meets it knows whom to ask. Ids are compared there as
they are, so two of one hash do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.utils.world import World

_ODD = 0x9E3779B97F4A7C15
_AT_ONCE = 2**14
"""Texts that are hashed together: on the way every byte takes some thirty."""
_TOGETHER = 2**24
"""Bytes up to which columns of all ranks travel in one message: more would be held twice."""


def owners(ids: pa.Array, size: int) -> np.ndarray:
    """int64 [n]: the rank that each id belongs to; none of the ids is null or empty.

    >>> owners(pa.array(["a", "b", "a"]), 4).tolist(), owners(pa.array([7, -7]), 1).tolist()
    ([1, 0, 1], [0, 0])
    """
    with np.errstate(over="ignore"):
        if pa.types.is_integer(ids.type):
            bits = ids.to_numpy().view(np.uint64)
        else:
            some = [_polynomials(ids.slice(begin, _AT_ONCE)) for begin in range(0, len(ids), _AT_ONCE)]
            bits = np.concatenate([np.empty(0, dtype=np.uint64), *some])
        bits = (bits ^ (bits >> np.uint64(31))) * np.uint64(_ODD)
    return ((bits >> np.uint64(33)) % np.uint64(size)).astype(np.int64)


def exchange_ids(world: World, parts: Sequence[pa.Array]) -> list[pa.Array]:
    """Send parts[r] to rank r; back comes what every rank had for this one. All are of one type, int64 or string."""
    if world.size == 1:
        return list(parts)
    kind = parts[0].type
    return [_unpacked(packed, kind) for packed in world.exchange([_packed(part) for part in parts])]


def exchange_arrays(world: World, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same for numbers of one dtype."""
    if world.size == 1:
        return list(parts)
    import torch

    return [got.numpy() for got in world.exchange([torch.from_numpy(np.ascontiguousarray(part)) for part in parts])]


def gather_columns(world: World, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns [n] or [n, m] of any dtypes, those of all ranks one below the other; small ones travel together."""
    import torch

    n = len(next(iter(columns.values())))
    send = [n] * world.size
    counts = world.counts(send)
    limit = _TOGETHER // max(1, sum(counts.receive))
    rows = {name: np.ascontiguousarray(column).reshape(n, prod(column.shape[1:])) for name, column in columns.items()}
    widths = np.array([of_one.shape[1] * of_one.itemsize for of_one in rows.values()])
    found = {}
    for message in np.split(np.array(list(columns)), _breaks(widths, limit)):
        packed = np.concatenate([rows[name].view(np.uint8) for name in message], axis=1)
        came = world.swap(torch.from_numpy(packed).repeat(world.size, 1), send, counts).numpy()
        ends = np.cumsum([rows[name].shape[1] * rows[name].itemsize for name in message])[:-1]
        for name, part in zip(message.tolist(), np.split(came, ends, axis=1), strict=True):
            column = columns[name]
            found[name] = np.ascontiguousarray(part).view(column.dtype).reshape(len(came), *column.shape[1:])
    return found


def _breaks(widths: np.ndarray, limit: int) -> list[int]:
    """Where to begin a new message, so that none is wider than the limit unless a single column is.

    >>> _breaks(np.array([8, 8, 80, 8]), 16)
    [2, 3]
    """
    found, begin = [], 0
    for place in range(1, len(widths)):
        if widths[begin : place + 1].sum() > limit:
            found.append(place)
            begin = place
    return found


def total(world: World, counts: np.ndarray) -> np.ndarray:
    """The sum of integers over ranks, everywhere."""
    if world.size == 1:
        return counts
    import torch

    return world.total(torch.from_numpy(np.array(counts, dtype=np.int64))).numpy()


def cut(values: pa.Array, lengths: np.ndarray) -> list[pa.Array]:
    """Consecutive slices of these lengths."""
    ends = np.cumsum(lengths)
    return [values.slice(end - n, n) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _texts(ids: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """(int32 [n + 1]: where each text begins and ends, its bytes as uint8)."""
    _, offsets, content = ids.buffers()
    if not len(ids) or content is None:
        return np.zeros(len(ids) + 1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    return ends - ends[0], np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]


def _polynomials(ids: pa.Array) -> np.ndarray:
    """uint64 [n]: the bytes of each text as the coefficients of a polynomial, at an odd point."""
    ends, content = _texts(ids)
    lengths = np.diff(ends)
    powers = np.cumprod(np.full(lengths.max(), _ODD, dtype=np.uint64))
    place = np.arange(len(content)) - np.repeat(ends[:-1], lengths)
    return np.add.reduceat(content * powers[place], ends[:-1])


def _packed(ids: pa.Array) -> Tensor:
    """uint8: integers as they are; of texts how many, how long, and their bytes."""
    import torch

    if pa.types.is_integer(ids.type):
        return torch.from_numpy(ids.to_numpy().copy().view(np.uint8))
    ends, content = _texts(ids)
    head = np.array([len(ids)], dtype=np.int64).view(np.uint8)
    return torch.from_numpy(np.concatenate([head, ends.astype(np.int32).view(np.uint8), content]))


def _unpacked(packed: Tensor, kind: pa.DataType) -> pa.Array:
    content = packed.numpy()
    if pa.types.is_integer(kind):
        return pa.array(np.frombuffer(content.tobytes(), dtype=np.int64))
    n = int(content[:8].copy().view(np.int64)[0])
    begin = 8 + 4 * (n + 1)
    ends, texts = (pa.py_buffer(part.tobytes()) for part in (content[8:begin], content[begin:]))
    return pa.StringArray.from_buffers(n, ends, texts)
