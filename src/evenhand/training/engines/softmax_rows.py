"""From scores to margins and slopes of the softmax, compiled: one pass over each row while it is in the cache.

Twin of `evenhand.objectives.softmax._margin_and_slopes`. The user's own items are looked up among the shared negatives
rather than each negative among the user's items, which are far fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from evenhand.utils.compiled import compiled

_NOTHING = np.float32(-1e30)
_LOWEST = np.float32(-80)
"""e to this is nothing in single precision."""
_LOG2E, _ROUND = np.float32(1.4426950408889634), np.float32(12582912.0)
_BUCKETS = 512
_PARTS = 2.0**34
"""Of up to 2¹⁹ numbers, each at most 1, float64 holds the sum in such parts of 1."""


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


@compiled(error_model="numpy", fastmath={"contract", "nnan", "nsz"})
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
    top = max(_NOTHING, _highest(x[b]))
    for j in range(n):
        grown = _exp(max(x[b, j] - top, _LOWEST))
        x[b, j] = grown if x[b, j] > _NOTHING else np.float32(0)
    if len(prior):
        for j in range(n):
            x[b, j] *= weights[j]
    total = _sum(x[b])
    margin[b] = top + np.log(total) if total > 0 else 2 * _NOTHING
    share = scale / total if total > 0 else np.float32(0)
    for j in range(n):
        x[b, j] *= share


@compiled(error_model="numpy", fastmath={"reassoc"})
def _sum(x: Any) -> Any:
    """Σ x of numbers in [0, 1] in whole parts of 2⁻³⁴, which have one sum in any order, however it was compiled."""
    total = 0.0
    for j in range(len(x)):
        total += np.rint(np.float64(x[j]) * _PARTS)
    return np.float32(total / _PARTS)


@compiled(error_model="numpy")
def _highest(row: Any) -> Any:
    """The largest number, compared by its bits as a whole number: many at once, where floats go one by one."""
    bits, top = row.view(np.int32), np.int32(-(2**31))
    for j in range(len(bits)):
        top = max(top, bits[j] ^ ((bits[j] >> np.int32(31)) & np.int32(2**31 - 1)))
    return np.int32(top ^ ((top >> np.int32(31)) & np.int32(2**31 - 1))).view(np.float32)


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


# ---- rows of an engine that adds up exactly: what goes into the products of a block, and what becomes of them
#
# Their bits must not depend on how they were compiled: sums are exact, or in an order that is written down.


@compiled(error_model="numpy", parallel=True)
def unit_rows(table: Any, which: Any, cosine: Any, found: Any, length: Any) -> None:
    """Rows of a table, of length 1 for cosines, and the lengths they had; the last is repeated to fill `found`."""
    for b in prange(len(found)):
        _unit_row(np.int64(b), table, which[min(np.int64(b), len(which) - 1)], cosine, found, length)


@compiled(error_model="numpy")
def _unit_row(b: Any, table: Any, row: Any, cosine: Any, found: Any, length: Any) -> None:
    length[b] = max(np.sqrt(_dot(table[row], table[row])), np.float32(1e-12)) if cosine else np.float32(1)
    for k in range(found.shape[1]):
        found[b, k] = table[row, k] / length[b]


@compiled(error_model="numpy", parallel=True)
def own_scores(user: Any, positive: Any, own: Any) -> None:
    for b in prange(len(own)):
        own[b] = _dot(user[b], positive[b])


@compiled(error_model="numpy")
def _dot(a: Any, b: Any) -> Any:
    """Σ a·b by four sums side by side, of every fourth product each, and what is left over."""
    s0 = s1 = s2 = s3 = rest = np.float32(0)
    whole = len(a) - len(a) % 4
    for k in range(0, whole, 4):
        s0 += a[k] * b[k]
        s1 += a[k + 1] * b[k + 1]
        s2 += a[k + 2] * b[k + 2]
        s3 += a[k + 3] * b[k + 3]
    for k in range(whole, len(a)):
        rest += a[k] * b[k]
    return ((s0 + s1) + (s2 + s3)) + rest


@compiled(error_model="numpy", parallel=True)
def whole_factors(
    slopes: Any, weight: Any, user: Any, slope_parts: Any, user_parts: Any, total: Any, whole: Any, whole_user: Any
) -> None:  # fmt: skip
    """Slopes [B, n] and users [B, d] times their weights as whole numbers of parts; `total` [B] sums the slopes."""
    for b in prange(len(slopes)):
        _whole_factors(np.int64(b), slopes, weight, user, slope_parts, user_parts, total, whole, whole_user)


@compiled(error_model="numpy", fastmath={"reassoc"})
def _whole_factors(
    b: Any, slopes: Any, weight: Any, user: Any, slope_parts: Any, user_parts: Any, total: Any, whole: Any,
    whole_user: Any,
) -> None:  # fmt: skip
    found = 0.0
    for j in range(slopes.shape[1]):
        part = np.rint(slopes[b, j] * slope_parts)
        whole[b, j] = part
        found += part  # whole numbers: exact in any order
    total[b] = found / slope_parts
    times = np.float64(weight[b]) * user_parts
    for k in range(user.shape[1]):
        whole_user[b, k] = np.rint(user[b, k] * times)


@compiled(error_model="numpy", parallel=True)
def add_whole(found: Any, total: Any) -> None:
    """Add whole numbers, held as float64, to int64."""
    for k in prange(len(total)):
        for j in range(total.shape[1]):
            total[k, j] += np.int64(found[k, j])


@compiled(error_model="numpy")
def add_columns(total: Any, which: Any, sums: Any) -> None:
    """Add the columns of `total` [d, n] to the rows `which` [n] of `sums`."""
    for j in range(len(which)):
        for k in range(len(total)):
            sums[which[j], k] += total[k, j]


@compiled(error_model="numpy", parallel=True)
def row_gradients(
    of_margin: Any, of_own: Any, total: Any, size: Any, cosine: Any, user: Any, positive: Any, user_length: Any,
    positive_length: Any, of_user: Any, of_positive: Any,
) -> None:  # fmt: skip
    """Gradients of rows of users, in the place of their slopes times the negatives, and of positives.

    Of the mean over `size` positives.
    """
    for b in prange(len(of_user)):
        _row_gradient(
            np.int64(b), of_margin[b], of_own[b] - of_margin[b] * total[b], cosine, user, positive,
            user_length[b] * size, positive_length[b] * size, of_user, of_positive,
        )  # fmt: skip


@compiled(error_model="numpy")
def _row_gradient(
    b: Any, of_margin: Any, of_own: Any, cosine: Any, user: Any, positive: Any, user_length: Any, positive_length: Any,
    of_user: Any, of_positive: Any,
) -> None:  # fmt: skip
    for k in range(user.shape[1]):
        of_user[b, k] = of_margin * of_user[b, k] + of_own * positive[b, k]
    along_user, along_positive = np.float32(0), np.float32(0)
    if cosine:
        along_user = _dot(of_user[b], user[b])
        along_positive = of_own * _dot(user[b], positive[b])
    for k in range(user.shape[1]):
        of_user[b, k] = (of_user[b, k] - along_user * user[b, k]) / user_length
        of_positive[b, k] = (of_own * user[b, k] - along_positive * positive[b, k]) / positive_length
