"""The data that lists are audited against, and the pass over all users that adds up what an audit reports.

Lists are compared with users' histories, their test items and the hot items, a block of users at a time; `add_blocks`
gives the same sums for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from evenhand.audit.measures import Draws, Moments
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.reading.read import as_interactions
from evenhand.data.splits import Split, given_split
from evenhand.metrics.catalogue import METRICS, RATES, SUMS, available
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.formulas import NO_ITEM, exposure_counts
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import AnswerSheet, ItemPopularity, Slots
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import exchange_arrays, total
from evenhand.utils.world import World

CHUNK_PAIRS = 2_000_000
"""How many known pairs are looked at together."""
CHUNK_SLOTS = 320_000
"""How many slots of one system are looked at together."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The data side of an audit, over one vocabulary of users and items."""

    split: Split
    """Without a test file its test part is empty."""
    rule: HotRule
    hot: np.ndarray
    """bool [n_items]"""
    items: ItemPopularity
    """Among what is known."""
    taste: np.ndarray
    """float64 [n_users]: share of hot items among what the user has had, nan without any."""
    notes: tuple[str, ...]

    @property
    def known(self) -> Interactions:
        """What users have had: train, and validation where it is given."""
        return self.split.consumed

    @property
    def test(self) -> Interactions:
        return self.split.test

    @property
    def has_test(self) -> bool:
        return len(self.split.test) > 0

    @property
    def n_items(self) -> int:
        return self.split.n_items

    @property
    def n_users(self) -> int:
        return self.split.n_users

    def demand(self) -> dict[str, tuple[float, ...]]:
        """The share of each popularity decile in the known interactions ("train") and in those of test."""
        parts = {"train": self.known, "test": self.test}
        return {
            name: tuple((np.bincount(self.items.decile, part.popularity, minlength=10) / len(part)).tolist())
            for name, part in parts.items()
            if len(part)
        }


def read_reference(train: Any, validation: Any, test: Any, hot: Any, reading: Mapping[str, Any]) -> Reference:
    """Read what has to be read, bring the parts to one vocabulary, and say which items are hot."""
    split, notes = _split(train, validation, test, reading)
    rule = HotRule.parse(hot)
    is_hot = rule.mask(split)
    if test is None and rule.count_all:
        notes.append("Without a test part the paper's hot rule counts train alone.")
    if not is_hot.any() or is_hot.all():
        which = "no item is" if not is_hot.any() else "all items are"
        notes.append(f"By the rule ({rule.describe()}) {which} hot.")
    items = ItemPopularity.of(split.consumed, split.n_items)
    return Reference(split, rule, is_hot, items, _taste(split.consumed, is_hot), tuple(notes))


def _split(train: Any, validation: Any, test: Any, reading: Mapping[str, Any]) -> tuple[Split, list[str]]:
    past = None if train is None else as_interactions(train, **reading, allow_small=False)
    if past is None or not len(past):
        raise InputError("the train part is empty, so there is no popularity to audit against.")
    between = None if validation is None else as_interactions(validation, **reading)
    if test is None:
        notes = [f"train: {note}" for note in past.notes]
        notes.append("Without a test part only exposure is measured: nobody knows what users wanted.")
        if between is None:
            return Split(past, None, past.take(np.zeros(len(past), dtype=bool)), "train only"), notes
        split = given_split(past, between)  # as test for now, for the shared vocabulary
        nothing = split.train.take(np.zeros(len(split.train), dtype=bool))
        return Split(split.train, split.test, nothing, "train and validation"), notes
    split = given_split(past, as_interactions(test, **reading), validation_part=between)
    return split, list(split.notes)


def part_of(data: Interactions, start: int, stop: int) -> Interactions:
    """The pairs of the users start…stop − 1, who become 0, 1, …; items keep their indices."""
    begin, end = data.indptr[start], data.indptr[stop]
    return Interactions(
        user_ids=data.user_ids.slice(start, stop - start),
        item_ids=data.item_ids,
        indptr=data.indptr[start : stop + 1] - begin,
        items=data.items[begin:end],
    )


