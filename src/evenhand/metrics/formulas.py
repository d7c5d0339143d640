"""The formulas of the metrics as pure functions: how good lists are, how often they err, and where exposure goes.

Functions of accuracy and bias give one float64 per user, from bool [n, k] slots: does the slot hold a test item of the
row's user (`hits`), a negative, an item of a group? `unwanted` and `missed` are counts, the numerators of OHR, OCR, UHR
and UCR. Slots beyond k are ignored; a row with fewer items than k is a short list.

Functions of exposure take `top` (int [n, k]), item indices by rank, or `counts` (int [n_items]), in how many slots each
item stands. The slopes are derivatives of a measure by these counts: a bootstrap would need a pass over every list for
each draw, but to first order a user's influence is the sum of slopes over the user's list, and the variance over users
is the sum of squared influences.
"""

from __future__ import annotations

import numpy as np

from evenhand.data.popularity import gini

NO_ITEM = -1
"""In a list: the slot is empty, because the list is shorter than k."""
UNKNOWN_ITEM = -2
"""In a list: an item that the training data does not know. It is never a hit, never a negative, has popularity 0, and
is cold."""


def precision(hits: np.ndarray, k: int) -> np.ndarray:
    """TP / k, with TP = |Rec ∩ T|: Rec is the list of the first k items, T the user's test items.

    The divisor is k even where the list is shorter, so that leaving slots empty is never rewarded.

    >>> precision(np.array([[True, False, True, False]]), k=4)
    array([0.5])
    """
    return count(hits, k) / k


def recall(hits: np.ndarray, n_relevant: np.ndarray, k: int) -> np.ndarray:
    """TP / |T|, with |T| = `n_relevant`; nan for a user without test items.

    >>> recall(np.array([[True, False, True, False]]), np.array([8]), k=4)
    array([0.25])
    """
    return share(count(hits, k), n_relevant, empty=np.nan)


def f1(hits: np.ndarray, n_relevant: np.ndarray, k: int) -> np.ndarray:
    """2·TP / (k + |T|), the harmonic mean of a user's precision and recall (not of the averages).

    >>> f1(np.array([[True, False, True, False]]), np.array([4]), k=4)
    array([0.5])
    """
    return 2.0 * count(hits, k) / (k + np.asarray(n_relevant))


def ndcg(hits: np.ndarray, n_relevant: np.ndarray, k: int) -> np.ndarray:
    """Σ over hits of 1/log2(rank + 1), divided by that sum for the ideal list of min(k, |T|) hits.

    The rank of the first slot is 1. nan for a user without test items.

    >>> ndcg(np.array([[True, True, False], [False, False, True]]), np.array([2, 1]), k=3)
    array([1. , 0.5])
    """
    gain = 1.0 / np.log2(np.arange(2, k + 2))
    # Both sums run from the first rank down, so that a perfect list gives exactly 1.
    found = np.cumsum(hits[:, :k] * gain[: hits.shape[1]], axis=1)[:, -1]
    ideal = np.concatenate([[0.0], np.cumsum(gain)])[np.minimum(n_relevant, k)]
    return share(found, ideal, empty=np.nan)


def hit_rate(hits: np.ndarray, k: int) -> np.ndarray:
    """1 where the first k items hold at least one that the user wants, else 0.

    >>> hit_rate(np.array([[False, True], [False, False]]), k=2)
    array([1., 0.])
    """
    return np.asarray(hits[:, :k].any(axis=1), dtype=np.float64)


def reciprocal_rank(hits: np.ndarray, k: int) -> np.ndarray:
    """1 / rank of the first hit among the first k items, 0 without one; its mean is the MRR.

    >>> reciprocal_rank(np.array([[False, True], [False, False]]), k=2)
    array([0.5, 0. ])
    """
    hits = hits[:, :k]
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


def fpr(hits: np.ndarray, k: int) -> np.ndarray:
    """The paper's false positive rate, |Rec \\ T| / k read as 1 − precision.

    It divides by the list and not by the negatives, so it is a false *discovery* rate; `fpr_true` is the
    textbook rate. It stays 1 − precision for a short list: an empty slot counts as an error.

    >>> fpr(np.array([[True, False, False, False]]), k=4)
    array([0.75])
    """
    return 1.0 - precision(hits, k)


def fnr(hits: np.ndarray, n_relevant: np.ndarray, k: int) -> np.ndarray:
    """|T \\ Rec| / |T| = 1 − recall; nan for a user without test items.

    >>> fnr(np.array([[True, False, True, False]]), np.array([8]), k=4)
    array([0.75])
    """
    return 1.0 - recall(hits, n_relevant, k)


def fpr_true(negatives: np.ndarray, n_negatives: np.ndarray, k: int) -> np.ndarray:
    """|Rec ∩ N| / |N|, where N holds the items that are neither consumed nor in T.

    `negatives` (bool [n, k]) marks the slots with an item of N, `n_negatives` is |N|. A user without a
    negative cannot be shown one: 0/0 counts as 0.

    >>> fpr_true(np.array([[True, False, True], [False, False, False]]), np.array([50, 0]), k=3)
    array([0.04, 0.  ])
    """
    return share(count(negatives, k), n_negatives, empty=0.0)


def unwanted(hits: np.ndarray, group: np.ndarray, k: int) -> np.ndarray:
    """|(Rec \\ T) ∩ G|: how many items of a group in the list the user does not want.

    Over |Rec ∩ G| it is the paper's over-recommended rate, OHR with the hot items as the group G and OCR with the cold
    ones. `hits` and `group` are bool [n, k]: the slot holds a test item; the slot holds an item of the group. An empty
    slot is neither.

    >>> hits, hot = np.array([[True, False, False, True]]), np.array([[True, True, True, False]])
    >>> [share(unwanted(hits, g, k=4), count(g, k=4), empty=0.0).round(3).item() for g in (hot, ~hot)]
    [0.667, 0.0]
    """
    return count(group & ~hits, k)


def missed(hits: np.ndarray, group: np.ndarray, n_relevant: np.ndarray, k: int) -> np.ndarray:
    """|(T \\ Rec) ∩ G|: how many items of a group that the user wants are missing from the list.

    Over |T ∩ G|, which is `n_relevant`, it is the under-recommended rate, UHR with the hot items and UCR with the cold
    ones. The denominator is that of the paper's figure; its printed equation divides by |Rec ∩ G| instead.

    >>> hits, hot = np.array([[True, False, False, True]]), np.array([[True, True, True, False]])
    >>> [(missed(hits, g, np.array([n]), k=4) / n).item() for g, n in ((hot, 4), (~hot, 2))]
    [0.75, 0.5]
    """
    return np.asarray(n_relevant) - count(hits & group, k)


def count(marked: np.ndarray, k: int) -> np.ndarray:
    """float64 [n]: how many of the first k slots are marked."""
    return np.count_nonzero(marked[:, :k], axis=1).astype(np.float64)


def share(numerator: np.ndarray, denominator: np.ndarray, empty: float) -> np.ndarray:
    """numerator / denominator, and `empty` where the denominator is 0.

    >>> share(np.array([1, 0, 3]), np.array([2, 0, 3]), empty=np.nan)
    array([0.5, nan, 1. ])
    """
    denominator = np.asarray(denominator)
    return np.divide(numerator, denominator, out=np.full(denominator.shape, empty), where=denominator > 0)


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
