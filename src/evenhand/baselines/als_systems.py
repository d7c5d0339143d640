"""The normal equations of many rows at once, as tensors: for exact solves, and for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor


class Systems:
    """The normal equations of some rows, which need not be written out to be multiplied with."""

    def __init__(
        self,
        padded: Tensor,
        indptr: np.ndarray,
        columns: np.ndarray,
        rows: np.ndarray,
        shared: Tensor,
        more: Tensor,
        alpha: float,
        most: int,
    ) -> None:
        self.padded, self.shared, self.alpha, self.n_rows = padded, shared, alpha, len(rows)
        self.more = more[:, None] if bool(more.any()) else None
        width = max(1, most // (len(rows) * padded.shape[1]))
        self.pieces = [
            torch.from_numpy(index).to(padded.device)
            for index in _padded_columns(indptr, columns, rows, len(padded) - 1, width)
        ]
        # A row too long for one piece is gathered again whenever it is needed; most rows are gathered once.
        self.kept = self._gathered(self.pieces[0]) if len(self.pieces) == 1 else None
        self.right = (1 + alpha) * sum(
            (mine.sum(1) for mine in self.vectors()), padded.new_zeros(len(rows), padded.shape[1])
        )

    def vectors(self) -> Iterator[Tensor]:
        """Y_u of every row, [n, ≤ width, d] at a time."""
        if self.kept is not None:
            yield self.kept
            return
        for index in self.pieces:
            yield self._gathered(index)

    def _gathered(self, index: Tensor) -> Tensor:
        return torch.nn.functional.embedding(index, self.padded)

    def times(self, x: Tensor) -> Tensor:
        """The left-hand sides times x [n, d]."""
        product = x @ self.shared
        if self.more is not None:
            product += self.more * x
        for mine in self.vectors():
            # Row vectors on the left: several times faster than the same products with columns.
            product += self.alpha * (x.unsqueeze(1) @ mine.mT @ mine).squeeze(1)
        return product

    def solution(self) -> Tensor:
        left = self.shared.expand(self.n_rows, *self.shared.shape).clone()
        if self.more is not None:
            left.diagonal(dim1=1, dim2=2).add_(self.more)
        for mine in self.vectors():
            left.baddbmm_(mine.mT, mine, alpha=self.alpha)
        return torch.cholesky_solve(self.right.unsqueeze(2), torch.linalg.cholesky(left)).squeeze(2)


def conjugate_gradients(system: Systems, start: Tensor, steps: int) -> Tensor:
    """Every row's own conjugate gradients, side by side; a row that has arrived stays where it is."""
    x = start.clone()
    rest = system.right - system.times(x)
    direction, size = rest.clone(), rest.square().sum(1, keepdim=True)
    tiny = torch.finfo(x.dtype).tiny
    for _ in range(steps):
        ahead = system.times(direction)
        pace = size / (direction * ahead).sum(1, keepdim=True).clamp_min(tiny)
        x += pace * direction
        rest -= pace * ahead
        left = rest.square().sum(1, keepdim=True)
        direction = rest + left / size.clamp_min(tiny) * direction
        size = left
    return x


def groups(order: np.ndarray, lengths: np.ndarray, dim: int, most: int) -> Iterator[np.ndarray]:
    """Rows of rising length, as many together as keep their systems and their vectors below `most` cells."""
    begin = 0
    while begin < len(order):
        end = min(len(order), begin + max(1, most // dim**2))
        while end - begin > 1 and (end - begin) * lengths[order[end - 1]] * dim > most:
            end = begin + (end - begin) // 2
        yield order[begin:end]
        begin = end


def _padded_columns(
    indptr: np.ndarray, columns: np.ndarray, rows: np.ndarray, nothing: int, width: int
) -> Iterator[np.ndarray]:
    """int64 [n, ≤ width] at a time: the columns of each row, filled up with `nothing`."""
    begins, ends = indptr[rows, None], indptr[rows + 1, None]
    for begin in range(0, int((ends - begins).max()), width):
        place = begins + np.arange(begin, min(begin + width, int((ends - begins).max())))
        inside = place < ends
        yield np.where(inside, columns[np.where(inside, place, begins)], nothing).astype(np.int64)
