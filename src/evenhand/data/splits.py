"""Train, validation and test parts of one log, over one vocabulary of users and items.

Every table evenhand prints rests on a split, so a split must come out the same for the same seed, whatever
the order of the file's rows, and must say in words how it came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count

TRAIN, VALIDATION, TEST = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint parts that share one vocabulary of users and items."""

    train: Interactions
    validation: Interactions | None
    test: Interactions
    description: str
    """How the parts came about, for reports."""
    notes: tuple[str, ...] = ()
    """What a reader should know about these parts, one sentence each."""

    @cached_property
    def consumed(self) -> Interactions:
        """Train and validation together: what a user already has when test items are recommended."""
        return self.train if self.validation is None else self.train.union(self.validation)

    @cached_property
    def hot_masks(self) -> dict[Any, np.ndarray]:
        """By rule, where `HotRule.mask` keeps what it found."""
        return {}

    def parts(self) -> dict[str, Interactions]:
        """The parts that there are, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def n_users(self) -> int:
        return self.train.n_users

    @property
    def n_items(self) -> int:
        return self.train.n_items

    def __repr__(self) -> str:
        validation = 0 if self.validation is None else len(self.validation)
        sizes = f"train {len(self.train):,}, validation {validation:,}, test {len(self.test):,}"
        return f"Split({sizes}; {count(self.n_users, 'user')} × {count(self.n_items, 'item')})"


def split_interactions(
    data: Interactions, *, test: float = 0.2, validation: float = 0.1, seed: int = 0, how: str = "random"
) -> Split:
    """Split one log; `test` is a share of all pairs, `validation` of what then remains (0: no such part).

    - random: pairs drawn over the whole log.
    - per-user: that share of each user's pairs, rounded down, so that nobody's only pair leaves train.
    - leave-last-out: each user's last pair is test and, if there is a validation part, the one before it
      is validation; users with too few pairs to keep one in train stay there whole. Shares do not matter.
    - time: the last pairs of the whole log; pairs of one moment stay on one side where they can.
    """
    _check_shares(test, validation, seed)
    if how not in RULES:
        raise unknown("split", how, RULES)
    if how in ("leave-last-out", "time"):
        _check_timestamps(data, how)
    part, description, notes = RULES[how](data, test, validation, seed)
    parts = [data.take(part == which) for which in (TRAIN, VALIDATION, TEST)]
    for name, pairs in zip(("train", "validation", "test"), parts, strict=True):
        if not len(pairs) and (name != "validation" or validation > 0):
            raise InputError(
                f"the {name} part of the {how} split is empty: {len(data):,} pairs are too few for "
                f"test={test:g} and validation={validation:g}; choose other shares or another split."
            )
    return _describe(parts[TRAIN], parts[VALIDATION] if validation > 0 else None, parts[TEST], description, notes)


def given_split(
    train: Interactions,
    test: Interactions,
    *,
    validation: float = 0.0,
    seed: int = 0,
    validation_part: Interactions | None = None,
) -> Split:
    """A split from parts that were read one by one, brought to one shared vocabulary.

    A pair belongs to the first part that has it: repeats leave validation, then test. A `validation` share
    is drawn out of train; it cannot be combined with a given `validation_part`.
    """
    if validation > 0 and validation_part is not None:
        raise InputError("give either a validation file or a validation share, not both.")
    _check_shares(0.5, validation, seed)
    given = {"train": train, "validation": validation_part, "test": test}
    parts, notes = share_vocabulary({name: part for name, part in given.items() if part is not None})
    parts, more_notes = _without_repeats(parts)
    notes += more_notes
    description = f"given {' and '.join(parts)} parts"
    if validation > 0:
        whole = parts["train"]
        held_out = np.zeros(len(whole), dtype=bool)
        held_out[_draw(len(whole), seed)[: round(validation * len(whole))]] = True
        parts |= {"train": whole.take(~held_out), "validation": whole.take(held_out)}
        description += f", validation {_percent(validation)} of train, split seed {seed}"
    for name, part in parts.items():
        if not len(part):
            raise InputError(f"the {name} part is empty, or holds only pairs of an earlier part.")
    return _describe(parts["train"], parts.get("validation"), parts["test"], description, notes)


def held_out_share(pairs: Interactions, share: float) -> tuple[Interactions, Interactions]:
    """(the rest, what is held out): a random part of the pairs, always the same of the same pairs."""
    held_out = np.zeros(len(pairs), dtype=bool)
    held_out[_draw(len(pairs), 0)[: round(share * len(pairs))]] = True
    if not held_out.any():
        raise InputError(f"{len(pairs):,} training pairs are too few to hold some out.")
    return pairs.take(~held_out), pairs.take(held_out)


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
            told = "also occurs in {}; it is" if n == 1 else "also occur in {}; they are"
            notes += (f"{count(n, f'{name} pair')} {told.format(where)} left out.",)
        kept[name] = part.take(~repeated)
    return kept, notes


def _describe(
    train: Interactions,
    validation: Interactions | None,
    test: Interactions,
    description: str,
    notes: tuple[str, ...],
) -> Split:
    """The split, with a note on test users and items that a model cannot know."""
    known = [train] if validation is None else [train, validation]
    new_items = (test.popularity > 0) & (sum(part.popularity for part in known) == 0)
    new_users = (test.activity > 0) & (sum(part.activity for part in known) == 0)
    if new_items.any() or new_users.any():
        where = "train" if validation is None else "train or validation"
        counts = f"{count(int(new_items.sum()), 'item')} and {count(int(new_users.sum()), 'user')}"
        notes += (f"{counts} of the test part never occur in {where}; they are kept.",)
    return Split(train, validation, test, description, notes)


# The four rules: each labels every pair with its part.

Labels = tuple[np.ndarray, str, tuple[str, ...]]


def _random(data: Interactions, test: float, validation: float, seed: int) -> Labels:
    order = _draw(len(data), seed)
    n_test = round(test * len(data))
    n_validation = round(validation * (len(data) - n_test))
    part = np.full(len(data), TRAIN, dtype=np.int8)
    part[order[:n_test]] = TEST
    part[order[n_test : n_test + n_validation]] = VALIDATION
    return part, f"random: {_shares(test, validation)}, split seed {seed}", ()


def _per_user(data: Interactions, test: float, validation: float, seed: int) -> Labels:
    keys = np.random.PCG64(seed).random_raw(len(data))
    place = _place_in_row(data, np.lexsort((keys, data.users)))
    n_test = _floor_share(test, data.activity)
    n_validation = _floor_share(validation, data.activity - n_test)
    part = np.full(len(data), TRAIN, dtype=np.int8)
    part[place < (n_test + n_validation)[data.users]] = VALIDATION
    part[place < n_test[data.users]] = TEST
    return part, f"per user: {_shares(test, validation)}, split seed {seed}", ()


def _leave_last_out(data: Interactions, test: float, validation: float, seed: int) -> Labels:
    assert data.timestamps is not None
    # Pairs of one moment count in the order of their items, so that the outcome is one and the same.
    place = _place_in_row(data, np.lexsort((data.items, data.timestamps, data.users)))
    from_end = data.activity[data.users] - 1 - place
    enough = data.activity[data.users] >= (3 if validation > 0 else 2)
    part = np.full(len(data), TRAIN, dtype=np.int8)
    part[enough & (from_end == 0)] = TEST
    if validation > 0:
        part[enough & (from_end == 1)] = VALIDATION
    extra = ", the one before it validation" if validation > 0 else ""
    return part, f"leave last out: each user's last pair is test{extra}", ()


def _time(data: Interactions, test: float, validation: float, seed: int) -> Labels:
    assert data.timestamps is not None
    order = np.lexsort((np.random.PCG64(seed).random_raw(len(data)), data.timestamps))
    times = data.timestamps[order]
    part = np.full(len(data), TRAIN, dtype=np.int8)
    notes: tuple[str, ...] = ()
    end = len(data)
    for which, name, share in ((TEST, "test", test), (VALIDATION, "validation", validation)):
        start = _cut_between_moments(times[:end], share)
        part[order[start:end]] = which
        if 0 < start < end and times[start - 1] == times[start]:
            notes += (f"The {name} part starts amid pairs of one moment, divided by split seed {seed}.",)
        end = start
    return part, f"by time: the last pairs are {_shares(test, validation)}", notes


RULES = {"random": _random, "per-user": _per_user, "leave-last-out": _leave_last_out, "time": _time}


def _draw(n: int, seed: int) -> np.ndarray:
    """A random order of n things. Sorting raw bits keeps it the same across numpy versions."""
    return np.argsort(np.random.PCG64(seed).random_raw(n), kind="stable")


def _place_in_row(data: Interactions, order: np.ndarray) -> np.ndarray:
    """For each pair its place (from 0) among its user's pairs, when `order` sorts users first."""
    place = np.empty(len(data), dtype=np.int64)
    place[order] = np.arange(len(data)) - data.indptr[data.users]
    return place


