"""Conjugate gradients for ALS on a CPU, one row after the other, compiled.

A row's vectors are few and lie in the cache, so loops over them beat tensors that must be gathered first.
The functions hold no lock while they run, so threads can take a block of rows each.
"""

from __future__ import annotations

import numpy as np

from evenhand.utils.compiled import compiled

_GAP = 64
"""Numbers between two vectors."""
# Sums may be taken in another order, as every BLAS does; undefined numbers stay what they are.
_compiled = compiled(fastmath={"reassoc", "contract", "nsz"})


@_compiled
def solve_rows(
    rows: np.ndarray,
    indptr: np.ndarray,
    columns: np.ndarray,
    others: np.ndarray,
    shared: np.ndarray,
    more: np.ndarray,
    alpha: np.floating,
    steps: int,
    start: np.ndarray,
    result: np.ndarray,
) -> None:
    """`result[row]` for each of `rows`: `steps` steps from `start[row]` towards the solution of

    `(shared + more[row]·I + alpha·Y_uᵀY_u) x = (1 + alpha)·Σ Y_u`, Y_u being the `others` of the row's columns.
    """
    dim = others.shape[1]
    zero, one, tiny = others.dtype.type(0), others.dtype.type(1), np.finfo(others.dtype).tiny
    x, rest, direction, ahead = _apart(dim, others.dtype)
    for row in rows:
        mine = columns[indptr[row] : indptr[row + 1]]
        for k in range(dim):  # as `x[:] = start[row]`, in half of the time to compile
            x[k] = start[row, k]
        _multiply(shared, x, -one, rest)
        _add_ridge(more[row], x, -one, rest)
        _add_seen(others, mine, x, -alpha, one + alpha, rest)
        size = zero
        for k in range(dim):
            direction[k] = rest[k]
            size += rest[k] * rest[k]
        for _ in range(steps):
            # A row that has arrived stays where it is.
            if size < tiny:
                break
            _multiply(shared, direction, one, ahead)
            _add_ridge(more[row], direction, one, ahead)
            _add_seen(others, mine, direction, alpha, zero, ahead)
            slope = zero
            for k in range(dim):
                slope += direction[k] * ahead[k]
            if slope < tiny:
                break
            pace, left = size / slope, zero
            for k in range(dim):
                x[k] += pace * direction[k]
                rest[k] -= pace * ahead[k]
                left += rest[k] * rest[k]
            turn = left / size
            for k in range(dim):
                direction[k] = rest[k] + turn * direction[k]
            size = left
        for k in range(dim):
            result[row, k] = x[k]


@_compiled
def _apart(dim: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four vectors that lie far enough from each other and from all else.

    Where two arrays are nearer than a few registers are wide, compiled loops take a path that rounds
    otherwise; then the last bits would depend on where the memory happens to be.
    """
    step = dim + _GAP
    room = np.empty(_GAP + 4 * step, dtype)
    a, b, c, d = _GAP, _GAP + step, _GAP + 2 * step, _GAP + 3 * step
    return room[a : a + dim], room[b : b + dim], room[c : c + dim], room[d : d + dim]


@_compiled
def _multiply(shared: np.ndarray, x: np.ndarray, factor: np.floating, out: np.ndarray) -> None:
    """`out = factor · shared · x` for a symmetric matrix, four rows at a time: `out` is fetched less."""
    dim = len(x)
    out[:] = 0
    whole = dim - dim % 4
    for j in range(0, whole, 4):
        a, b, c, d = factor * x[j], factor * x[j + 1], factor * x[j + 2], factor * x[j + 3]
        for k in range(dim):
            out[k] += a * shared[j, k] + b * shared[j + 1, k] + c * shared[j + 2, k] + d * shared[j + 3, k]
    for j in range(whole, dim):
        a = factor * x[j]
        for k in range(dim):
            out[k] += a * shared[j, k]


@_compiled
def _add_ridge(ridge: np.floating, x: np.ndarray, factor: np.floating, out: np.ndarray) -> None:
    """`out += factor · ridge · x`"""
    if ridge != 0:
        for k in range(len(x)):
            out[k] += factor * ridge * x[k]


@_compiled
def _add_seen(
    others: np.ndarray, columns: np.ndarray, x: np.ndarray, weight: np.floating, constant: np.floating, out: np.ndarray
) -> None:
    """`out += Σ_y (weight · (y·x) + constant) y` over the vectors y of the columns, four at a time."""
    dim, zero = len(x), others.dtype.type(0)
    whole = len(columns) - len(columns) % 4
    for j in range(0, whole, 4):
        p, q = others[columns[j]], others[columns[j + 1]]
        r, s = others[columns[j + 2]], others[columns[j + 3]]
        a, b, c, d = zero, zero, zero, zero
        for k in range(dim):
            a += p[k] * x[k]
            b += q[k] * x[k]
            c += r[k] * x[k]
            d += s[k] * x[k]
        a, b = weight * a + constant, weight * b + constant
        c, d = weight * c + constant, weight * d + constant
        for k in range(dim):
            out[k] += a * p[k] + b * q[k] + c * r[k] + d * s[k]
    for j in range(whole, len(columns)):
        p, a = others[columns[j]], zero
        for k in range(dim):
            a += p[k] * x[k]
        a = weight * a + constant
        for k in range(dim):
            out[k] += a * p[k]
