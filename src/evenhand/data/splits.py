"""Train, validation and test parts of one log, over one vocabulary of users and items.

Every table evenhand prints rests on a split, so a split must come out the same for the same seed, whatever
the order of the file's rows, and must say in words how it came about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import as_moment, as_span
from evenhand.data.split_rules import Drawn, Request, Rule, rule_named
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import total_count
from evenhand.utils.text import count
from evenhand.utils.world import World

Log = TypeVar("Log", Interactions, SpreadLog)


@dataclass(frozen=True, eq=False)
class Parts(Generic[Log]):
    """Disjoint parts that share one vocabulary of users and items."""

    train: Log
    validation: Log | None
    test: Log
    description: str
    """How the parts came about, for reports."""
    notes: tuple[str, ...] = ()
    """What a reader should know about these parts, one sentence each."""
    how: str = "given"
    """The rule that drew the test part (see `split_rules.RULES`), or given."""
    validation_how: str | None = None
    """The rule that drew the validation part; None where that was given, or there is none."""

    @cached_property
    def consumed(self) -> Log:
        """Train and validation together: what a user already has when test items are recommended."""
        return self.train if self.validation is None else self.train.union(self.validation)

    @cached_property
    def hot_masks(self) -> dict[Any, np.ndarray]:
        """By rule, where `HotRule.mask` keeps what it found."""
        return {}

    @cached_property
    def everything(self) -> Log:
        """What a model for production is fitted to: all parts, but for a test part that was given as such."""
        return self.consumed if self.how == "given" else self.consumed.union(self.test)

    def parts(self) -> dict[str, Log]:
        """The parts that there are, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    def mapped(self, change: Callable[[Log], Any]) -> tuple[Any, ...]:
        """The fields of a split whose parts were changed."""
        validation = None if self.validation is None else change(self.validation)
        parts: tuple[Any, ...] = change(self.train), validation, change(self.test)
        return (*parts, self.description, self.notes, self.how, self.validation_how)

    @property
    def n_users(self) -> int:
        return self.train.n_users

    @property
    def n_items(self) -> int:
        return self.train.n_items


@dataclass(frozen=True, eq=False)
class Split(Parts[Interactions]):
    """The parts of a log that one process holds."""

    def __repr__(self) -> str:
        validation = 0 if self.validation is None else len(self.validation)
        sizes = f"train {len(self.train):,}, validation {validation:,}, test {len(self.test):,}"
        return f"Split({sizes}; {count(self.n_users, 'user')} × {count(self.n_items, 'item')})"


@dataclass(frozen=True, eq=False)
class SpreadSplit(Parts[SpreadLog]):
    """The parts of a log that is spread over processes."""

    @staticmethod
    def of(split: Split | SpreadSplit, world: World) -> SpreadSplit:
        """Each rank's part of a split that every rank has whole."""
        if isinstance(split, SpreadSplit):
            return split
        return SpreadSplit(*split.mapped(lambda part: SpreadLog.of(part, world)))

    @property
    def mine(self) -> Split:
        """The parts of this rank's users."""
        return Split(*self.mapped(lambda part: part.mine))


def split_interactions(data: Interactions, *asked: Any, **named: Any) -> Split:
    """`split_spread` of a log that this process has whole."""
    return split_spread(_whole(data), *asked, **named).mine


def split_spread(
    data: SpreadLog,
    test: float = 0.2,
    validation: float = 0.1,
    seed: int = 0,
    how: str = "random",
    validation_how: str | None = None,
    test_from: str | float | None = None,
    gap: str | float = 0.0,
) -> SpreadSplit:
    """Split one log; `test` is a share of all pairs, `validation` of what then remains (0: no such part).

    `how` names the rule for test (see `split_rules.RULES`), `validation_how` that for validation: by default the
    same, so that choosing on validation is choosing for that test. For `time`, `test_from` is the moment at which
    test begins, instead of a share, and pairs within `gap` before a part are left out; both are numbers in the unit
    of the timestamps, or a date (2026-09-01) and a span (7d, 12h).
    """
    _check_shares(test, validation, seed)
    how, rule = rule_named(how)
    validation_how, validation_rule = rule_named(validation_how or how)
    if how != "time" and (test_from is not None or gap):
        raise InputError(f"a moment or a gap belongs to a time split, not to a {how} one; choose how='time'.")
    for name, one in ((how, rule), (validation_how, validation_rule)):
        if one.needs_times and (one is rule or validation > 0):
            _check_timestamps(data, name)
    cut, span = None, 0.0
    if test_from is not None or gap:
        times = data.mine.timestamps
        largest = 0.0 if times is None else float(np.nanmax(np.abs(times), initial=0.0))
        unit = np.array([max(data.world.gathered(largest))])  # which says in what unit times are
        cut = None if test_from is None else as_moment(test_from, unit, "the start of the test part")
        span = as_span(gap, unit) if gap else 0.0
    keys = data.random_keys(seed)
    ask = Request(data, test, keys, seed, "test", another=validation > 0, cut=cut, gap=span)
    first = rule.draw(ask)
    tested, notes = data.take(first.held_out), first.notes
    train, validated = data.take(first.left), None
    if validation > 0:
        gap_too = span if validation_how == "time" else 0.0
        second = validation_rule.draw(
            Request(train, validation, keys[first.left], seed, "validation", before=tested.mine, gap=gap_too)
        )
        validated, notes = train.take(second.held_out), notes + second.notes
        train = train.take(second.left)
    for name, part in (("train", train), ("validation", validated), ("test", tested)):
        if part is not None and not len(part):
            raise InputError(
                f"the {name} part of the {how} split is empty: {len(data):,} pairs are too few for "
                f"test={test:g} and validation={validation:g}; choose other shares or another split."
            )
    description = _description(how, rule, test, validation, seed, test_from)
    if validation > 0 and validation_how != how:
        description += f"; validation by the {validation_how} rule"
    drawn_by = validation_how if validation > 0 else None
    return _with_strangers_noted(SpreadSplit(train, validated, tested, description, notes, how, drawn_by))


