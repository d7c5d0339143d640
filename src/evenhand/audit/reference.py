"""What lists are judged against: train, test if there is one, which items are hot, what users are used to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.audit.exposure import popularity_part
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, given_split
from evenhand.utils.errors import InputError

CHUNK_PAIRS = 2_000_000
"""How many train pairs are looked at together."""


@dataclass(frozen=True, eq=False)
class Ground:
    """The data side of an audit, over one vocabulary of users and items."""

    split: Split
    """Without a test file its test part is empty."""
    rule: HotRule
    popularity: np.ndarray
    """int64 [n_items]: in train."""
    hot: np.ndarray
    """bool [n_items]"""
    decile: np.ndarray
    """int8 [n_items]: 0 holds the most popular tenth of the items."""
    habit: np.ndarray
    """float64 [n_users]: mean train popularity of the user's train items, nan without any."""
    taste: np.ndarray
    """float64 [n_users]: share of hot items among the user's train items, nan without any."""
    notes: tuple[str, ...]

    @property
    def train(self) -> Interactions:
        return self.split.train

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
        """The share of each decile in the interactions of train and test."""
        parts = {"train": self.train, "test": self.test}
        return {
            name: tuple((np.bincount(self.decile, part.popularity, minlength=10) / len(part)).tolist())
            for name, part in parts.items()
            if len(part)
        }


def lay_ground(train: Any, test: Any, hot: Any, reading: dict[str, Any]) -> Ground:
    """Read what has to be read, bring train and test to one vocabulary, and say which items are hot."""
    split, notes = _split(train, test, reading)
    rule = hot if isinstance(hot, HotRule) else HotRule.parse(hot)
    is_hot = rule.mask(split)
    if test is None and rule.count_all:
        notes.append("Without a test part the paper's hot rule counts train alone.")
    if not is_hot.any() or is_hot.all():
        which = "no item is" if not is_hot.any() else "all items are"
        notes.append(f"By the rule ({rule.describe()}) {which} hot.")
    habit, taste = _habits(split.train, is_hot)
    popularity = split.train.popularity
    return Ground(split, rule, popularity, is_hot, popularity_part(popularity), habit, taste, tuple(notes))


def _split(train: Any, test: Any, reading: dict[str, Any]) -> tuple[Split, list[str]]:
    from evenhand.data.reading.read import read_interactions

    past = train if isinstance(train, Interactions) else read_interactions(train, **reading)
    if not len(past):
        raise InputError("the train part is empty, so there is no popularity to audit against.")
    if test is None:
        notes = [f"train: {note}" for note in past.notes]
        notes.append("Without a test part only exposure is measured: nobody knows what users wanted.")
        return Split(past, None, _nothing(past), "train only"), notes
    given = isinstance(test, Interactions)
    wanted = test if given else read_interactions(test, **reading, allow_small=True)
    split = given_split(past, wanted)
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
    """Consecutive ranges of users: at most so many, and few enough to hold their pairs in memory."""
    start = 0
    while start < data.n_users:
        stop = int(np.searchsorted(data.indptr, data.indptr[start] + CHUNK_PAIRS, side="right")) - 1
        stop = min(max(stop, start + 1), start + most_users, data.n_users)
        yield start, stop
        start = stop


def _habits(train: Interactions, hot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    habit, taste = (np.full(train.n_users, np.nan) for _ in range(2))
    for start, stop in user_ranges(train, train.n_users):
        part = part_of(train, start, stop)
        had = np.maximum(part.activity, 1).astype(np.float64)
        had[part.activity == 0] = np.nan
        habit[start:stop] = np.bincount(part.users, train.popularity[part.items], minlength=stop - start) / had
        taste[start:stop] = np.bincount(part.users, hot[part.items], minlength=stop - start) / had
    return habit, taste


def _nothing(like: Interactions) -> Interactions:
    return Interactions(
        user_ids=like.user_ids,
        item_ids=like.item_ids,
        indptr=np.zeros(like.n_users + 1, dtype=np.int64),
        items=np.zeros(0, dtype=np.int32),
    )
