"""Where recommendations go: pure functions from lists and item counts to the measures of exposure.

`top` (int [n, k]) holds item indices by rank, `NO_ITEM` in empty slots and `UNKNOWN_ITEM` for an item that
the training data does not know: nobody was seen with it, so its popularity is 0 and it is long-tail.

The slopes are derivatives of a measure by each item's number of slots. Measures that look at all
items at once would need a pass over every list for each draw of a bootstrap. To first order the spread over
users follows from the slopes: a user's influence is their sum over the user's list, and the variance over
users is the sum of squared influences.

Propensities say what a metric would be if every item had been shown alike, from a log that showed popular ones more.
A held-out pair of an item that is shown often stands for few such pairs, one of a rare item for many: each hit is
weighed by 1 / propensity, and a user's weights are scaled to sum 1 (self-normalised; Yang et al. 2018, Schnabel et al.
2016). It assumes that exposure depends on the item's popularity alone, as a power of it, and that every item that could
be wanted has some chance to be shown; propensities below `least` are clipped, which trades bias for variance.
"""

from __future__ import annotations

import numpy as np

from evenhand.data.popularity import gini
from evenhand.metrics.ranking import share

NO_ITEM = -1
"""In a list: the slot is empty, because the list is shorter than k."""
UNKNOWN_ITEM = -2
"""In a list: the slot holds an item outside the vocabulary. It is never a hit, never a negative, and cold."""
PARTS = 10
"""Into how many groups of equal size items are divided by popularity."""
LEAST = 0.01
"""Propensities are at least this share of the largest one."""
STEEPEST = 2.0
"""The largest exponent taken from a log: counts that are nearly alike follow no power law, and give any exponent."""


