"""How one part is drawn out of a log: a rule for each question that a test can ask.

*Predict the log* (random, per-user), *predict what comes next* (leave-last-out, time), and *would each item find its
users* (popularity-shift). A rule is applied once for the test part and once, to what is left, for validation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions, time_order
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.keyed import keyed_uniform
from evenhand.utils.spread_arrays import (
    as_ordered,
    exchange_arrays,
    first_rows,
    from_ordered,
    nth_smallest,
    total_count,
)
from evenhand.utils.text import count
from evenhand.utils.world import Blocks


@dataclass(frozen=True, eq=False)
class Request:
    """What is to be held out of which pairs."""

    log: SpreadLog
    """Of which this process has a part, or all."""
    share: float
    keys: np.ndarray
    """uint64: a random key for each pair of this process; the smallest are taken."""
    seed: int
    name: str
    """test or validation."""
    before: Interactions | None = None
    """The part that was held out before this one."""
    another: bool = False
    """Whether another part will be held out of what is left."""
    cut: float | None = None
    """For `time`: the moment from which on pairs are held out, instead of a share."""
    gap: float = 0.0
    """For `time`: pairs within this span before the part are left out altogether."""

    @property
    def data(self) -> Interactions:
        """The pairs of this process."""
        return self.log.mine

    def total(self, mask: np.ndarray) -> int:
        """How many of all processes' pairs or users are marked."""
        return total_count(self.log.world, int(np.count_nonzero(mask)))

    def first(self, n: int, among: np.ndarray) -> np.ndarray:
        """Of these pairs of this process, the places of those that are among the n of lowest key of all processes."""
        numbers = self.log.pair_numbers[among].astype(np.uint64)
        return among[first_rows(self.log.world, n, [self.keys[among], numbers])]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Which pairs of this process a rule holds out."""

    held_out: np.ndarray
    """bool [pairs]"""
    notes: tuple[str, ...] = ()
    dropped: np.ndarray | None = None
    """bool [pairs]: pairs that belong to no part."""

    @property
    def left(self) -> np.ndarray:
        """bool [pairs]: what remains to be trained on."""
        return ~self.held_out if self.dropped is None else ~(self.held_out | self.dropped)


@dataclass(frozen=True)
class Rule:
    """One way to hold out a part."""

    draw: Callable[[Request], Drawn]
    label: str
    """How a description of a split begins."""
    needs_times: bool = False


def rule_named(how: str) -> tuple[str, Rule]:
    """The rule and its full name; `last` is short for leave-last-out."""
    name = "leave-last-out" if how == "last" else how
    if name not in RULES:
        raise unknown("split", how, RULES)
    return name, RULES[name]


def _random(ask: Request) -> Drawn:
    held_out = np.zeros(len(ask.data), dtype=bool)
    held_out[ask.first(round(ask.share * len(ask.log)), np.arange(len(ask.data)))] = True
    return Drawn(held_out)


def _per_user(ask: Request) -> Drawn:
    data = ask.data
    place = _place_in_row(data, np.lexsort((ask.keys, data.users)))
    # As in decimal: 0.29 of 100 is 29 although 0.29 * 100 < 29 in binary.
    floors = np.floor(ask.share * data.activity + 1e-9).astype(np.int64)
    take = np.minimum(floors, np.maximum(data.activity - 1, 0))
    return Drawn(place < take[data.users])


def _leave_last_out(ask: Request) -> Drawn:
    data = ask.data
    place = _place_in_row(data, time_order(data))
    enough = data.activity >= (3 if ask.another else 2)
    if ask.before is not None:
        enough &= ask.before.activity > 0
    return Drawn(enough[data.users] & (place == data.activity[data.users] - 1))


def _time(ask: Request) -> Drawn:
    times = ask.data.timestamps
    assert times is not None
    notes: tuple[str, ...] = ()
    if ask.cut is not None:
        held_out, start = times >= ask.cut, ask.cut
    else:
        held_out, start, notes = _last_share(ask, times)
    if not ask.gap:
        return Drawn(held_out, notes)
    dropped = ~held_out & (times > start - ask.gap)
    notes += (f"{count(ask.total(dropped), 'pair')} within the gap before the {ask.name} part are in no part.",)
    return Drawn(held_out, notes, dropped)


def _last_share(ask: Request, times: np.ndarray) -> tuple[np.ndarray, float, tuple[str, ...]]:
    """(the last share of the pairs, their first moment, notes); the cut is moved to the nearest change of moment."""
    n, world, when = len(ask.log), ask.log.world, as_ordered(times)
    cut = n - round(ask.share * n)
    if cut == n:
        return np.zeros(len(times), dtype=bool), np.inf, ()
    moment, before = nth_smallest(world, when, cut)
    until = before + ask.total(when == moment)
    inner = [side for side in (before, until) if 0 < side < n]
    first = min(inner, key=lambda side: abs(side - cut), default=cut) if cut else 0
    if first == until:
        return when > moment, from_ordered(nth_smallest(world, when, until)[0]), ()
    held_out = when >= moment
    if first == before:
        return held_out, from_ordered(moment), ()
    held_out[ask.first(first - before, np.flatnonzero(when == moment))] = False
    note = f"The {ask.name} part starts amid pairs of one moment, divided by split seed {ask.seed}."
    return held_out, from_ordered(moment), (note,)


def _popularity_shift(ask: Request) -> Drawn:
    """Draw an item uniformly, then one of its remaining pairs, until there are enough.

    An item keeps at least one pair, so an item with a single pair is never drawn. Drawing items in rounds gives the
    same distribution as one by one: an item that is used up is out of the draw either way.
    """
    log = ask.log
    wanted, most = round(ask.share * len(log)), np.maximum(log.popularity - 1, 0)
    if wanted > most.sum():
        raise InputError(
            f"a popularity-shift split cannot hold out {wanted:,} of {count(len(log), 'pair')} for {ask.name}: every "
            f"item keeps one, so at most {int(most.sum()):,} can be drawn; choose a smaller share."
        )
    taken = np.zeros(log.n_items, dtype=np.int64)
    stream = 0 if ask.name == "test" else 1
    turn = 0
    while (missing := wanted - int(taken.sum())) > 0:
        open_items = np.flatnonzero(taken < most)
        draws = keyed_uniform(ask.seed, _SHIFT, stream, turn, np.arange(missing))
        drawn = np.bincount(open_items[(draws * len(open_items)).astype(np.int64)], minlength=log.n_items)
        taken = np.minimum(taken + drawn, most)
        turn += 1
    return _leave_one_to_each_user(ask, _first_of_items(ask, taken))


def _first_of_items(ask: Request, taken: np.ndarray) -> np.ndarray:
    """bool [pairs]: of every item's pairs on all processes the `taken` of lowest key, found by the item's owner."""
    world, items = ask.log.world, ask.data.items
    to = Blocks.of_items(ask.log.n_items, world.size).owner(items)
    order = np.argsort(to, kind="stable")
    borders = np.cumsum(np.bincount(to, minlength=world.size))[:-1]
    columns = (items, ask.keys.view(np.int64), ask.log.pair_numbers)
    came = [exchange_arrays(world, np.split(column[order], borders)) for column in columns]
    item, key, number = (np.concatenate(parts) for parts in came)
    sorting = np.lexsort((number, key.view(np.uint64), item))
    ranked = item[sorting]
    chosen = np.empty(len(item), dtype=bool)
    chosen[sorting] = np.arange(len(item)) - np.searchsorted(ranked, ranked) < taken[ranked]
    back = exchange_arrays(world, np.split(chosen, np.cumsum([len(part) for part in came[0]])[:-1]))
    held_out = np.empty(len(items), dtype=bool)
    held_out[order] = np.concatenate(back)
    return held_out


def _leave_one_to_each_user(ask: Request, held_out: np.ndarray) -> Drawn:
    """A user whose pairs were all drawn gets one of them back, so that a model can know them."""
    data = ask.data
    bare = (np.bincount(data.users[held_out], minlength=data.n_users) == data.activity) & (data.activity > 0)
    n_bare = ask.total(bare)
    if not n_bare:
        return Drawn(held_out)
    place = _place_in_row(data, np.lexsort((ask.keys, data.users)))
    note = f"{count(n_bare, 'user')} had every pair drawn; one of them stays outside the {ask.name} part."
    return Drawn(held_out & ~(bare[data.users] & (place == 0)), (note,))


_SHIFT = 0x5417
"""A stream of keyed randomness of its own."""

RULES: dict[str, Rule] = {
    "random": Rule(_random, "random"),
    "per-user": Rule(_per_user, "per user"),
    "leave-last-out": Rule(_leave_last_out, "leave last out", needs_times=True),
    "time": Rule(_time, "by time", needs_times=True),
    "popularity-shift": Rule(_popularity_shift, "popularity shift"),
}
"""Every way to hold out a part, by the name that commands and functions take.

- random: pairs drawn from all of the log.
- per-user: that share of each user's pairs, rounded down, so that nobody's only pair is drawn.
- leave-last-out (or last): each user's last pair; users with too few pairs for that keep all. The share has no effect.
- time: the last pairs of the log, or all from a given moment on; pairs of one moment stay together if they can.
- popularity-shift: items drawn uniformly, whatever their popularity; every item and every user keeps a pair.
"""


def _place_in_row(data: Interactions, order: np.ndarray) -> np.ndarray:
    """For each pair its place (from 0) among its user's pairs, when `order` sorts users first."""
    place = np.empty(len(data), dtype=np.int64)
    place[order] = np.arange(len(data)) - data.indptr[data.users]
    return place
