"""How good a list is: accuracy of the first k recommendations, how often they err, and for which items.

Every function is pure and gives one float64 per user, from bool [n, k] slots: does the slot hold a test item of the
row's user (`hits`), a negative, an item of a group? `unwanted` and `missed` are counts, the numerators of OHR, OCR, UHR
and UCR. Slots beyond k are ignored; a row with fewer items than k is a short list.
"""

from __future__ import annotations

import numpy as np


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
