"""Recommendation lists as arrays: what each slot holds, and what is known of the users they are for.

Every metric of the catalogue is a function of `Slots`. Nothing is computed before a metric asks for it, since
training asks for one metric after each epoch and a report for all of them once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.metrics.formulas import NO_ITEM, share

PARTS = 10
"""Into how many groups of equal size items are divided by popularity."""
LEAST = 0.01
"""Propensities are at least this share of the largest one."""
STEEPEST = 2.0
"""The largest exponent taken from a log: counts that are nearly alike follow no power law, and give any exponent."""


@dataclass(frozen=True, eq=False)
class ItemPopularity:
    """How popular each item is."""

    counts: np.ndarray
    """[n_items]: interactions; nan where nothing is known."""
    decile: np.ndarray
    """int8 [n_items]: 0 holds the most popular tenth of the items; −1 where nothing is known."""

    @staticmethod
    def of(known: Interactions | SpreadLog | None, n_items: int) -> ItemPopularity:
        if known is None:
            return ItemPopularity(np.full(n_items, np.nan), np.full(n_items, -1, dtype=np.int8))
        return ItemPopularity(known.popularity, popularity_part(known.popularity))


@dataclass(frozen=True, eq=False)
class AnswerSheet:
    """What scoring lists needs to know of their users: the same whoever made the lists."""

    users: np.ndarray
    """int [n]: whose lists are scored."""
    truth: Interactions
    """The test part."""
    hot: np.ndarray
    """bool [n_items]"""
    consumed: Interactions | None = None
    """What users interacted with: train and validation. Without it every item outside the truth is a negative, and
    popularity is unknown."""
    shown_again: bool = True
    """Whether a list may hold an item of `consumed`; the lists of our own models never do."""
    all_users: ItemPopularity | None = None
    """Where `consumed` is a part of the users only: popularity among all of them."""
    demand_part: Interactions | None = None
    """Whose pairs are the demand that exposure is compared with; None: the truth."""

    @cached_property
    def had(self) -> Interactions:
        """`consumed`; without it, nothing."""
        return self.truth.take(np.zeros(len(self.truth), dtype=bool)) if self.consumed is None else self.consumed

    @cached_property
    def n_relevant(self) -> np.ndarray:
        """int [n]: the user's test items."""
        return self.truth.activity[self.users]

    @cached_property
    def n_relevant_hot(self) -> np.ndarray:
        return _per_user(self.truth, self.hot[self.truth.items])[self.users]

    @property
    def n_relevant_cold(self) -> np.ndarray:
        return self.n_relevant - self.n_relevant_hot

    @cached_property
    def n_negatives(self) -> np.ndarray:
        """int [n]: the items that are neither in test nor consumed."""
        in_both = _per_user(self.truth, self.had.contains(self.truth.users, self.truth.items))[self.users]
        return self.truth.n_items - self.n_relevant - self.n_consumed + in_both

    @cached_property
    def propensity(self) -> np.ndarray:
        """float64 [n_items]: how likely each item was to be shown, by its popularity; nan where that is unknown."""
        return propensities(self.popularity)

    @cached_property
    def wanted_evenly(self) -> np.ndarray:
        """float64 [n]: the user's test items, each counted 1 / propensity times."""
        weights = 1 / self.propensity[self.truth.items]
        return np.bincount(self.truth.users, weights, minlength=self.truth.n_users)[self.users]

    @cached_property
    def items(self) -> ItemPopularity:
        return self.all_users or ItemPopularity.of(self.consumed, self.truth.n_items)

    @property
    def popularity(self) -> np.ndarray:
        return self.items.counts

    @property
    def decile(self) -> np.ndarray:
        return self.items.decile

    @cached_property
    def n_consumed(self) -> np.ndarray:
        return self.had.activity[self.users]

    @cached_property
    def n_consumed_hot(self) -> np.ndarray:
        return _per_user(self.had, self.hot[self.had.items])[self.users]

    @cached_property
    def habit(self) -> np.ndarray:
        """float64 [n]: mean popularity of the items that the user has had, nan without any."""
        of_items = self.popularity[self.had.items]
        total = np.bincount(self.had.users, of_items, minlength=self.had.n_users)[self.users]
        return share(total, self.n_consumed, empty=np.nan)

    @cached_property
    def demand(self) -> np.ndarray:
        """float64 [n, 10]: how many items of each decile the user wants."""
        return pairs_by_part(self.demand_part or self.truth, self.users, self.decile, PARTS)


