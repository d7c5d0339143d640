"""What lists are audited against: what users have had, what they wanted, and which items are hot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, given_split
from evenhand.metrics.slots import ItemPopularity
from evenhand.utils.errors import InputError

CHUNK_PAIRS = 2_000_000
"""How many known pairs are looked at together."""


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
    rule = hot if isinstance(hot, HotRule) else HotRule.parse(hot)
    is_hot = rule.mask(split)
    if test is None and rule.count_all:
        notes.append("Without a test part the paper's hot rule counts train alone.")
    if not is_hot.any() or is_hot.all():
        which = "no item is" if not is_hot.any() else "all items are"
        notes.append(f"By the rule ({rule.describe()}) {which} hot.")
    items = ItemPopularity.of(split.consumed, split.n_items)
    return Reference(split, rule, is_hot, items, _taste(split.consumed, is_hot), tuple(notes))


def _split(train: Any, validation: Any, test: Any, reading: Mapping[str, Any]) -> tuple[Split, list[str]]:
    def read(name: str, source: Any) -> Interactions | None:
        from evenhand.data.reading.read import read_interactions

        if source is None or isinstance(source, Interactions):
            return source
        return read_interactions(source, **reading, allow_small=name != "train")

    past = read("train", train)
    if past is None or not len(past):
        raise InputError("the train part is empty, so there is no popularity to audit against.")
    between = read("validation", validation)
    if test is None:
        notes = [f"train: {note}" for note in past.notes]
        notes.append("Without a test part only exposure is measured: nobody knows what users wanted.")
        if between is None:
            return Split(past, None, past.take(np.zeros(len(past), dtype=bool)), "train only"), notes
        split = given_split(past, between)  # as test for now, for the shared vocabulary
        nothing = split.train.take(np.zeros(len(split.train), dtype=bool))
        return Split(split.train, split.test, nothing, "train and validation"), notes
    wanted = read("test", test)
    assert wanted is not None
    split = given_split(past, wanted, validation_part=between)
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
