"""Two measures that ask for the first hit alone; `hits` is bool [n, k], as in `metrics.ranking`."""

from __future__ import annotations

import numpy as np


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