def _floor_share(share: float, counts: np.ndarray) -> np.ndarray:
    """floor(share * count), as in decimal: 0.29 of 100 is 29 although 0.29 * 100 < 29 in binary."""
    floors = np.floor(share * counts + 1e-9).astype(np.int64)
    return np.minimum(floors, np.maximum(counts - 1, 0))


def _cut_between_moments(times: np.ndarray, share: float) -> int:
    """Where the last share of the sorted times begins, moved to the nearest change of moment, if any."""
    cut = len(times) - round(share * len(times))
    if not 0 < cut < len(times):
        return cut
    moment = times[cut]
    sides = (int(np.searchsorted(times, moment, side)) for side in ("left", "right"))
    inner = [side for side in sides if 0 < side < len(times)]
    return min(inner, key=lambda side: abs(side - cut), default=cut)


# Checks and words.


def _check_shares(test: float, validation: float, seed: int) -> None:
    if not 0 < test < 1:
        raise InputError(f"the test share is {test:g}; it must lie between 0 and 1.")
    if not 0 <= validation < 1:
        raise InputError(f"the validation share is {validation:g}; it must be 0 or lie between 0 and 1.")
    if seed < 0:
        raise InputError(f"the split seed is {seed}; it must be 0 or more.")


def _check_timestamps(data: Interactions, how: str) -> None:
    if data.timestamps is None:
        raise InputError(f"a {how} split needs timestamps; name their column with timestamp= or --timestamp.")
    absent = int(np.isnan(data.timestamps).sum())
    if absent:
        raise InputError(f"a {how} split needs a timestamp for every pair, but {absent:,} have none.")


def _shares(test: float, validation: float) -> str:
    rest = f", validation {_percent(validation)} of the rest" if validation > 0 else ", no validation"
    return f"test {_percent(test)} of the pairs{rest}"


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def share_vocabulary(
    parts: Mapping[str, Interactions],
) -> tuple[dict[str, Interactions], tuple[str, ...]]:
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
    import pyarrow.compute as pc

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