def average_popularity(top: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """The mean train popularity of each user's list (ARP per user); nan for an empty list.

    >>> average_popularity(np.array([[0, 1], [1, -1], [-1, -1]]), np.array([10, 4]))
    array([ 7.,  4., nan])
    """
    shown = np.where(top >= 0, popularity[np.maximum(top, 0)], 0).sum(axis=1)
    return share(shown, np.count_nonzero(top != NO_ITEM, axis=1), empty=np.nan)


def long_tail_count(top: np.ndarray, hot: np.ndarray) -> np.ndarray:
    """How many items of each list are not hot; its mean is ACLT.

    >>> long_tail_count(np.array([[0, 1], [1, -2], [-1, -1]]), np.array([True, False]))
    array([1, 2, 0])
    """
    return np.count_nonzero((top != NO_ITEM) & ~((top >= 0) & hot[np.maximum(top, 0)]), axis=1)


def long_tail_share(top: np.ndarray, hot: np.ndarray) -> np.ndarray:
    """The share of each list's items that are not hot; its mean is APLT; nan for an empty list.

    >>> long_tail_share(np.array([[0, 1], [1, -2], [-1, -1]]), np.array([True, False]))
    array([0.5, 1. , nan])
    """
    return share(long_tail_count(top, hot), np.count_nonzero(top != NO_ITEM, axis=1), empty=np.nan)


def exposure_counts(top: np.ndarray, n_items: int) -> np.ndarray:
    """int64 [n_items]: in how many slots each item of the catalogue stands.

    >>> exposure_counts(np.array([[0, 2], [2, -1]]), n_items=3)
    array([1, 0, 2])
    """
    return np.bincount(top[top >= 0], minlength=n_items)


def unevenness(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """std / mean of two probabilities (population std), which is |a − b| / (a + b): 0 when equal, 1 at most.

    PopREO takes the chance that a wanted item is shown, hot and cold; PopRSP that of any item. nan for 0, 0.

    >>> round(float(unevenness(0.3, 0.1)), 3)
    0.5
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(first - second) / (first + second)


def coverage(counts: np.ndarray) -> float:
    """The share of the catalogue that is shown to anybody.

    >>> coverage(np.array([3, 0, 1, 0]))
    0.5
    """
    return float(np.count_nonzero(counts) / len(counts))


def shannon_entropy(counts: np.ndarray) -> float:
    """−Σ p·log2 p over the items' shares p of all slots, in bits: from 0 to log2 n; nan without a slot.

    >>> shannon_entropy(np.array([2, 2, 0]))
    1.0
    """
    shown = counts[counts > 0]
    if not len(shown):
        return np.nan
    part = shown / shown.sum()
    return float(-(part * np.log2(part)).sum()) + 0.0


def jensen_shannon(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The Jensen–Shannon distance of two distributions (last axis; they are scaled to sum 1), base 2: 0 to 1.

    The square root of the mean Kullback–Leibler divergence from both to their middle. nan for an empty one.

    >>> float(jensen_shannon(np.array([1, 0]), np.array([0, 3])))
    1.0
    """
    p, q = (np.asarray(side, dtype=np.float64) for side in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
        middle = (p + q) / 2
        halves = [np.where(side > 0, side * np.log2(side / middle), 0.0 * side) for side in (p, q)]
    return np.sqrt(np.maximum((halves[0] + halves[1]).sum(axis=-1) / 2, 0.0))


def total_variation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """½ Σ |p − q| of two distributions (last axis; they are scaled to sum 1): 0 to 1.

    The part of one that would have to move for it to become the other. nan for an empty one.

    >>> float(total_variation(np.array([3, 1]), np.array([1, 1])))
    0.25
    """
    p, q = (np.asarray(side, dtype=np.float64) for side in (first, second))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(p / p.sum(axis=-1, keepdims=True) - q / q.sum(axis=-1, keepdims=True)).sum(axis=-1) / 2


def items_for_half(counts: np.ndarray) -> float:
    """The least number of items that hold half of all slots; nan without a slot.

    >>> items_for_half(np.array([1, 4, 2, 1]))
    1.0
    """
    held = np.cumsum(np.sort(counts)[::-1])
    return float(np.searchsorted(held, held[-1] / 2) + 1) if len(held) and held[-1] else np.nan


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


def lorenz_points(counts: np.ndarray, points: int = 101) -> tuple[tuple[float, float], ...]:
    """The Lorenz curve: (share of items, share of slots), least exposed first, from (0, 0) to (1, 1).

    >>> lorenz_points(np.array([3, 1]))
    ((0.0, 0.0), (0.5, 0.25), (1.0, 1.0))
    """
    held = np.concatenate([[0.0], np.cumsum(np.sort(counts), dtype=np.float64)])
    if held[-1] == 0:
        return ((0.0, 0.0), (1.0, 1.0))
    places = np.unique(np.linspace(0, len(counts), min(points, len(counts) + 1)).round().astype(int))
    return tuple((float(place / len(counts)), float(held[place] / held[-1])) for place in places)


def gini_slope(counts: np.ndarray) -> np.ndarray:
    """float64 [n_items]: d gini / d counts; equal counts share the mean of their ranks.

    >>> gini_slope(np.array([1, 3])).round(4)
    array([-0.1875,  0.0625])
    """
    n, total = len(counts), counts.sum()
    if not total:
        return np.zeros(n)
    _, which, size = np.unique(counts, return_inverse=True, return_counts=True)
    rank = (np.cumsum(size) - (size - 1) / 2)[which]
    return ((2 * rank - n - 1) / n - gini(counts)) / total


def entropy_slope(counts: np.ndarray) -> np.ndarray:
    """float64 [n_items]: d entropy / d counts, in bits; 0 where nothing is shown.

    >>> entropy_slope(np.array([2, 2, 0])) + 0.0
    array([0., 0., 0.])
    """
    total = counts.sum()
    slope = np.zeros(len(counts))
    shown = counts > 0
    if not total:
        return slope
    part = counts[shown] / total
    slope[shown] = -(np.log2(part) - (part * np.log2(part)).sum()) / total
    return slope


def coverage_slope(counts: np.ndarray) -> np.ndarray:
    """float64 [n_items]: what coverage loses without the item's one slot, so 0 where others show it too.

    >>> coverage_slope(np.array([1, 5]))
    array([0.5, 0. ])
    """
    return (counts == 1) / len(counts)


def items_for_half_slope(counts: np.ndarray) -> np.ndarray:
    """float64 [n_items]: d items_for_half / d counts, its steps taken as straight lines.

    >>> items_for_half_slope(np.array([4, 4, 2]))
    array([-0.125 ,  0.0625,  0.125 ])
    """
    needed = items_for_half(counts)
    if np.isnan(needed):
        return np.zeros(len(counts))
    last = int(needed) - 1
    order = np.argsort(-counts, kind="stable")
    slots = counts[order[last]]
    slope = np.full(len(counts), 0.5)
    slope[order[:last]] = -0.5
    # Of the last item's slots only a part is needed to reach half.
    slope[order[last]] = 0.5 - (counts.sum() / 2 - counts[order[:last]].sum()) / slots
    return slope / slots


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

    `(count / largest count)^exponent`, at least `least`. Where no exponent is given it is (g + 1) / 2 as in Yang et
    al., with g from the counts, and at most 2. Items without a pair have `least`; without any pair all items are alike.

    >>> propensities(np.array([16, 4, 1, 0]), exponent=0.5, least=0.1)
    array([1.  , 0.5 , 0.25, 0.1 ])
    """
    top = counts.max(initial=0)
    if not top > 0:  # nothing was shown, or nothing is known
        return np.ones(len(counts)) + 0.0 * counts
    power = min((power_law_exponent(counts) + 1) / 2, STEEPEST) if exponent is None else exponent
    return np.maximum((counts / top) ** power, least)
