"""Implicit-feedback matrix factorisation by alternating least squares (Hu, Koren and Volinsky)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.ranking.model import Model
from evenhand.ranking.topk import by_product
from evenhand.rivals.base import Fitted, Rival, check_number, check_whole

_CHUNK_CELLS = {"cpu": 2**21, "cuda": 2**27}
"""Numbers held at once, in gathered vectors and in normal equations: what fits caches, what fills a GPU."""
_SPREAD = 0.01
"""Standard deviation of the vectors that the first half-step starts from."""


@dataclass(frozen=True)
class ALS(Rival):
    """`min Σ_ui c_ui (y_ui - p_u·q_i)² + l2·(Σ‖p_u‖² + Σ‖q_i‖²)` over *all* cells.

    y is 1 for the pairs of train and 0 elsewhere; the confidence c is `1 + alpha` there and 1 elsewhere.
    """

    factors: int = 128
    """Length of the vectors."""
    alpha: float = 2
    """How much more a pair that was seen counts than one that was not."""
    l2: float = 30
    """Ridge penalty on every vector."""
    iterations: int = 15
    """Each solves for all users, then for all items."""
    steps: int = 3
    """Steps of conjugate gradients in each solve, from where the last one ended; 0 solves exactly."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("factors", self.factors)
        check_number("alpha", self.alpha, zero=True)
        check_number("l2", self.l2, zero=False)
        check_whole("iterations", self.iterations)
        check_whole("steps", self.steps, least=0)

    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FittedALS:
        # Drawn on the CPU, so that a seed means the same start on every device.
        drawn = torch.randn(train.n_items, self.factors, generator=torch.Generator().manual_seed(seed))
        items = (_SPREAD * drawn).to(device)
        users = items.new_zeros(train.n_users, self.factors)
        by_user, by_item = (train.indptr, train.items), train.by_item
        for _ in range(self.iterations):
            users = solved(*by_user, items, self.alpha, self.l2, self.steps, users)
            items = solved(*by_item, users, self.alpha, self.l2, self.steps, items)
        return FittedALS(train, users, items, seed)


@dataclass(frozen=True, eq=False)
class FittedALS(Fitted):
    train: Interactions
    user_vectors: Tensor
    item_vectors: Tensor
    seed: int = 0

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.user_vectors, self.item_vectors

    def scores(self, users: np.ndarray) -> Tensor:
        return by_product(*self.vectors)(users)

    def model(self) -> Model:
        """As a model with one replica, which can be saved, exported and asked for similar items."""
        users, items = (side.cpu().float().unsqueeze(0) for side in self.vectors)
        return Model(users, items, known=self.train, seeds=(self.seed,), info={"method": "als"})


def solved(
    indptr: np.ndarray,
    columns: np.ndarray,
    others: Tensor,
    alpha: float,
    l2: float,
    steps: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """[n_rows, d]: the best vector of every row of a CSR matrix, given the vectors of the columns.

    Each row solves `(YᵀY + alpha·Y_uᵀY_u + l2·I) x = (1 + alpha)·Σ Y_u`, where Y are all the columns' vectors
    and Y_u those of the row; exactly, or by so many steps of conjugate gradients from `start`. Rows of about
    equal length are solved together; an empty row has the vector 0.
    """
    lengths, dim = np.diff(indptr), others.shape[1]
    shared = others.T @ others + l2 * torch.eye(dim, dtype=others.dtype, device=others.device)
    # The last row of zeros fills up what is shorter than its group.
    padded = torch.cat([others, others.new_zeros(1, dim)])
    result = others.new_zeros(len(lengths), dim)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    most = _CHUNK_CELLS.get(others.device.type, _CHUNK_CELLS["cuda"])

    def solve(rows: np.ndarray) -> None:
        here = torch.from_numpy(rows).to(others.device)
        system = _Systems(padded, indptr, columns, rows, shared, alpha, most)
        if steps:
            first = others.new_zeros(len(rows), dim) if start is None else start[here]
            result[here] = _conjugate_gradients(system, first, steps)
        else:
            result[here] = system.solution()

    with _a_group_a_core(others.device) as for_each:
        for _ in for_each(solve, _groups(order, lengths, dim, most)):
            pass
    return result


@contextmanager
def _a_group_a_core(device: torch.device) -> Iterator[Callable[..., Iterable[None]]]:
    """Yields a `map` that gives each core its own groups.

    The operations are too small to be shared: cores that wait for each other in each of them are many times
    slower, and more so on a busy machine. Nor does the number of threads change a bit of the result so.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield map
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool.map
    finally:
        torch.set_num_threads(threads)


class _Systems:
    """The normal equations of some rows, which need not be written out to be multiplied with."""

    def __init__(
        self,
        padded: Tensor,
        indptr: np.ndarray,
        columns: np.ndarray,
        rows: np.ndarray,
        shared: Tensor,
        alpha: float,
        most: int,
    ) -> None:
        self.padded, self.shared, self.alpha, self.n_rows = padded, shared, alpha, len(rows)
        width = max(1, most // (len(rows) * padded.shape[1]))
        self.pieces = [
            torch.from_numpy(index).to(padded.device)
            for index in _padded_columns(indptr, columns, rows, len(padded) - 1, width)
        ]
        # A row too long for one piece is gathered anew whenever it is needed; most rows are gathered once.
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
        for mine in self.vectors():
            # Row vectors on the left: several times faster than the same products with columns.
            product += self.alpha * (x.unsqueeze(1) @ mine.mT @ mine).squeeze(1)
        return product

    def solution(self) -> Tensor:
        left = self.shared.expand(self.n_rows, *self.shared.shape).clone()
        for mine in self.vectors():
            left.baddbmm_(mine.mT, mine, alpha=self.alpha)
        return torch.cholesky_solve(self.right.unsqueeze(2), torch.linalg.cholesky(left)).squeeze(2)


def _conjugate_gradients(system: _Systems, start: Tensor, steps: int) -> Tensor:
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


def _groups(order: np.ndarray, lengths: np.ndarray, dim: int, most: int) -> Iterator[np.ndarray]:
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
