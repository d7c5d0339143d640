"""Reads a folder or object store of parquet files by many processes, of which none holds the whole log.

Every rank reads some row groups, in pieces, and sends their ids to the ranks that the ids' hashes name (`owners`). At
the end these sort all ids among themselves, each one range of them (a sample sort), and answer with the place of every
id. Then each pair goes to the rank of its user, where repeats are merged: the log is that of `read_interactions`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import (
    ReadOptions,
    clean_ids,
    compacted,
    no_such_rating,
    skipped,
    to_numbers,
    wanted_rows,
)
from evenhand.data.reading.codes import Codes, Growing, Pairs, collect, from_the_end, pair_keys, recode, steps
from evenhand.data.reading.columns import Column, Loaded, NoRowsError, faults_reported, source_label, without_folder
from evenhand.data.reading.read import Footer, pieces
from evenhand.data.reading.sources import PARQUET_ENDINGS, File, find_files
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import exchange_arrays, exchange_ids, total_count
from evenhand.utils.text import count
from evenhand.utils.world import Blocks, World

Cleaned = TypeVar("Cleaned")
_NUMBERS = {"rating": np.float32, "timestamp": np.float64}
_SAMPLES = 64
"""Ids that each rank shows for every range that is sought: ranges then differ by some ten percent."""
_ODD = 0x9E3779B97F4A7C15
_AT_ONCE = 2**14
"""Texts that are hashed together: on the way every byte takes some thirty."""


def read_spread(source: Any, world: World, **options: Any) -> SpreadLog:
    """What `read_interactions` reads, spread over the ranks of a world, all of which call this together."""
    asked = ReadOptions(**options)
    if asked.weight is not None:
        raise InputError("amounts of a pair (weight) are summed in one process; read the log in one, or without it.")
    columns = asked.columns
    plan = Shares.of(source, world, columns)
    unit = None if asked.since is None and asked.until is None else plan.largest_time(columns[3])
    users, items = (SharedIds(world, plan.id_types[role]) for role in ("user", "item"))
    numbers = {role: Growing(kind) for role, kind in _NUMBERS.items() if role in plan.names}
    left_out: Counter[str] = Counter()
    for clean in plan.in_step(columns, lambda piece: _cleaned(piece, asked, plan.id_types, unit)):
        if clean is not None:
            left_out.update(clean.left_out)
            for role, values in numbers.items():
                values.append(clean.numbers[role])
        nothing = np.empty(0, dtype=np.int32), pa.array([], pa.string())
        users.add(*(nothing if clean is None else clean.users))
        items.add(*(nothing if clean is None else clean.items))
    added_up: Counter[str] = Counter()  # over all ranks, in the order of the first that counted anything
    for one in world.gathered(dict(left_out)):
        added_up.update(one)
    cleaned = skipped({why: n for why, n in added_up.items() if not why.startswith("_")})
    if asked.min_rating is not None and not added_up["_rated"]:
        raise no_such_rating(plan.label, asked.min_rating)
    if not added_up["_kept"]:
        raise InputError(f"no row of {plan.label} is left: {'; '.join(cleaned)}.")
    suffix = "s_kept" if cleaned else "s"
    kept = {f"{role}s": numbers[role].finish() for role in _NUMBERS if added_up[f"_{role}{suffix}"]}
    user_rows, user_ids = users.finish()
    item_rows, item_ids = items.finish()
    asked.check_items(item_ids.total, plan.label)
    if max(user_ids.total, item_ids.total) >= 2**31:
        raise InputError(
            f"{plan.label} holds more than 2 billion users or items, which is more than evenhand can index."
        )
    blocks = Blocks.of_users(user_ids.total, world.size)
    pairs = _brought_home(world, blocks, item_ids.total, user_rows, item_rows, kept)
    pairs = pairs._replace(repeats=total_count(world, pairs.repeats))
    pa.default_memory_pool().release_unused()
    ids = user_ids.placed(blocks), item_ids.everywhere()
    return SpreadLog(world, blocks, Interactions.of_rows(pairs, *ids, plan.notes, cleaned))


class _Clean(NamedTuple):
    """The rows of a piece that count."""

    users: tuple[np.ndarray, pa.Array]
    items: tuple[np.ndarray, pa.Array]
    numbers: dict[str, np.ndarray]
    left_out: dict[str, int]
    """By reason, how many rows do not count; what begins with an underscore counts other things."""


def _cleaned(piece: Loaded, asked: ReadOptions, id_types: Mapping[str, pa.DataType], unit: np.ndarray | None) -> _Clean:
    """`id_types` are int64 or string, as in the whole log; `unit` is a time of it, which says in what unit they are."""
    coded = {role: clean_ids(piece, role, strict=asked.strict) for role in ("user", "item")}
    keep = np.ones(len(piece), dtype=bool)
    for codes, ids in coded.values():
        keep &= np.append(np.asarray(ids.is_valid()), False)[codes]
    there = {c.role: to_numbers(piece, c.role, c.kind) for c in asked.columns[2:] if c.role in piece.table.column_names}
    values: dict[str, np.ndarray | None] = {role: column.to_numpy() for role, column in there.items()}
    every = dict.fromkeys(_NUMBERS) | values
    left_out = wanted_rows(piece, keep, every, asked, unit)
    left_out["_kept"] = int(keep.sum())
    if asked.min_rating is not None and (ratings := values.get("rating")) is not None:
        left_out["_rated"] = int((ratings >= asked.min_rating).sum())
    numbers = {}
    for role, kind in _NUMBERS.items():
        found = np.full(len(piece), np.nan) if values.get(role) is None else values[role]
        with np.errstate(over="ignore"):  # beyond its range a rating is infinite
            numbers[role] = found[keep].astype(kind)  # type: ignore[index]
        left_out[f"_{role}s"] = len(there[role]) - there[role].null_count if role in there else 0
        left_out[f"_{role}s_kept"] = int((~np.isnan(numbers[role])).sum())
    users, items = (compacted(codes[keep], ids) for codes, ids in coded.values())
    for role, (_, ids) in (("user", users), ("item", items)):
        if len(ids) and ids.type != id_types[role]:  # unsigned, and one process would make texts of all of them
            raise InputError(f"{piece.called(role)} has numbers from 2**63 on; write such ids as texts.")
    return _Clean(users, items, numbers, left_out)


def _brought_home(
    world: World, blocks: Blocks, n_items: int, users: np.ndarray, items: np.ndarray, more: Mapping[str, np.ndarray]
) -> Pairs:
    """Every pair on the rank of its user, repeats merged; the arrays, which are of this rank's rows, are used up.

    `more` are the ratings and timestamps, where there are any.
    Rows must stay in the order of the log, since of repeats the last one counts: what comes from each rank has its own
    place, which is filled from its end.
    """
    sent = np.zeros(world.size, dtype=np.int64)
    for part in steps(len(users)):
        sent += np.bincount(blocks.owner(users[part]), minlength=world.size)
    came = np.array(world.counts(sent.tolist()).receive)
    columns = [users, items, *more.values()]
    key = np.empty(came.sum(), dtype=np.int64)
    homes = [np.empty(len(key), dtype=column.dtype) for column in columns[2:]]
    ends = np.cumsum(came)
    rows = from_the_end(*columns)
    for _ in range(max(world.gathered(sum(1 for _ in steps(len(users)))))):
        part = next(rows, slice(0, 0))
        to = blocks.owner(users[part])
        order = np.argsort(to, kind="stable")
        borders = np.cumsum(np.bincount(to, minlength=world.size))[:-1]
        back = [exchange_arrays(world, np.split(column[part][order], borders)) for column in columns]
        for rank, (whose, which, *others) in enumerate(zip(*back, strict=True)):
            place = slice(ends[rank] - len(whose), ends[rank])
            key[place] = pair_keys(blocks.local(whose), which, n_items)
            for home, values in zip(homes, others, strict=True):
                home[place] = values
            ends[rank] -= len(whose)
    next(rows, None)  # the last rows are let go of as well
    return collect(key, blocks.count(world.rank), n_items, **dict(zip(more, homes, strict=True)))


@dataclass(frozen=True, eq=False)
class Shares:
    """The files of a log, and which rows of them are this rank's: consecutive row groups."""

    world: World
    label: str
    files: Sequence[File]
    footers: Sequence[Footer]
    names: dict[str, str]
    """role → what the files call it, of all columns that any file has."""
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(source: Any, world: World, columns: Sequence[Column]) -> Shares:
        with world.together():
            files = find_files(source)
            label = files[0].label if len(files) == 1 else source_label(source)
            other = next((file for file in files if file.ending not in PARQUET_ENDINGS), None)
            if other is not None:
                raise InputError(f"{other.label} is no parquet file, and several processes read such files only.")
            with faults_reported(label):
                looked = [Footer.of(file, columns) for file in files[world.rank :: world.size]]
        answers = world.gathered(looked)
        footers = [Footer(*answers[n % world.size][n // world.size]) for n in range(len(files))]
        filled = [(file, footer) for file, footer in zip(files, footers, strict=True) if sum(footer.groups)]
        if not filled:
            raise NoRowsError(f"{label} holds no rows.")
        _check_alike(filled)
        known = {role: name for _, footer in filled for role, name in footer.names.items()}
        names = {column.role: known[column.role] for column in columns if column.role in known}
        notes = (
            (f"{without_folder(label)} holds {count(len(filled), 'file')}, read as one log.",) if len(files) > 1 else ()
        )
        return Shares(world, label, [file for file, _ in filled], [footer for _, footer in filled], names, notes)

    @property
    def id_types(self) -> dict[str, pa.DataType]:
        """role → int64 or string."""
        found = {role: {footer.id_types[role] for footer in self.footers} for role in ("user", "item")}
        return {
            role: pa.int64() if kinds & {"int64", "uint64", "double"} else pa.string() for role, kinds in found.items()
        }

    def mine(self) -> Iterator[tuple[File, list[int], int]]:
        """The row groups of this rank, file by file, and the rows of the file before them; ranks follow one another."""
        rank, size = self.world.rank, self.world.size
        rows = sum(sum(footer.groups) for footer in self.footers)
        before = 0
        for file, footer in zip(self.files, self.footers, strict=True):
            starts = list(accumulate(footer.groups, initial=0))
            groups = [g for g, start in enumerate(starts[:-1]) if (before + start) * size // rows == rank]
            if groups:
                yield file, groups, starts[groups[0]]
            before += starts[-1]

    def pieces(self, columns: Sequence[Column]) -> Iterator[Loaded]:
        for file, groups, first_row in self.mine():
            for piece in pieces(file, columns, groups, first_row):
                yield replace(piece, label=self.label, names=self.names | piece.names)

    def in_step(self, columns: Sequence[Column], clean: Callable[[Loaded], Cleaned]) -> Iterator[Cleaned | None]:
        """The pieces of this rank, cleaned; None while other ranks have more."""
        mine = self.pieces(columns)
        while True:
            with self.together():
                piece = next(mine, None)
                found = None if piece is None else clean(piece)
            if not total_count(self.world, found is not None):
                return
            yield found

    def largest_time(self, time: Column) -> np.ndarray:
        """float64 [1]: the largest time of the whole log, which says its unit; a first look at that column alone."""
        largest = 0.0
        with self.together():
            for file, groups, first_row in self.mine():
                for piece in pieces(file, [time], groups, first_row):
                    if time.role in piece.names:
                        values = to_numbers(replace(piece, label=self.label), time.role, "time").to_numpy()
                        largest = max(largest, float(np.nanmax(np.abs(values), initial=0.0)))
        return np.array([max(self.world.gathered(largest))])

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.world.together(), faults_reported(self.label):
            yield


def _check_alike(filled: Sequence[tuple[File, Footer]]) -> None:
    """Refuse ids of several types, by the first file that differs."""
    types: dict[str, str] = {}
    for file, footer in filled:
        for role, found in footer.id_types.items():
            kind = types.get(role, "large_string") if found == "null" else found
            if types.setdefault(role, kind) != kind:
                raise InputError(
                    f"column '{footer.names[role]}' of {file.label} has ids of type {kind}, those before it "
                    f"{types[role]}; write all files alike."
                )


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
        places = [
            bisect_left(mine, _key(border), key=lambda scalar: _key(scalar.as_py())) for border in _borders(world, mine)
        ]
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


def cut(values: pa.Array, lengths: np.ndarray) -> list[pa.Array]:
    """Consecutive slices of these lengths."""
    ends = np.cumsum(lengths)
    return [values.slice(end - n, n) for end, n in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _polynomials(ids: pa.Array) -> np.ndarray:
    """uint64 [n]: the bytes of each text as the coefficients of a polynomial, at an odd point."""
    _, offsets, content = ids.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    texts = np.frombuffer(content, dtype=np.uint8)[ends[0] : ends[-1]]
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    powers = np.cumprod(np.full(lengths.max(), _ODD, dtype=np.uint64))
    place = np.arange(len(texts)) - np.repeat(starts, lengths)
    return np.add.reduceat(texts * powers[place], starts)
