"""One sorted vocabulary out of the ids that many processes meet, while no process holds them all.

An id belongs to the process that its hash names (`owners`), so that whoever meets it knows whom to ask; ids are
compared there as they are, so two of one hash do no harm. Every rank sends the ids of a piece of the log to their
owners, who collect them. At the end the owners sort all ids among themselves, each rank one range of them (a sample
sort), and answer piece by piece with the place of every id in the sorted whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import Codes, Growing, recode
from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import Blocks, World

_SAMPLES = 64
"""Ids that each rank shows for every range that is sought: ranges then differ by some ten percent."""
_ODD = 0x9E3779B97F4A7C15
_AT_ONCE = 2**14
"""Texts that are hashed together: on the way every byte takes some thirty."""


class SharedIds:
    """The ids of one column of a log, and for every row of this rank which of them it has."""

    def __init__(self, world: World, kind: pa.DataType) -> None:
        self.world, self.kind = world, kind
        self._rows, self._owned = Growing(np.int32), Codes()
        self._pieces: list[tuple[int, np.ndarray]] = []
        """Of each piece its rows, and the ids that came from each rank."""

    def add(self, codes: np.ndarray, ids: pa.Array) -> None:
        """Take in the next rows: codes over ids, every one of which occurs; all ranks call this together."""
        ids = ids.cast(self.kind)
        to = owners(ids, self.world.size)
        order = np.argsort(to, kind="stable")
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order))
        self._rows.append(place[codes])
        came = exchange_ids(self.world, cut(ids.take(pa.array(order)), np.bincount(to, minlength=self.world.size)))
        self._owned.add(pa.concat_arrays(came))
        self._pieces.append((len(codes), np.array([len(part) for part in came])))

    def finish(self) -> tuple[np.ndarray, SortedIds]:
        """(int32: for every row of this rank the place of its id among all ids; the ids)."""
        values, owned = self._owned.finish()
        ids, place = SortedIds.of(self.world, values.cast(self.kind))
        recode(owned, place)
        rows, end = self._rows.finish(), len(self._rows)
        for n_rows, came in reversed(self._pieces):
            answers = np.split(owned[len(owned) - came.sum() :].copy(), np.cumsum(came)[:-1])
            owned.resize(len(owned) - came.sum(), refcheck=False)
            recode(rows[end - n_rows : end], np.concatenate(exchange_arrays(self.world, answers)))
            end -= n_rows
        self._pieces = []
        return rows, ids


class SortedIds:
    """All ids in order, of which every rank holds one range."""

    def __init__(self, world: World, part: pa.Array) -> None:
        self.world, self._part = world, part
        lengths = world.gathered(len(part))
        self.first, self.total = sum(lengths[: world.rank]), sum(lengths)

    @staticmethod
    def of(world: World, values: pa.Array) -> tuple[SortedIds, np.ndarray]:
        """From ids of which each is on one rank only; and for each of them its place in the order, int64."""
        order = pc.sort_indices(values)
        mine = values.take(order)
        places = [bisect_left(mine, _key(border), key=_key_of) for border in _borders(world, mine)]
        ends = np.array(places, dtype=np.int64)
        came = exchange_ids(world, cut(mine, np.diff(ends, prepend=0, append=len(mine))))
        merged = pa.concat_arrays(came)
        sorting = np.asarray(pc.sort_indices(merged))
        ids = SortedIds(world, merged.take(pa.array(sorting)))
        answers = np.empty(len(merged), dtype=np.int64)
        answers[sorting] = ids.first + np.arange(len(merged))
        back = exchange_arrays(world, np.split(answers, np.cumsum([len(part) for part in came])[:-1]))
        place = np.empty(len(values), dtype=np.int64)
        place[np.asarray(order)] = np.concatenate(back)
        return ids, place

    def everywhere(self) -> pa.Array:
        """All of them, on every rank."""
        return pa.concat_arrays(exchange_ids(self.world, [self._part] * self.world.size))

    def placed(self, blocks: Blocks) -> pa.Array:
        """Those that a placement gives to this rank, in order."""
        to = blocks.owner(self.first + np.arange(len(self._part)))
        parts = [self._part.filter(pa.array(to == rank)) for rank in range(self.world.size)]
        return pa.concat_arrays(exchange_ids(self.world, parts))


def _borders(world: World, mine: pa.Array) -> list[int | str]:
    """Ids that divide all ids into one range for each rank, of about the same size; the same on all ranks."""
    places = np.unique(np.linspace(0, len(mine), _SAMPLES * world.size, endpoint=False).astype(np.int64))
    shown = mine.take(pa.array(places[: len(mine)]))
    samples = sorted((one for part in world.gathered(shown.to_pylist()) for one in part), key=_key)
    return [samples[len(samples) * rank // world.size] for rank in range(1, world.size)] if samples else []


def _key(value: int | str) -> int | bytes:
    """By which ids are ordered: numbers by size, texts by their bytes, as Arrow does it."""
    return value.encode() if isinstance(value, str) else value


def _key_of(scalar: pa.Scalar) -> int | bytes:
    return _key(scalar.as_py())


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
    import torch

    schema = pa.schema({"id": parts[0].type})
    sent = [np.frombuffer(pa.record_batch([part], schema=schema).serialize(), dtype=np.uint8) for part in parts]
    came = world.exchange([torch.from_numpy(one.copy()) for one in sent])
    return [pa.ipc.read_record_batch(pa.py_buffer(one.numpy().tobytes()), schema).column(0) for one in came]


def cut(values: pa.Array, lengths: np.ndarray) -> list[pa.Array]:
    """Consecutive slices of these lengths."""
    ends = np.cumsum(lengths)
    return [values.slice(end - n, n) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _polynomials(ids: pa.Array) -> np.ndarray:
    """uint64 [n]: the bytes of each text as the coefficients of a polynomial, at an odd point."""
    _, offsets, content = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    texts, starts, lengths = (
        np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]],
        ends[:-1] - ends[0],
        np.diff(ends),
    )
    powers = np.cumprod(np.full(lengths.max(), _ODD, dtype=np.uint64))
    place = np.arange(len(texts)) - np.repeat(starts, lengths)
    return np.add.reduceat(texts * powers[place], starts)