def rolling_splits(
    data: Interactions, folds: int = 3, *, test: float = 0.1, validation: float = 0.1, gap: str | float = 0.0
) -> Iterator[Split]:
    """Splits by time whose tests follow one another: each tests one window on a model of all that came before.

    The windows are the last `folds` shares of `test` of the log, the earliest first.
    """
    if folds < 1 or folds * test >= 1:
        raise InputError(f"{folds} test windows of {_percent(test)} each leave nothing to train on.")
    _check_timestamps(_whole(data), "time")
    assert data.timestamps is not None
    times = np.sort(data.timestamps)
    for fold in range(folds, 0, -1):
        begin = float(times[len(times) - round(fold * test * len(times))])
        end = len(times) - round((fold - 1) * test * len(times))
        known = data if end >= len(times) else data.take(data.timestamps < times[end])
        yield split_interactions(known, validation=validation, how="time", test_from=begin, gap=gap)


def given_split(
    train: Interactions,
    test: Interactions,
    *,
    validation: float = 0.0,
    seed: int = 0,
    validation_part: Interactions | None = None,
    validation_how: str | None = None,
) -> Split:
    """A split from parts that were read one by one, brought to one shared vocabulary.

    A pair belongs to the first part that has it: repeats leave validation, then test. A `validation` share
    is drawn out of train by `validation_how`, best by the rule that the test part was made by; it cannot be combined
    with a given `validation_part`. Left out, it is random; where train is lines of items in an order of their own, it
    is the end of each line.
    """
    if validation > 0 and validation_part is not None:
        raise InputError("give either a validation file or a validation share, not both.")
    _check_shares(0.5, validation, seed)
    validation_how, _ = rule_named(validation_how or ("time" if has_order(train) else "random"))
    named = {"train": train, "validation": validation_part, "test": test}
    parts, notes = share_vocabulary({name: part for name, part in named.items() if part is not None})
    parts, more_notes = _without_repeats(parts)
    notes = tuple(f"{name}: {note}" for name, part in parts.items() for note in part.notes) + notes + more_notes
    description = f"given {' and '.join(parts)} parts"
    if validation > 0:
        everything = parts["train"]
        drawn = _drawn_from(everything, validation, validation_how, seed)
        parts |= {"train": everything.take(~drawn.held_out), "validation": everything.take(drawn.held_out)}
        notes += drawn.notes
        description += f", validation {_percent(validation)} of train, split seed {seed}"
        if validation_how != "random":
            description += f", by the {validation_how} rule"
    for name, part in parts.items():
        if not len(part):
            raise InputError(f"the {name} part is empty, or holds only pairs of an earlier part.")
    drawn_by = validation_how if validation > 0 else None
    given = Split(parts["train"], parts.get("validation"), parts["test"], description, notes, "given", drawn_by)
    return _with_strangers_noted(SpreadSplit.of(given, World.alone())).mine


def held_out_share(pairs: Interactions, share: float, how: str = "random") -> tuple[Interactions, Interactions]:
    """(the rest, what is held out): a part of the pairs drawn by a rule, always the same of the same pairs."""
    held_out = _drawn_from(pairs, share, how, seed=0).held_out
    if not held_out.any():
        raise InputError(f"{len(pairs):,} training pairs are too few to hold some out.")
    return pairs.take(~held_out), pairs.take(held_out)


def _drawn_from(pairs: Interactions, share: float, how: str, seed: int) -> Drawn:
    """A validation part of what one process has whole."""
    log, (how, rule) = _whole(pairs), rule_named(how)
    if rule.needs_times:
        _check_timestamps(log, how)
    return rule.draw(Request(log, share, log.random_keys(seed), seed, "validation"))