@dataclass(frozen=True, eq=False)
class Slots:
    """One list for each user of a sheet; every mask is bool [n, k]."""

    sheet: AnswerSheet
    top: np.ndarray
    """int [n, k]: item indices by rank, no item twice in a row; `NO_ITEM` in empty slots."""

    @cached_property
    def hits(self) -> np.ndarray:
        """The slot holds a test item of the user."""
        return _contains(self.sheet.truth, self.sheet.users, self.top)

    @cached_property
    def repeats(self) -> np.ndarray:
        """The slot holds an item of `consumed`."""
        if not self.sheet.shown_again:
            return np.zeros(self.top.shape, dtype=bool)
        return _contains(self.sheet.had, self.sheet.users, self.top)

    @cached_property
    def hot(self) -> np.ndarray:
        known = self.top >= 0
        return known & self.sheet.hot[np.where(known, self.top, 0)] if len(self.top) else known

    @cached_property
    def cold(self) -> np.ndarray:
        return (self.top != NO_ITEM) & ~self.hot

    @cached_property
    def negatives(self) -> np.ndarray:
        """The slot holds a negative. An item of `consumed` is a miss, but no negative."""
        return (self.top >= 0) & ~self.hits & ~self.repeats


def by_part(top: np.ndarray, mask: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """float64 [n, parts]: how many of each row's marked slots hold an item of each part (−1: of none)."""
    row, slot = np.nonzero(mask)
    return counts_by_part(row, part[top[row, slot]], len(top), parts)


def counts_by_part(row: np.ndarray, part: np.ndarray, n: int, parts: int) -> np.ndarray:
    """float64 [n, parts]: how often each row and part (−1: none) occur together.

    >>> counts_by_part(np.array([0, 1, 1, 1]), np.array([1, 0, -1, 0]), n=2, parts=2)
    array([[0., 1.],
           [2., 0.]])
    """
    key = (row * parts + part.astype(np.int64))[part >= 0]
    return np.bincount(key, minlength=n * parts).reshape(n, parts).astype(np.float64)


def popularity_part(popularity: np.ndarray, parts: int = PARTS) -> np.ndarray:
    """int8 [n_items]: the item's decile, 0 for the most popular; equal popularity in the order of the ids.

    The items are sorted by popularity, highest first, and the one at position p (from 0) of n goes into
    decile floor(10·p / n), so that deciles differ in size by one at most.

    >>> popularity_part(np.array([5, 9, 5, 1]), parts=2)
    array([0, 0, 1, 1], dtype=int8)
    """
    order = np.argsort(-np.asarray(popularity), kind="stable")
    part = np.empty(len(order), dtype=np.int8)
    part[order] = np.arange(len(order)) * parts // max(len(order), 1)
    return part


def power_law_exponent(counts: np.ndarray) -> float:
    """The exponent g of P(count = c) ∝ c^-g, by maximum likelihood over items with a pair (Clauset et al. 2009).

    nan without any item. Counts that are all alike have a large g.

    >>> round(power_law_exponent(np.array([1, 1, 1, 1, 2, 3, 8])), 3)
    1.802
    """
    seen = counts[counts > 0].astype(np.float64)
    if not len(seen):
        return np.nan
    return float(1 + len(seen) / np.log(seen / (seen.min() - 0.5)).sum())


def propensities(counts: np.ndarray, exponent: float | None = None, least: float = LEAST) -> np.ndarray:
    """float64 [n_items]: how likely an item is to be shown, relative to the most popular one.

    `(count / largest count)^exponent`, at least `least`, which trades bias for variance. Where no exponent is given it
    is (g + 1) / 2 as in Yang et al. 2018, with g from the counts, and at most 2. Items without a pair have `least`;
    without any pair all items are alike. Hits weighed by 1 / propensity say what a metric would be if every item had
    been shown alike, provided that exposure depends on popularity alone and every item has some chance to be shown.

    >>> propensities(np.array([16, 4, 1, 0]), exponent=0.5, least=0.1)
    array([1.  , 0.5 , 0.25, 0.1 ])
    """
    top = counts.max(initial=0)
    if not top > 0:  # nothing was shown, or nothing is known
        return np.ones(len(counts)) + 0.0 * counts
    power = min((power_law_exponent(counts) + 1) / 2, STEEPEST) if exponent is None else exponent
    return np.maximum((counts / top) ** power, least)


def pairs_by_part(data: Interactions, users: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """float64 [n, parts]: how many items of each part these users have in the data."""
    return counts_by_part(data.users.astype(np.int64), part[data.items], data.n_users, parts)[users]


def _per_user(pairs: Interactions, mask: np.ndarray) -> np.ndarray:
    """How many pairs of each user the mask marks."""
    return np.bincount(pairs.users[mask], minlength=pairs.n_users)


def _contains(part: Interactions, users: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Which slots hold an item of their user; in halves, where there is not enough memory for all at once."""
    try:
        return part.contains(users[:, None], top)
    except MemoryError:
        if len(top) < 2:
            raise
    middle = len(top) // 2
    return np.concatenate([_contains(part, users[half], top[half]) for half in (slice(middle), slice(middle, None))])
