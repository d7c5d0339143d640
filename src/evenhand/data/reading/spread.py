"""Reads a folder or object store of parquet files by many processes, of which none holds the whole log.

Every rank reads some row groups, in pieces: ids become numbers by `vocabulary`, then each pair goes to the rank of its
user, where repeats are merged. The log is the one that `read_interactions` makes of the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import no_such_rating, skipped, wanted_rows
from evenhand.data.reading.codes import Pairs, collect, from_the_end, pair_keys, steps
from evenhand.data.reading.columns import Column, Loaded, NoRowsError, faults_reported, source_label
from evenhand.data.reading.files import PARQUET_ENDINGS, File, find_files
from evenhand.data.reading.parquet_files import Footer, pieces
from evenhand.data.reading.values import clean_ids, compacted, to_numbers
from evenhand.data.reading.vocabulary import Growing, SharedIds
from evenhand.data.reading.wire import exchange_arrays, total
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.text import count
from evenhand.utils.world import Blocks, World

_NUMBERS = {"rating": np.float32, "timestamp": np.float64}


def read_spread(
    source: Any,
    world: World,
    *,
    user: str = "user",
    item: str = "item",
    rating: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    min_rating: float | None = None,
    since: str | float | None = None,
    until: str | float | None = None,
    header: bool | None = None,
    strict: bool = False,
    allow_small: bool = False,
) -> SpreadLog:
    """What `read_interactions` reads, spread over the ranks of a world, all of which call this together."""
    if weight is not None:
        raise InputError("amounts of a pair (weight) are summed in one process; read the log in one, or without it.")
    columns = [
        Column("user", "id", user),
        Column("item", "id", item),
        Column("rating", "number", rating),
        Column("timestamp", "time", timestamp),
    ]
    plan = _Plan.of(source, world, columns)
    unit = None if since is None and until is None else _largest_time(plan, columns)
    rule = _Rule(plan.id_types, strict, min_rating, since, until, unit)
    users, items = (SharedIds(world, plan.id_types[role]) for role in ("user", "item"))
    numbers = {role: Growing(kind) for role, kind in _NUMBERS.items() if role in plan.names}
    left_out: Counter[str] = Counter()
    for piece in _in_step(plan, columns):
        with plan.together():
            clean = None if piece is None else _cleaned(piece, columns[2:], rule)
        if clean is not None:
            left_out.update(clean.left_out)
            for role, values in numbers.items():
                values.append(clean.numbers[role])
        nothing = np.empty(0, dtype=np.int32), pa.array([], pa.string())
        users.add(*(nothing if clean is None else clean.users))
        items.add(*(nothing if clean is None else clean.items))
    told = _added_up(world, left_out)
    cleaned = skipped({why: n for why, n in told.items() if not why.startswith("_")})
    if min_rating is not None and not told["_rated"]:
        raise no_such_rating(plan.label, min_rating)
    if not told["_kept"]:
        raise InputError(f"no row of {plan.label} is left: {'; '.join(cleaned)}.")
    ratings, times = (
        numbers[role].finish() if told[f"_{role}{'s_kept' if cleaned else 's'}"] else None for role in _NUMBERS
    )
    user_rows, user_ids = users.finish()
    item_rows, item_ids = items.finish()
    if item_ids.total < 2 and not allow_small:
        raise InputError(f"{plan.label} holds one item only; evenhand needs at least two items.")
    if max(user_ids.total, item_ids.total) >= 2**31:
        raise InputError(
            f"{plan.label} holds more than 2 billion users or items, which is more than evenhand can index."
        )
    blocks = Blocks.of_users(user_ids.total, world.size)
    pairs = _brought_home(world, blocks, item_ids.total, user_rows, item_rows, ratings, times)
    repeats = int(total(world, np.array([pairs.repeats]))[0])
    if repeats:
        cleaned.append(f"{count(repeats, 'repeat')} merged")
    notes = (*plan.notes, f"{'; '.join(cleaned)}.") if cleaned else plan.notes
    pa.default_memory_pool().release_unused()
    mine = Interactions(
        user_ids.placed(blocks),
        item_ids.everywhere(),
        pairs.indptr,
        pairs.items,
        pairs.ratings,
        pairs.timestamps,
        notes,
    )
    return SpreadLog(world, blocks, mine)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Who reads what."""

    world: World
    label: str
    files: Sequence[File]
    footers: Sequence[Footer]
    names: dict[str, str]
    """role → what the files call it, of all columns that any file has."""
    notes: tuple[str, ...] = field(default=())

    @staticmethod
    def of(source: Any, world: World, columns: Sequence[Column]) -> _Plan:
        with world.together():
            files = find_files(source)
            label = files[0].label if len(files) == 1 else source_label(source)
            other = next((file for file in files if file.ending not in PARQUET_ENDINGS), None)
            if other is not None:
                raise InputError(f"{other.label} is no parquet file, and several processes read such files only.")
            with faults_reported(label):
                looked = [Footer.of(file, columns).to_json() for file in files[world.rank :: world.size]]
        told = world.gathered(looked)
        footers = [Footer(**told[n % world.size][n // world.size]) for n in range(len(files))]
        filled = [(file, footer) for file, footer in zip(files, footers, strict=True) if sum(footer.groups)]
        if not filled:
            raise NoRowsError(f"{label} holds no rows.")
        _check_alike(filled)
        known = {role: name for _, footer in filled for role, name in footer.names.items()}
        names = {column.role: known[column.role] for column in columns if column.role in known}
        notes = (f"{label} holds {count(len(filled), 'file')}, read as one log.",) if len(files) > 1 else ()
        return _Plan(world, label, [file for file, _ in filled], [footer for _, footer in filled], names, notes)

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

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.world.together(), faults_reported(self.label):
            yield


def _check_alike(filled: Sequence[tuple[File, Footer]]) -> None:
    """Refuse ids of several types, by the first file that differs."""
    types: dict[str, str] = {}
    for file, footer in filled:
        for role, found in footer.id_types.items():
            kind = found or types.get(role, "large_string")
            if types.setdefault(role, kind) != kind:
                raise InputError(
                    f"column '{footer.names[role]}' of {file.label} has ids of type {kind}, those before it "
                    f"{types[role]}; write all files alike."
                )


def _in_step(plan: _Plan, columns: Sequence[Column]) -> Iterator[Loaded | None]:
    """The pieces of this rank; None while other ranks have more."""
    mine = plan.pieces(columns)
    while True:
        with plan.together():
            piece = next(mine, None)
        if not total(plan.world, np.array([piece is not None]).astype(np.int64))[0]:
            return
        yield piece


def _largest_time(plan: _Plan, columns: Sequence[Column]) -> np.ndarray:
    """float64 [1]: the largest time of the whole log, which says its unit; a first look at that column alone."""
    largest = 0.0
    with plan.together():
        time = next(column for column in columns if column.role == "timestamp")
        for file, groups, first_row in plan.mine():
            for piece in pieces(file, [time], groups, first_row):
                if "timestamp" in piece.names:
                    values = to_numbers(replace(piece, label=plan.label), "timestamp", "time").to_numpy()
                    largest = max(largest, float(np.nanmax(np.abs(values), initial=0.0)))
    return np.array([max(plan.world.gathered(largest))])


class _Clean(NamedTuple):
    """The rows of a piece that count."""

    users: tuple[np.ndarray, pa.Array]
    items: tuple[np.ndarray, pa.Array]
    numbers: dict[str, np.ndarray]
    left_out: dict[str, int]
    """By reason, how many rows do not count; what begins with an underscore counts other things."""


@dataclass(frozen=True)
class _Rule:
    """Which rows count."""

    id_types: Mapping[str, pa.DataType]
    """role → int64 or string, as in the whole log."""
    strict: bool
    min_rating: float | None
    since: str | float | None
    until: str | float | None
    unit: np.ndarray | None
    """A time of the log, which says in what unit they are."""


def _cleaned(piece: Loaded, columns: Sequence[Column], rule: _Rule) -> _Clean:
    coded = {role: clean_ids(piece, role, strict=rule.strict) for role in ("user", "item")}
    keep = np.ones(len(piece), dtype=bool)
    for codes, ids in coded.values():
        keep &= np.append(np.asarray(ids.is_valid()), False)[codes]
    there = {c.role: to_numbers(piece, c.role, c.kind) for c in columns if c.role in piece.table.column_names}
    values: dict[str, np.ndarray | None] = {role: column.to_numpy() for role, column in there.items()}
    every = dict.fromkeys(_NUMBERS) | values
    left_out = wanted_rows(piece, keep, every, rule.min_rating, rule.since, rule.until, rule.unit)
    left_out["_kept"] = int(keep.sum())
    if rule.min_rating is not None and (ratings := values.get("rating")) is not None:
        left_out["_rated"] = int((ratings >= rule.min_rating).sum())
    numbers = {}
    for role, kind in _NUMBERS.items():
        found = np.full(len(piece), np.nan) if values.get(role) is None else values[role]
        with np.errstate(over="ignore"):  # beyond its range a rating is infinite
            numbers[role] = found[keep].astype(kind)  # type: ignore[index]
        left_out[f"_{role}s"] = len(there[role]) - there[role].null_count if role in there else 0
        left_out[f"_{role}s_kept"] = int((~np.isnan(numbers[role])).sum())
    users, items = (compacted(codes[keep], ids) for codes, ids in coded.values())
    for role, (_, ids) in (("user", users), ("item", items)):
        if len(ids) and ids.type != rule.id_types[role]:  # unsigned, and one process would make texts of all of them
            raise InputError(f"{piece.called(role)} has numbers from 2**63 on; write such ids as texts.")
    return _Clean(users, items, numbers, left_out)


def _added_up(world: World, left_out: Counter[str]) -> Counter[str]:
    """Over all ranks, in the order of the first that counted anything."""
    every: Counter[str] = Counter()
    for one in world.gathered(dict(left_out)):
        every.update(one)
    return every


def _brought_home(
    world: World,
    blocks: Blocks,
    n_items: int,
    users: np.ndarray,
    items: np.ndarray,
    ratings: np.ndarray | None,
    times: np.ndarray | None,
) -> Pairs:
    """Every pair on the rank of its user, repeats merged; the arrays, which are of this rank's rows, are used up.

    Rows must stay in the order of the log, since of repeats the last one counts: what comes from each rank has its own
    place, which is filled from its end.
    """
    sent = np.zeros(world.size, dtype=np.int64)
    for part in steps(len(users)):
        sent += np.bincount(blocks.owner(users[part]), minlength=world.size)
    came = np.concatenate(exchange_arrays(world, [sent[rank : rank + 1] for rank in range(world.size)]))
    columns = [users, items, *(numbers for numbers in (ratings, times) if numbers is not None)]
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
    found = iter(homes)
    return collect(
        key,
        blocks.count(world.rank),
        n_items,
        next(found) if ratings is not None else None,
        next(found) if times is not None else None,
    )
