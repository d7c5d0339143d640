"""The k best of each row of scores, compiled: one pass over the row, most of it passed at a glance.

Loaded by `topk` where it pays; the choice is that of `topk` in torch, ties included.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_BLOCK = 128
"""Scores that are compared with the worst of the list at once."""


@njit(nogil=True, cache=True, error_model="numpy")
def select(
    scores: Any,
    users: Any,
    indptr: Any,
    own: Any,
    allowed: Any,
    found: Any,
    values: Any,
    first: Any,
    last: Any,
) -> None:
    """Fill found and values [n, k] of the rows first…last-1, best first; of equal scores the lowest item.

    A user's own items are scored -inf in place; `own` and `allowed` may be empty, for no such rule.
    """
    n = scores.shape[1]
    for row in range(first, last):
        if len(own):
            for place in range(indptr[users[row]], indptr[users[row] + 1]):
                scores[row, own[place]] = -np.inf
        worst = -np.inf
        filled = 0
        for begin in range(0, n, _BLOCK):
            end = min(begin + _BLOCK, n)
            above = 0
            for item in range(begin, end):
                above += scores[row, item] > worst
            if above:
                for item in range(begin, end):
                    if scores[row, item] > worst and (len(allowed) == 0 or allowed[item]):
                        filled = _insert(found, values, row, filled, item, scores[row, item])
                        if filled == found.shape[1]:
                            worst = values[row, filled - 1]
        for place in range(filled, found.shape[1]):
            found[row, place] = -1
            values[row, place] = -np.inf


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _insert(found: Any, values: Any, row: Any, filled: Any, item: Any, score: Any) -> Any:
    """Put an item behind all that score at least as much; the last of a full list falls out."""
    k = found.shape[1]
    place = filled if filled < k else k - 1
    while place > 0 and values[row, place - 1] < score:
        values[row, place] = values[row, place - 1]
        found[row, place] = found[row, place - 1]
        place -= 1
    values[row, place] = score
    found[row, place] = item
    return min(filled + 1, k)