def has_order(data: Interactions) -> bool:
    """Whether its times are places in a user's line, as shares of it, and no moments."""
    times = data.timestamps
    return times is not None and len(times) > 0 and bool((times > 0).all() and (times <= 1).all())


def _without_repeats(parts: dict[str, Interactions]) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """The parts without the pairs that an earlier part has, and a note where there were some."""
    kept: dict[str, Interactions] = {}
    notes: tuple[str, ...] = ()
    for name, part in parts.items():
        repeated = np.zeros(len(part), dtype=bool)
        for earlier in kept.values():
            repeated |= earlier.contains(part.users, part.items)
        if repeated.any():
            where = " or ".join(kept)
            n = int(repeated.sum())
            again = "also occurs in {}; it is" if n == 1 else "also occur in {}; they are"
            notes += (f"{count(n, f'{name} pair')} {again.format(where)} left out.",)
        kept[name] = part.take(~repeated)
    return kept, notes


def _with_strangers_noted(split: SpreadSplit) -> SpreadSplit:
    """The split, with a note on test users and items that a model cannot know."""
    known, test = [part for name, part in split.parts().items() if name != "test"], split.test
    new_items = int(((test.popularity > 0) & (sum(part.popularity for part in known) == 0)).sum())
    mine = (test.mine.activity > 0) & (sum(part.mine.activity for part in known) == 0)
    new_users = total_count(test.world, mine.sum())
    if not new_items and not new_users:
        return split
    where = "train" if split.validation is None else "train or validation"
    counts = f"{count(new_items, 'item')} and {count(new_users, 'user')}"
    return replace(split, notes=(*split.notes, f"{counts} of the test part never occur in {where}; they are kept."))


def _whole(data: Interactions) -> SpreadLog:
    return SpreadLog.of(data, World.alone())


def _description(how: str, rule: Rule, test: float, validation: float, seed: int, test_from: str | float | None) -> str:
    share = f"test {_percent(test)} of the pairs"
    rest = f", validation {_percent(validation)} of the rest" if validation > 0 else ", no validation"
    if how == "leave-last-out":
        rest = ", the one before it validation" if validation > 0 else ""
        return f"{rule.label}: each user's last pair is test{rest}"
    if how == "time":
        begin = f"the last pairs are {share}" if test_from is None else f"test from {test_from} on"
        return f"{rule.label}: {begin}{rest}"
    uniform = "items drawn uniformly, " if how == "popularity-shift" else ""
    return f"{rule.label}: {uniform}{share}{rest}, split seed {seed}"


def _check_shares(test: float, validation: float, seed: int) -> None:
    if not 0 < test < 1:
        raise InputError(f"the test share is {test:g}; it must lie between 0 and 1.")
    if not 0 <= validation < 1:
        raise InputError(f"the validation share is {validation:g}; it must be 0 or lie between 0 and 1.")
    if seed < 0:
        raise InputError(f"the split seed is {seed}; it must be 0 or more.")


def _check_timestamps(data: SpreadLog, how: str) -> None:
    times = data.mine.timestamps
    if times is None:
        raise InputError(f"a {how} split needs timestamps; name their column with timestamp= or --timestamp.")
    absent = total_count(data.world, np.isnan(times).sum())
    if absent:
        raise InputError(f"a {how} split needs a timestamp for every pair, but {absent:,} have none.")


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def share_vocabulary(parts: Mapping[str, Interactions]) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """The named parts over the sorted union of their users and items, and a note where ids changed type."""
    names = list(parts)
    users, user_maps, user_notes = _merge("user", names, [part.user_ids for part in parts.values()])
    items, item_maps, item_notes = _merge("item", names, [part.item_ids for part in parts.values()])
    shared = {
        name: Interactions.from_pairs(
            of_user[part.users],
            of_item[part.items],
            ratings=part.ratings,
            timestamps=part.timestamps,
            user_ids=users,
            item_ids=items,
            notes=part.notes,
        )
        for (name, part), of_user, of_item in zip(parts.items(), user_maps, item_maps, strict=True)
    }
    return shared, user_notes + item_notes


def _merge(
    kind: str, names: list[str], vocabularies: list[pa.Array]
) -> tuple[pa.Array, list[np.ndarray], tuple[str, ...]]:
    """(the sorted union, for each vocabulary the new index of each of its ids, notes)."""
    notes: tuple[str, ...] = ()
    if len({ids.type for ids in vocabularies}) > 1:
        pairs = zip(names, vocabularies, strict=True)
        where = " and ".join(name for name, ids in pairs if pa.types.is_integer(ids.type))
        notes = (f"The {kind} ids of {where} are integers, elsewhere strings; all count as strings here.",)
        # An id was made an integer only if that is just how its text was written, so this loses nothing.
        vocabularies = [ids.cast(pa.string()) for ids in vocabularies]
    union = pa.chunked_array(vocabularies).unique()
    union = union.take(pc.sort_indices(union))
    return union, [np.asarray(pc.index_in(ids, value_set=union)) for ids in vocabularies], notes
