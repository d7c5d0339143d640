"""Rows of unequal length in array operations: the one place that knows the index arithmetic of CSR."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def gather_rows(indptr: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of these rows, one after the other, each with its row's position in `rows` (int64 both).

    >>> position, value = gather_rows(np.array([0, 2, 2, 3]), np.array([5, 6, 7]), np.array([2, 0]))
    >>> position.tolist(), value.tolist()
    ([0, 1, 1], [7, 5, 6])
    """
    begins, counts = indptr[rows], indptr[rows + 1] - indptr[rows]
    position = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    return position, values[np.repeat(begins, counts) + within].astype(np.int64)


def slices_within(costs: np.ndarray, budget: int) -> Iterator[slice]:
    """Consecutive slices whose costs sum to at most `budget`; what alone costs more stands alone.

    >>> list(slices_within(np.array([2, 2, 9, 1]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    total = np.concatenate([[0], np.cumsum(costs)])
    begin = 0
    while begin < len(costs):
        end = int(np.searchsorted(total, total[begin] + budget, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end
