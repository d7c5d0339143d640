"""One sorted vocabulary out of the ids that many processes meet, while no process holds them all.

Every rank sends the ids of a piece of the log to their owners (`wire.owners`), who collect them. At the end the owners
sort all ids among themselves, each rank one range of them (a sample sort), and answer piece by piece with the place of
every id in the sorted whole.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import STEP, Codes, recode
from evenhand.data.reading.wire import cut, exchange_arrays, exchange_ids, owners
from evenhand.utils.world import Blocks, World

_SAMPLES = 64
"""Ids that each rank shows for every range that is sought: ranges then differ by some ten percent."""


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
            self._room.resize(self._end + STEP, refcheck=False)
        self._room[begin : self._end] = values

    def finish(self) -> np.ndarray:
        """All of them; the array is the caller's."""
        self._room.resize(self._end, refcheck=False)
        return self._room


class SharedIds:
    """The ids of one column of a log, and for every row of this rank which of them it has."""

    def __init__(self, world: World, kind: pa.DataType) -> None:
        self.world, self.kind = world, kind
        self._rows, self._owned = Growing(np.int32), Codes()
        self._pieces: list[tuple[int, np.ndarray, np.ndarray]] = []
        """Of each piece its rows, the ids that went to each rank, and those that came from each rank."""

    def add(self, codes: np.ndarray, ids: pa.Array) -> None:
        """Take in the next rows: codes over ids, every one of which occurs; all ranks call this together."""
        ids = ids.cast(self.kind)
        to = owners(ids, self.world.size)
        order = np.argsort(to, kind="stable")
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order))
        self._rows.append(place[codes])
        sent = np.bincount(to, minlength=self.world.size)
        came = exchange_ids(self.world, cut(ids.take(pa.array(order)), sent))
        self._owned.add(pa.concat_arrays(came))
        self._pieces.append((len(codes), sent, np.array([len(part) for part in came])))

    def finish(self) -> tuple[np.ndarray, SortedIds]:
        """(int32: for every row of this rank the place of its id among all ids; the ids)."""
        values, owned = self._owned.finish()
        ids, place = SortedIds.of(self.world, values.cast(self.kind))
        recode(owned, place)
        rows, end = self._rows.finish(), len(self._rows)
        for n_rows, _, came in reversed(self._pieces):
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
        ends = np.array([bisect_left(_Keys(mine), _key(border)) for border in _borders(world, mine)], dtype=np.int64)
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


class _Keys:
    """Sorted ids as `bisect` wants them."""

    def __init__(self, ids: pa.Array) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, place: int) -> int | bytes:
        return _key(self._ids[place].as_py())
