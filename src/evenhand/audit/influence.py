"""How much one more slot for an item would move a measure of the whole exposure.

Gini, entropy and coverage look at all items at once, so drawing users again and counting anew would cost a
pass over every list a draw. To first order the same spread follows from these derivatives: a user's influence
is their sum over the user's list, and the variance over users is the sum of squared influences.
"""

from __future__ import annotations

import numpy as np

from evenhand.data.popularity import gini


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
    share = counts[shown] / total
    slope[shown] = -(np.log2(share) - (share * np.log2(share)).sum()) / total
    return slope


def coverage_slope(counts: np.ndarray) -> np.ndarray:
    """float64 [n_items]: what coverage loses without the item's one slot, so 0 where others show it too.

    >>> coverage_slope(np.array([1, 5]))
    array([0.5, 0. ])
    """
    return (counts == 1) / len(counts)
