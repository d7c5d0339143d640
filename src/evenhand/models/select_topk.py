"""The k best of each row of scores, compiled: two plain passes over the row and a handful of insertions.

Loaded by `topk` where it pays; the choice is that of `topk` in torch, ties included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evenhand.utils.compiled import compiled

_BLOCK = 64
"""Scores that are looked at together; loops of just this length become a few wide instructions."""


@compiled(error_model="numpy")
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

    What must not be recommended is scored -inf in place: a user's own items, and those not allowed. `own`
    and `allowed` may be empty, for no such rule.
    """
    k = found.shape[1]
    lanes = np.empty(_BLOCK * max(1, (4 * k + _BLOCK - 1) // _BLOCK), dtype=scores.dtype)
    for row in range(first, last):
        if len(own):
            for place in range(indptr[users[row]], indptr[users[row] + 1]):
                scores[row, own[place]] = -np.inf
        for item in range(len(allowed)):
            scores[row, item] = scores[row, item] if allowed[item] else -np.inf
        bound = _lower_bound(scores, row, lanes, k)
        filled = _collect(scores, row, bound, found, values)
        for place in range(filled, k):
            found[row, place] = -1
            values[row, place] = -np.inf


@compiled(error_model="numpy")
def _lower_bound(scores: Any, row: Any, lanes: Any, k: Any) -> Any:
    """A score that at least k items reach: the k-th highest among the maxima of every so-manieth item."""
    n, width = scores.shape[1], len(lanes)
    lanes[:] = -np.inf
    bound = lanes[0]  # of the type of the scores, so that comparing with it stays cheap
    if n < 2 * width:
        return bound
    for begin in range(0, n - width + 1, width):
        for first in range(0, width, _BLOCK):
            _raise(lanes[first : first + _BLOCK], scores[row, begin + first : begin + first + _BLOCK])
    for lane in range(width):
        reaching = np.int32(0)
        for first in range(0, width, _BLOCK):
            reaching += _reaching(lanes[first : first + _BLOCK], lanes[lane])
        if reaching >= k and lanes[lane] > bound:
            bound = lanes[lane]
    return bound


@compiled(error_model="numpy")
def _collect(scores: Any, row: Any, bound: Any, found: Any, values: Any) -> Any:
    """Insert what reaches the bound and betters the worst of a full list; returns how many there are."""
    n, k = scores.shape[1], found.shape[1]
    filled = 0
    for begin in range(0, n, _BLOCK):
        end = min(begin + _BLOCK, n)
        if end - begin == _BLOCK and not _reaching(scores[row, begin:end], bound):
            continue
        for item in range(begin, end):
            score = scores[row, item]
            if score >= bound and score > -np.inf and (filled < k or score > values[row, k - 1]):
                filled = _insert(found, values, row, filled, item, score)
    return filled


@compiled(error_model="numpy", inline="always")
def _raise(lanes: Any, block: Any) -> None:
    """Each lane to the larger of itself and the score beside it."""
    for i in range(_BLOCK):
        score, highest = block[i], lanes[i]
        lanes[i] = score if score > highest else highest


@compiled(error_model="numpy", inline="always")
def _reaching(block: Any, bound: Any) -> Any:
    """How many of a block reach the bound."""
    count = np.int32(0)
    for i in range(_BLOCK):
        count += np.int32(block[i] >= bound)
    return count


@compiled(error_model="numpy", inline="always")
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
