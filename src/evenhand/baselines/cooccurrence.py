"""Which items share users, and how many: what ItemKNN and EASE are made of.

`G_ij = Σ w_u` over the users u who have both items i and j; with every w_u = 1 it is the Gram matrix XᵀX. It is made
row by row and never written out as a whole. Importing this module loads numba.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions, time_order
from evenhand.utils.compiled import compiled
from evenhand.utils.memory import slices_within

_Found = TypeVar("_Found")
_DISTANCE_EXPONENT = 0.7
_BLOCK_PAIRS = 2**20
"""Pairs of pairs that one call counts: enough to outweigh the call, few enough to bound its memory."""


def cooccurrences(train: Interactions, items: np.ndarray) -> Tensor:
    """float32 [n, n_items]: rows of XᵀX, with the item's own count on the diagonal.

    The work is the sum of squared activities of the users concerned, not users × items.
    """
    counts = np.zeros((len(items), train.n_items), dtype=np.float32)
    _count(items, (*train.by_item, train.indptr, train.items), counts)
    return torch.from_numpy(counts)


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """G in blocks of rows, each made when it is needed and by one thread."""

    train: Interactions
    user_weights: np.ndarray
    """float64 [n_users], positive: w_u"""
    window: int = 0
    """How many places apart, in the order of time, two items of a user may be to count; 0 for any."""

    @property
    def pairs(self) -> np.ndarray:
        """int64 [n_items]: the terms of each row of G, an upper bound of its non-zeros."""
        indptr, users = self.train.by_item
        terms = self.train.activity[users]
        total = np.concatenate([[0], np.cumsum(np.minimum(terms, 2 * self.window + 1) if self.window else terms)])
        return total[indptr[1:]] - total[indptr[:-1]]

    def norms(self) -> np.ndarray:
        """float64 [n_items]: ‖G_i‖, the diagonal included."""
        found = np.zeros(self.train.n_items)
        self._by_blocks(lambda part: _norms(part.start, part.stop, self._log, found))
        return found

    def neighbours(
        self, norms: np.ndarray, shrink: float, power: float, most: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """CSR (indptr, items, similarities): the `most` nearest items of every item, itself left out.

        The similarity is `(G_ij / (norms_i·norms_j + shrink))^power`, in float32. Of equally similar items the
        lowest index is nearer. A row is not ordered.
        """
        room = np.minimum(self.pairs, self.train.n_items)

        def find(part: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            size = int(np.minimum(room[part], most).sum())
            lengths = np.zeros(part.stop - part.start, np.int64)
            items, values = np.empty(size, np.int32), np.empty(size, np.float32)
            how = norms, float(shrink), float(power), most
            n = _nearest(part.start, part.stop, self._log, *how, lengths, items, values)
            return lengths, items[:n].copy(), values[:n].copy()

        parts = self._by_blocks(find)
        lengths, items, values = (np.concatenate(side) for side in zip(*parts, strict=True))
        assert len(lengths) == self.train.n_items
        return np.concatenate([[0], np.cumsum(lengths)]), items, values

    @cached_property
    def _log(self) -> tuple[np.ndarray, ...]:
        """What `_fill_row` takes."""
        by_item, indptr, items = self.train.by_item, self.train.indptr, self.train.items
        if not self.window:
            return (*by_item, indptr, items, self.user_weights, np.empty(0, np.int64), np.empty(0))
        order = time_order(self.train)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        nearness = np.maximum(np.arange(self.window + 1), 1.0) ** -_DISTANCE_EXPONENT
        return (*by_item, indptr, items[order], self.user_weights, place[np.argsort(items, kind="stable")], nearness)

    def _by_blocks(self, work: Callable[[slice], _Found]) -> list[_Found]:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return list(pool.map(work, slices_within(self.pairs, _BLOCK_PAIRS)))


@compiled()
def _count(items: np.ndarray, log: tuple[np.ndarray, ...], counts: np.ndarray) -> None:
    item_start, users, user_start, seen = log
    for row in range(len(items)):
        mine = counts[row]
        for place in range(item_start[items[row]], item_start[items[row] + 1]):
            user = users[place]
            for other in range(user_start[user], user_start[user + 1]):
                mine[seen[other]] += 1


@compiled()
def _fill_row(item: int, log: tuple[np.ndarray, ...], row: np.ndarray, filled: np.ndarray) -> int:
    """Add row `item` of G to `row`, which is 0, and list the n items where it no longer is; returns n.

    With a window, `places` says where in `seen`, which is in the order of time, the item stands for each of its users,
    and `nearness` what another counts by its distance from there; without one both are empty.
    """
    item_start, users, user_start, seen, user_weights, places, nearness = log
    n, reach = 0, len(nearness) - 1
    for place in range(item_start[item], item_start[item + 1]):
        user = users[place]
        weight, first, last = user_weights[user], user_start[user], user_start[user + 1]
        here = first
        if reach > 0:
            here = places[place]
            first, last = max(first, here - reach), min(last, here + reach + 1)
        for other in range(first, last):
            j = seen[other]
            if row[j] == 0:
                filled[n] = j
                n += 1
            row[j] += weight * nearness[abs(other - here)] if reach > 0 else weight
    return n


@compiled()
def _norms(first: int, last: int, log: tuple[np.ndarray, ...], norms: np.ndarray) -> None:
    n_items = len(norms)
    row, filled = np.zeros(n_items), np.empty(n_items, np.int32)
    for item in range(first, last):
        n = _fill_row(item, log, row, filled)
        total = 0.0
        for place in range(n):
            total += row[filled[place]] ** 2
            row[filled[place]] = 0
        norms[item] = np.sqrt(total)


@compiled()
def _nearest(
    first: int,
    last: int,
    log: tuple[np.ndarray, ...],
    norms: np.ndarray,
    shrink: float,
    power: float,
    most: int,
    lengths: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
) -> int:
    """The nearest of the items first…last-1 into `items` and `values`, `lengths` of them each; returns how many."""
    n_items = len(norms)
    row, filled = np.zeros(n_items), np.empty(n_items, np.int32)
    near, similarity = np.empty(n_items, np.int32), np.empty(n_items, np.float32)
    end = 0
    for item in range(first, last):
        n, m = _fill_row(item, log, row, filled), 0
        for place in range(n):
            j = filled[place]
            if j != item:
                value = row[j] / (norms[item] * norms[j] + shrink)
                near[m] = j
                # In double precision up to here, so that what is equal on paper is so here.
                similarity[m] = value if power == 1 else value**power
                m += 1
            row[j] = 0
        kept = m
        if m > most:
            kept = _keep_largest(near, similarity, m, most)
        for place in range(kept):
            items[end + place], values[end + place] = near[place], similarity[place]
        lengths[item - first] = kept
        end += kept
    return end


@compiled()
def _keep_largest(near: np.ndarray, similarity: np.ndarray, m: int, most: int) -> int:
    """Move the `most` largest of m to the front; of those equal to the last, the lowest items."""
    last = _smallest(similarity[:m].copy(), m - most)
    level, n_level, kept = np.empty(m, np.int32), 0, 0
    for place in range(m):
        if similarity[place] > last:
            near[kept], similarity[kept] = near[place], similarity[place]
            kept += 1
        elif similarity[place] == last:
            level[n_level] = near[place]
            n_level += 1
    _smallest(level[:n_level], most - kept - 1)
    for place in range(most - kept):
        near[kept + place], similarity[kept + place] = level[place], last
    return most


@compiled()
def _smallest(values: np.ndarray, n: int) -> float:
    """Hoare's selection: the n-th smallest, from 0, with none above it before it and none below it behind.

    numpy's own selection takes seven seconds to compile.
    """
    low, high = 0, len(values) - 1
    while low < high:
        pivot, left, right = values[(low + high) // 2], low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if n <= right:
            high = right
        elif n >= left:
            low = left
        else:
            break
    return values[n]
