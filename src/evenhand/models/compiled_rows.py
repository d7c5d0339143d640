"""Compiled loops over the rows of a chunk of users: sums of item weights, steps along a graph, the k best scores.

Loaded where it pays. No function holds a lock while it runs, so threads can take some of the rows each; what comes
out of a row depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.utils.compiled import compiled

_BLOCK = 64
"""Scores that are looked at together; loops of just this length become a few wide instructions."""


def by_threads(work: Callable[[int, int], None], n_rows: int) -> None:
    """`work(first, last)` over all rows, shared out among as many threads as torch has."""
    cuts = np.linspace(0, n_rows, 1 + max(1, min(torch.get_num_threads(), n_rows))).astype(int).tolist()
    if len(cuts) == 2:
        work(0, n_rows)
        return
    with ThreadPoolExecutor(len(cuts) - 1) as pool:
        list(pool.map(lambda span: work(*span), pairwise(cuts)))


def sums_of_users(
    loop: Callable[..., None], seen: Interactions, users: np.ndarray, counts: np.ndarray | None, *arrays: np.ndarray
) -> torch.Tensor:
    """float32 [n, n_items]: what `add_weights` or `propagate` adds up over each user's pairs."""
    found = torch.zeros(len(users), seen.n_items)
    amounts = np.empty(0, np.float32) if counts is None else counts
    given = np.ascontiguousarray(users, dtype=np.int64), seen.indptr, seen.items, amounts, *arrays, found.numpy()
    by_threads(lambda first, last: loop(*given, first, last), len(users))
    return found


@compiled()
def add_weights(
    users: Any, starts: Any, seen: Any, counts: Any, indptr: Any, items: Any, weights: Any,
    out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Add to the rows first…last-1 of `out` [n, n_items] the CSR rows (indptr, items, weights) of what users have.

    Each is multiplied by what the pair counts for; `counts` may be empty, for 1.
    """
    for row in range(first, last):
        mine = out[row]
        for place in range(starts[users[row]], starts[users[row] + 1]):
            amount = counts[place] if len(counts) else np.float32(1)
            for entry in range(indptr[seen[place]], indptr[seen[place] + 1]):
                mine[items[entry]] += amount * weights[entry]


@compiled()
def propagate(
    users: Any, starts: Any, seen: Any, counts: Any, item_start: Any, neighbours: Any, user_start: Any, items: Any,
    before: Any, between: Any, after: Any, out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Add to the rows first…last-1 of `out` [n, n_items] two steps along a graph of users and items.

    From what a user has, by what it counts for (`counts` may be empty, for 1) and scaled by `before` [n_items], to all
    users of these items, scaled by `between`, and on to their items, scaled by `after`. Sparse on both steps, so that
    the work is that of the paths there are.
    """
    amount = np.zeros(len(user_start) - 1, dtype=out.dtype)
    reached = np.empty(len(amount), dtype=np.int32)
    for row in range(first, last):
        n = 0
        for place in range(starts[users[row]], starts[users[row] + 1]):
            item = seen[place]
            amount_each = before[item] * (counts[place] if len(counts) else np.float32(1))
            for entry in range(item_start[item], item_start[item + 1]):
                other = neighbours[entry]
                if amount[other] == 0:
                    reached[n] = other
                    n += 1
                amount[other] += amount_each
        mine = out[row]
        for place in range(n):
            other = reached[place]
            passed = amount[other] * between[other]
            amount[other] = 0
            for entry in range(user_start[other], user_start[other + 1]):
                mine[items[entry]] += passed
        for item in range(len(mine)):
            mine[item] *= after[item]


@compiled(error_model="numpy")
def select(
    scores: Any, users: Any, indptr: Any, own: Any, allowed: Any, found: Any, values: Any, first: Any, last: Any
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
    """A score that at least k items reach.

    Every item belongs to one of `lanes` by its index modulo their number; the k-th highest of the lanes' maxima.
    """
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