def user_ranges(data: Interactions, most_users: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of users: at most `most_users`, and few enough to hold their pairs in memory."""
    start = 0
    while start < data.n_users:
        stop = int(np.searchsorted(data.indptr, data.indptr[start] + CHUNK_PAIRS, side="right")) - 1
        stop = min(max(stop, start + 1), start + most_users, data.n_users)
        yield start, stop
        start = stop


def _taste(known: Interactions, hot: np.ndarray) -> np.ndarray:
    taste = np.full(known.n_users, np.nan)
    for start, stop in user_ranges(known, known.n_users):
        part = part_of(known, start, stop)
        n_hot = np.bincount(part.users, hot[part.items], minlength=stop - start)
        np.divide(n_hot, part.activity, out=taste[start:stop], where=part.activity > 0)
    return taste


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive users of the audience, with their part of what is known and wanted."""

    start: int
    """The first user of the range; the sheet's users are counted from here."""
    sheet: AnswerSheet
    has_test: bool

    @property
    def everyone(self) -> np.ndarray:
        """int64 [n]: the users' indices in the vocabulary."""
        return self.start + self.sheet.users

    @property
    def with_test(self) -> np.ndarray:
        """bool [n]: who has a test item, so that accuracy can be measured."""
        return self.sheet.n_relevant > 0


@dataclass(frozen=True, eq=False)
class Terms:
    """One system's columns at one k, all [n] over the block's users."""

    values: Mapping[str, np.ndarray]
    """Of the metrics that are means: the user's value, 0 where the user does not count."""
    weights: Mapping[str, np.ndarray]
    """1 where the user counts, else 0."""
    sums: Mapping[str, np.ndarray]
    """What formulas of sums add up; `slots` is [n, 10]. The counts behind the rates (ohr.above, ohr.below, …) are 0
    for users without a test item."""


Progress = Callable[[str, int, int], None]
"""Called with (what is done, users done, users in all)."""
Watcher = Callable[[Block, Mapping[str, Mapping[int, Terms]], Mapping[str, Slots]], Mapping[Any, np.ndarray]]
"""Sees every block, each system's terms by k and its lists; may return further columns to be bootstrapped."""


@dataclass(eq=False)
class Swept:
    """What one pass found: moments of the metrics that are means, bootstrap sums of the others, exposure counts."""

    systems: tuple[str, ...]
    ks: tuple[int, ...]
    means: dict[int, Moments]
    draws: Draws
    counts: dict[tuple[str, int], np.ndarray]
    """(system, k) → int64 [n_items]: in how many slots each item stands."""
    odd: dict[str, dict[str, int]]
    """system → how often its lists were not what one expects."""
    influence: Moments = field(init=False)
    """By (metric, k), for the metrics that look at every item's slots: what each user's lists add to them."""


def sweep(
    reference: Reference,
    systems: Mapping[str, Lists],
    ks: Sequence[int],
    watchers: Sequence[Watcher] = (),
    progress: Progress | None = None,
    *,
    more_sums: Sequence[np.ndarray] = (),
) -> Swept:
    """Every user who has a list or a test item, in blocks of consecutive users, which ranks share out.

    `more_sums` are those that watchers add to, block by block.
    """
    world = World.current()
    names, most = tuple(systems), max(ks)
    metrics = [m for m in available(reference.has_test) if METRICS[m].of_user or METRICS[m].rate]
    swept = Swept(
        names,
        tuple(ks),
        {k: Moments(metrics, len(names)) for k in ks},
        Draws(),
        {(name, k): np.zeros(reference.n_items, dtype=np.int64) for name in names for k in ks},
        {name: dict.fromkeys(("empty", "short", "without_test", "repeats"), 0) for name in names},
    )
    audience = audience_of(reference, systems)
    ranges = [
        (start, stop)
        for start, stop in user_ranges(reference.known, max(1, CHUNK_SLOTS // most))
        if audience[start:stop].any()
    ]
    before = np.concatenate([[0], np.cumsum([np.count_nonzero(audience[start:stop]) for start, stop in ranges])])
    mine = set(range(world.rank, len(ranges), world.size))

    def work(number: int) -> None:
        start, stop = ranges[number]
        block = block_of(reference, start, stop, audience)
        lists = {name: Slots(block.sheet, one.top(block.everyone, most)) for name, one in systems.items()}
        for name, slots in lists.items() if number in mine else ():
            _count(swept, block, name, slots)
        terms = {name: {k: terms_of(block, slots, k, metrics) for k in ks} for name, slots in lists.items()}
        _gather(swept, block, terms, metrics, [watch(block, terms, lists) for watch in watchers], int(before[number]))
        if progress is not None:
            progress("measuring", stop, reference.n_users)

    def sums() -> list[np.ndarray]:
        moments = [part for one in swept.means.values() for part in (one.products, one.either)]
        return [*moments, swept.draws.observed, swept.draws.drawn, *more_sums]

    add_blocks(world, len(ranges), work, sums)
    swept.draws.users = int(before[-1])
    for key, counted in swept.counts.items():
        swept.counts[key] = total(world, counted)
    for name, odd in swept.odd.items():
        swept.odd[name] = dict(zip(odd, total(world, np.array(list(odd.values()))).tolist(), strict=True))
    for name in names:
        for shorter, longer in pairwise(ks):
            swept.counts[name, longer] += swept.counts[name, shorter]
    swept.influence = _influences(swept, systems, audience, ranges)
    return swept


def audience_of(reference: Reference, systems: Mapping[str, Lists]) -> np.ndarray:
    """bool [n_users]: who has a list of any system, or a test item."""
    return np.logical_or.reduce([reference.test.activity > 0, *(lists.served for lists in systems.values())])


def block_of(reference: Reference, start: int, stop: int, audience: np.ndarray) -> Block:
    known, test = part_of(reference.known, start, stop), part_of(reference.test, start, stop)
    sheet = AnswerSheet(
        users=np.flatnonzero(audience[start:stop]),
        truth=test,
        hot=reference.hot,
        consumed=known,
        all_users=reference.items,
        # What users want by decile or, without a test part, what they have had.
        demand_part=test if reference.has_test else known,
    )
    return Block(start, sheet, reference.has_test)


def terms_of(block: Block, slots: Slots, k: int, metrics: Sequence[str]) -> Terms:
    found, counts = UserMetrics.of(slots, k), block.with_test
    values, weights = {}, {}
    for name in metrics:
        column = found.per_user(name)
        if METRICS[name].needs_test:
            column = np.where(counts, column, np.nan)
        weights[name] = (~np.isnan(column)).astype(np.float64)
        values[name] = np.nan_to_num(column)
    sums = {}
    for name in SUMS:
        of_rate = name.partition(".")[0] in RATES
        if name != "demand" and (block.has_test or not of_rate):
            column = np.asarray(found.sums[name], dtype=np.float64)
            sums[name] = column * counts if of_rate else column
    return Terms(values, weights, sums)


def _count(swept: Swept, block: Block, name: str, slots: Slots) -> None:
    top, begin = slots.top, 0
    for k in swept.ks:
        swept.counts[name, k] += exposure_counts(top[:, begin:k], slots.sheet.truth.n_items)
        begin = k
    length = np.count_nonzero(top != NO_ITEM, axis=1)
    odd = swept.odd[name]
    odd["empty"] += int(np.count_nonzero(length[block.with_test] == 0))
    odd["short"] += int(np.count_nonzero((length > 0) & (length < top.shape[1])))
    odd["without_test"] += int(np.count_nonzero(length[~block.with_test] > 0))
    odd["repeats"] += int(np.count_nonzero(slots.repeats))


def _gather(
    swept: Swept,
    block: Block,
    terms: Mapping[str, Mapping[int, Terms]],
    metrics: Sequence[str],
    more: Sequence[Mapping[Any, np.ndarray]],
    before: int,
) -> None:
    columns: dict[Any, np.ndarray] = {"demand": block.sheet.demand}
    for k in swept.ks:
        swept.means[k].add(
            np.array([[terms[name][k].values[metric] for name in swept.systems] for metric in metrics]),
            np.array([[terms[name][k].weights[metric] for name in swept.systems] for metric in metrics]),
        )
        for name in swept.systems:
            columns |= {(name, k, column): values for column, values in terms[name][k].sums.items()}
    for extra in more:
        columns |= extra
    swept.draws.add(columns, before)


def _influences(
    swept: Swept, systems: Mapping[str, Lists], audience: np.ndarray, ranges: Sequence[tuple[int, int]]
) -> Moments:
    """By (metric, k), for the metrics that look at every item's slots: what each user's lists add to them."""
    most, names, n_items = max(swept.ks), swept.systems, len(next(iter(swept.counts.values())))
    # One more entry answers for empty slots and unknown items, which have none.
    slopes = {
        (metric.name, k): [np.append(metric.slope(swept.counts[name, k]), 0.0) for name in names]
        for metric in METRICS.values()
        if metric.slope is not None
        for k in swept.ks
    }
    found = Moments(list(slopes), len(names))

    def work(number: int) -> None:
        start, stop = ranges[number]
        users = start + np.flatnonzero(audience[start:stop])
        tops = [systems[name].top(users, most) for name in names]
        tops = [np.where(top <= NO_ITEM, n_items, top) for top in tops]
        felt = np.array(
            [
                [slope[top[:, :k]].sum(axis=1) for slope, top in zip(of_systems, tops, strict=True)]
                for (_, k), of_systems in slopes.items()
            ]
        )
        found.add(felt, np.ones_like(felt))

    add_blocks(World.current(), len(ranges), work, lambda: [found.products, found.either])
    return found


def add_blocks(
    world: World, n_blocks: int, work: Callable[[int], None], sums: Callable[[], Sequence[np.ndarray]]
) -> None:
    """Call `work` with 0…n_blocks-1; it adds a block's share to `sums`, arrays of float64, which all ranks end up with.

    The last bits of a sum depend on its order, so the shares of the blocks travel, and not those of the ranks.
    """
    if world.size == 1:
        for block in range(n_blocks):
            work(block)
        return
    summed = np.zeros(0)
    for first in range(0, n_blocks, world.size):
        block = first + world.rank
        # Who has no block in the first round looks at one all the same, and so knows what there is to sum.
        if block < n_blocks or first == 0:
            work(min(block, n_blocks - 1))
        share = np.concatenate([part.ravel() for part in sums()])
        for part in sums():
            part[...] = 0.0
        for one in exchange_arrays(world, [share if block < n_blocks else share[:0]] * world.size):
            summed = summed + one if len(summed) and len(one) else (one if len(one) else summed)
    end = 0
    for part in sums() if n_blocks else ():
        end += part.size
        part[...] = summed[end - part.size : end].reshape(part.shape)
