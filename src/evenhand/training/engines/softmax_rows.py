"""From scores to margins and slopes of the softmax, compiled: one pass over each row while it is in the cache.

Twin of `evenhand.objectives.softmax._margin_and_slopes`. The user's own items are looked up among the shared negatives
rather than each negative among the user's items, which are far fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from evenhand.training.engines.choices import FAST
from evenhand.utils.compiled import compiled

_NOTHING = np.float32(-1e30)
_LOWEST = np.float32(-80)
"""e to this is nothing in single precision."""
_LOG2E, _ROUND = np.float32(1.4426950408889634), np.float32(12582912.0)
_BUCKETS = 512


@compiled(error_model="numpy")
def place_columns(negatives: Any, column: Any, following: Any) -> None:
    """column[item]: the first place of an item among the negatives; following[place]: the next one, or -1."""
    for j in range(len(negatives) - 1, -1, -1):
        following[j] = column[negatives[j]]
        column[negatives[j]] = j


@compiled(error_model="numpy")
def clear_columns(negatives: Any, column: Any) -> None:
    for j in range(len(negatives)):
        column[negatives[j]] = -1


@compiled(error_model="numpy", parallel=True)
def softmax_rows(
    x: Any, own: Any, scale: Any, offset: Any, prior: Any, alpha: Any, users: Any, indptr: Any, items: Any,
    column: Any, following: Any, margin: Any,
) -> None:  # fmt: skip
    """x [B, n] becomes the slopes ∂margin/∂c_j; `offset` [n] and `prior` [n] may be empty."""
    for b in prange(len(users)):  # as a plain integer, or what is called is compiled for two kinds
        _row(np.int64(b), x, own, scale, offset, prior, alpha, users[b], indptr, items, column, following, margin)


@compiled(error_model="numpy")
def _mark(b: Any, user: Any, indptr: Any, items: Any, column: Any, following: Any, x: Any, value: Any) -> None:
    for place in range(indptr[user], indptr[user + 1]):
        j = column[items[place]]
        while j >= 0:
            x[b, j] = value
            j = following[j]


@compiled(error_model="numpy", fastmath=FAST | {"nnan"})
def _row(
    b: Any, x: Any, own: Any, scale: Any, offset: Any, prior: Any, alpha: Any, user: Any, indptr: Any, items: Any,
    column: Any, following: Any, margin: Any,
) -> None:  # fmt: skip
    n, mine = x.shape[1], own[b]
    if len(prior):
        _mark(b, user, indptr, items, column, following, x, _NOTHING)
        weights = _posteriors(b, x, prior, alpha)
    for j in range(n):
        x[b, j] = (x[b, j] - mine) * scale
    if len(offset):
        for j in range(n):
            x[b, j] += offset[j]
    _mark(b, user, indptr, items, column, following, x, _NOTHING)
    top = _NOTHING
    for j in range(n):
        top = max(top, x[b, j])
    total = np.float32(0)
    for j in range(n):
        grown = _exp(max(x[b, j] - top, _LOWEST))
        x[b, j] = grown if x[b, j] > _NOTHING else np.float32(0)
        total += x[b, j]
    if len(prior):
        total = np.float32(0)
        for j in range(n):
            x[b, j] *= weights[j]
            total += x[b, j]
    margin[b] = top + np.log(total) if total > 0 else 2 * _NOTHING
    share = scale / total if total > 0 else np.float32(0)
    for j in range(n):
        x[b, j] *= share


@compiled(error_model="numpy", fastmath={"contract"}, forceinline=True)
def _exp(x: Any) -> Any:
    """eˣ in single precision for -80 ≤ x ≤ 0, in operations that work on many numbers at once."""
    t = x * _LOG2E
    shifted = t + _ROUND  # the nearest whole number is in the lowest bits
    f = t - (shifted - _ROUND)
    p = np.float32(1.5403530393e-4)
    p = p * f + np.float32(1.3333558146e-3)
    p = p * f + np.float32(9.6181291076e-3)
    p = p * f + np.float32(5.5504108665e-2)
    p = p * f + np.float32(2.4022650696e-1)
    p = p * f + np.float32(6.9314718056e-1)
    p = p * f + np.float32(1.0)
    power = np.int32(np.float32(shifted).view(np.int32) << np.int32(23))
    return np.int32(np.float32(p).view(np.int32) + power).view(np.float32)


@compiled(error_model="numpy")
def _posteriors(b: Any, x: Any, prior: Any, alpha: Any) -> Any:
    """P(TN|x) of a row's scores that are not masked, by their exact rank: sorted into buckets, then within them."""
    n = x.shape[1]
    low, high, m = np.float32(np.inf), np.float32(-np.inf), 0
    for j in range(n):
        if x[b, j] > _NOTHING:
            low, high, m = min(low, x[b, j]), max(high, x[b, j]), m + 1
    scale = np.float32(_BUCKETS - 1) / max(high - low, np.float32(1e-20))
    bucket, sorted_ = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.float32)
    begin = np.zeros(_BUCKETS + 1, dtype=np.int32)
    for j in range(n):
        if x[b, j] > _NOTHING:
            bucket[j] = np.int32((x[b, j] - low) * scale)
            begin[bucket[j] + 1] += 1
    for k in range(_BUCKETS):
        begin[k + 1] += begin[k]
    end = begin.copy()
    for j in range(n):
        if x[b, j] > _NOTHING:
            sorted_[end[bucket[j]]] = x[b, j]
            end[bucket[j]] += 1
    weights = np.zeros(n, dtype=np.float32)
    for j in range(n):
        if x[b, j] > _NOTHING:
            k = bucket[j]
            below = begin[k]
            for place in range(begin[k], end[k]):
                below += np.int32(sorted_[place] <= x[b, j])
            rank = np.float32(1 + below) / np.float32(m + 2)
            true = (alpha * (1 - rank) + (1 - alpha) * rank) * prior[j]
            false = ((1 - alpha) * (1 - rank) + alpha * rank) * (1 - prior[j])
            weights[j] = true / (true + false)
    return weights
