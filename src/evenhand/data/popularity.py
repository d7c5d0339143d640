"""How unevenly interactions are spread over items, and which items count as hot.

The border between hot and cold moves every bias measure, so a rule for it is a value that can be parsed and printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.utils.errors import InputError
from evenhand.utils.text import parse_integer

if TYPE_CHECKING:
    from evenhand.data.splits import Split


DEFAULT_SHARE = 0.15
"""Of the items, which are hot."""


def gini(counts: Any) -> float:
    """The Gini coefficient of non-negative counts: 0 when all are equal, (n - 1) / n when one has everything.

    Items without any count belong in `counts` as zeros; of no counts, or only zeros, it is 0.

    >>> gini([5, 5, 5]), gini([0, 0, 9])
    (0.0, 0.6666666666666666)
    """
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())
    n, total = len(ordered), ordered.sum()
    if total == 0:
        return 0.0
    return float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * total))


def share_of_hottest(counts: Any, share: float = DEFAULT_SHARE) -> float:
    """The part of all counts that falls on the hottest `share` of items (at least one item).

    >>> share_of_hottest([1, 1, 1, 7], share=0.25)
    0.7
    """
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())[::-1]
    hottest = max(1, round(share * len(ordered)))
    total = ordered.sum()
    return float(ordered[:hottest].sum() / total) if total else 0.0


def hot_items(popularity: np.ndarray, share: float = DEFAULT_SHARE) -> np.ndarray:
    """bool [n_items]: the items at least as popular as the one that opens the top `share`.

    That item stands at position int((1 - share) * n_items), from 0, in ascending order. Ties with it are hot
    too, so the set may be larger than the share; an item without an interaction is never hot.

    >>> hot_items(np.array([5, 1, 3, 3, 0]), share=0.4)
    array([ True, False,  True,  True, False])
    """
    if not 0 < share < 1:
        raise InputError(f"the share of hot items is {share:g}; it must lie between 0 and 1.")
    popularity = np.asarray(popularity)
    n_items = len(popularity)
    if not n_items:
        return np.zeros(0, dtype=bool)
    # Rounding first undoes binary dust such as (1 - 0.9) * 10 = 0.99…98.
    position = min(int(round((1 - share) * n_items, 6)), n_items - 1)
    threshold = np.partition(popularity, position)[position]
    return popularity >= max(threshold, 1)


@dataclass(frozen=True)
class HotRule:
    """How metrics tell hot items from cold ones: a share of the items, or a least number of interactions."""

    share: float | None = DEFAULT_SHARE
    """The top share of the items is hot (see `hot_items`); None where `at_least` decides."""
    at_least: int | None = None
    """Items with this many train interactions are hot."""
    count_all: bool = False
    """Count the interactions of train, validation and test, as the paper does, instead of train alone."""

    def __post_init__(self) -> None:
        if (self.share is None) == (self.at_least is None):
            raise InputError("a hot rule has either a share of the items or a least number of interactions.")
        if self.share is not None and not 0 < self.share < 1:
            raise InputError(f"the share of hot items is {self.share:g}; it must lie between 0 and 1.")
        if self.at_least is not None and self.at_least < 1:
            raise InputError(f"hot items from {self.at_least} interactions on make no sense; it must be 1 or more.")

    @staticmethod
    def parse(text: str | float | HotRule) -> HotRule:
        """paper, honest, a share of the items between 0 and 1, or a least number of train interactions; or a rule.

        >>> HotRule.parse("paper").describe()
        'the top 15 % of the items by interactions in train, validation and test'
        >>> HotRule.parse("50").describe()
        'items with at least 50 train interactions'
        """
        if isinstance(text, HotRule):
            return text
        word = str(text).strip()
        if word == "paper":
            return HotRule(count_all=True)
        if word == "honest":
            return HotRule()
        number = parse_integer(word)
        if number:
            return HotRule(share=None, at_least=number)
        try:
            share = float(word)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise InputError(
                f"unknown hot rule '{text}'; say paper, honest, a share between 0 and 1, "
                "or a whole number of train interactions."
            )
        return HotRule(share=share)

    def mask(self, split: Split) -> np.ndarray:
        """bool [n_items]: which items of this split are hot; found once and kept with the split."""
        if self not in split.hot_masks:
            popularity = split.train.popularity
            if self.count_all:
                popularity = split.consumed.popularity + split.test.popularity
            hot = hot_items(popularity, self.share) if self.share is not None else popularity >= self.at_least
            split.hot_masks[self] = hot
        return split.hot_masks[self]

    def describe(self) -> str:
        where = "train, validation and test" if self.count_all else "train"
        if self.at_least is not None:
            return f"items with at least {self.at_least:,} {where} interactions"
        assert self.share is not None
        return f"the top {100 * self.share:g} % of the items by interactions in {where}"
