"""Reads a folder or object store of parquet files by many processes, of which none holds the whole log.

Every rank reads some row groups, in pieces: ids become numbers by `vocabulary`, then each pair goes to the rank of its
user, where repeats are merged. The log is the one that `read_interactions` makes of the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import no_such_rating, skipped, wanted_rows
from evenhand.data.reading.codes import Pairs, collect, from_the_end, pair_keys, steps
from evenhand.data.reading.columns import Column, Loaded
from evenhand.data.reading.shares import Shares
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
    plan = Shares.of(source, world, columns)
    unit = None if since is None and until is None else plan.largest_time(columns[3])
    rule = _Rule(plan.id_types, strict, min_rating, since, until, unit)
    users, items = (SharedIds(world, plan.id_types[role]) for role in ("user", "item"))
    numbers = {role: Growing(kind) for role, kind in _NUMBERS.items() if role in plan.names}
    left_out: Counter[str] = Counter()
    for clean in plan.in_step(columns, lambda piece: _cleaned(piece, columns[2:], rule)):
        if clean is not None:
            left_out.update(clean.left_out)
            for role, values in numbers.items():
                values.append(clean.numbers[role])
        nothing = np.empty(0, dtype=np.int32), pa.array([], pa.string())
        users.add(*(nothing if clean is None else clean.users))
        items.add(*(nothing if clean is None else clean.items))
    added_up = _added_up(world, left_out)
    cleaned = skipped({why: n for why, n in added_up.items() if not why.startswith("_")})
    if min_rating is not None and not added_up["_rated"]:
        raise no_such_rating(plan.label, min_rating)
    if not added_up["_kept"]:
        raise InputError(f"no row of {plan.label} is left: {'; '.join(cleaned)}.")
    ratings, times = (
        numbers[role].finish() if added_up[f"_{role}{'s_kept' if cleaned else 's'}"] else None for role in _NUMBERS
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
