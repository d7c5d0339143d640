"""The paper's four popularity-bias rates: errors of a list, separately for hot and cold items.

A rate is a fraction per user whose denominator may be empty, and three averages answer that differently;
`Rate` keeps numerators and denominators so that none of the answers has to be chosen too early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Rate:
    """One fraction per user, and the three ways to average it.

    >>> rate = Rate(np.array([1, 0, 3]), np.array([2, 0, 3]))
    >>> rate.per_user, rate.per_defined_user
    (array([0.5, 0. , 1. ]), array([0.5, nan, 1. ]))
    >>> rate.mean, rate.defined_mean, rate.pooled_mean
    (0.5, 0.75, 0.8)
    """

    numerators: np.ndarray
    """float64 [n]"""
    denominators: np.ndarray
    """float64 [n]; 0 where the denominator is empty."""

    @property
    def defined(self) -> np.ndarray:
        """bool [n]: the users whose denominator is not empty."""
        return self.denominators > 0

    @property
    def per_user(self) -> np.ndarray:
        """The paper's reading: an empty denominator counts as 0."""
        return self._fractions(empty=0.0)

    @property
    def per_defined_user(self) -> np.ndarray:
        """The fraction, or nan where the denominator is empty."""
        return self._fractions(empty=np.nan)

    @property
    def mean(self) -> float:
        """The paper's average: over all users, empty ones as 0. nan without users."""
        return float(self.per_user.mean()) if len(self.denominators) else np.nan

    @property
    def defined_mean(self) -> float:
        """The average over the users with a non-empty denominator; nan if there is none."""
        return float(self.per_user[self.defined].mean()) if self.defined.any() else np.nan

    @property
    def pooled_mean(self) -> float:
        """Sum of numerators / sum of denominators, so that users weigh by what they hold; nan for 0/0."""
        total = float(self.denominators.sum())
        return float(self.numerators.sum()) / total if total else np.nan

    def _fractions(self, empty: float) -> np.ndarray:
        out = np.full(len(self.denominators), empty)
        return np.divide(self.numerators, self.denominators, out=out, where=self.defined)


def ohr(hits: np.ndarray, hot: np.ndarray, k: int) -> Rate:
    """Over-recommended hot rate: |(Rec \\ T) ∩ Hot| / |Rec ∩ Hot|.

    Of the hot items in the list, the share that the user does not want. `hits` and `hot` are bool [n, k]:
    the slot holds a test item; the slot holds a hot item. An empty slot is neither.

    >>> hits = np.array([[True, False, False, True]])
    >>> hot = np.array([[True, True, True, False]])
    >>> ohr(hits, hot, k=4).per_user.round(3)
    array([0.667])
    """
    return _over_recommended(hits, hot, k)


def ocr(hits: np.ndarray, cold: np.ndarray, k: int) -> Rate:
    """Over-recommended cold rate: |(Rec \\ T) ∩ Cold| / |Rec ∩ Cold|; `cold` marks slots as in `ohr`.

    >>> hits = np.array([[True, False, False, True]])
    >>> cold = np.array([[False, False, False, True]])
    >>> ocr(hits, cold, k=4).per_user
    array([0.])
    """
    return _over_recommended(hits, cold, k)


def uhr(hits: np.ndarray, hot: np.ndarray, n_relevant_hot: np.ndarray, k: int) -> Rate:
    """Under-recommended hot rate: |(T \\ Rec) ∩ Hot| / |T ∩ Hot|.

    Of the hot items that the user wants, the share missing from the list; `n_relevant_hot` is |T ∩ Hot|.
    The denominator is that of the paper's figure; its printed equation divides by |Rec ∩ Hot| instead.

    >>> hits = np.array([[True, False, False, True]])
    >>> hot = np.array([[True, True, True, False]])
    >>> uhr(hits, hot, np.array([4]), k=4).per_user
    array([0.75])
    """
    return _under_recommended(hits, hot, n_relevant_hot, k)


def ucr(hits: np.ndarray, cold: np.ndarray, n_relevant_cold: np.ndarray, k: int) -> Rate:
    """Under-recommended cold rate: |(T \\ Rec) ∩ Cold| / |T ∩ Cold|, with the denominator as in `uhr`.

    >>> hits = np.array([[True, False, False, True]])
    >>> cold = np.array([[False, False, False, True]])
    >>> ucr(hits, cold, np.array([2]), k=4).per_user
    array([0.5])
    """
    return _under_recommended(hits, cold, n_relevant_cold, k)


def _over_recommended(hits: np.ndarray, group: np.ndarray, k: int) -> Rate:
    hits, group = hits[:, :k], group[:, :k]
    return _rate(np.count_nonzero(group & ~hits, axis=1), np.count_nonzero(group, axis=1))


def _under_recommended(hits: np.ndarray, group: np.ndarray, n_relevant: np.ndarray, k: int) -> Rate:
    found = np.count_nonzero(hits[:, :k] & group[:, :k], axis=1)
    return _rate(np.asarray(n_relevant) - found, n_relevant)


def _rate(numerators: np.ndarray, denominators: np.ndarray) -> Rate:
    return Rate(np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64))
