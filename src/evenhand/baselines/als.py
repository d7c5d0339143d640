"""Implicit-feedback matrix factorisation by alternating least squares (Hu, Koren and Volinsky)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, check_integer, check_number, solvable
from evenhand.data.interactions import Interactions
from evenhand.models.factors import FactorModel
from evenhand.utils.errors import InputError
from evenhand.utils.memory import check_memory, slices_within

_CHUNK_CELLS = {"cpu": 2**21, "cuda": 2**27}
"""Numbers held at once, in gathered vectors and in normal equations: what fits caches, what fills a GPU."""
_BLOCK_COST = 2**14
"""Pairs in a block of rows: long enough to outweigh a call, short enough to keep every core busy."""
_SPREAD = 0.01
"""Standard deviation of the vectors that the first half-step starts from."""

Ridge = float | np.ndarray
"""One penalty for all rows, or one per row."""
_ForEach = Callable[[Callable[[Any], None], Iterable[Any]], Iterable[None]]


@dataclass(frozen=True)
class ALS(Baseline):
    """`min Σ_ui c_ui (y_ui - p_u·q_i)² + Σ_u l2_u·‖p_u‖² + Σ_i l2_i·‖q_i‖²` over *all* cells.

    y is 1 for the pairs of train and 0 elsewhere; the confidence c is `1 + alpha` there and 1 elsewhere. The ridge of
    a row is `l2` where `nu` is 0, and else grows with the weight of its cells; see `ridges`. In the terms of
    "Revisiting the Performance of iALS" (Rendle et al. 2022) α0 is 1 / alpha and λ is l2 / (1 + alpha).
    """

    factors: int = 128
    """Length of the vectors."""
    alpha: float = 2
    """How much more a pair that was seen counts than one that was not."""
    l2: float = 30
    """Ridge penalty on a vector; with `nu`, the mean over all users and items."""
    iterations: int = 15
    """Each solves for all users, then for all items."""
    steps: int = 3
    """Steps of conjugate gradients in each solve, from where the last one ended; 0 solves exactly."""
    nu: float = 0
    """How the penalty of a row grows with its pairs: 0 not at all, 1 as published for iALS."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer("factors", self.factors)
        check_number("alpha", self.alpha, zero=True)
        check_number("l2", self.l2, zero=False)
        check_number("nu", self.nu, zero=True)
        if self.nu > 10:
            raise InputError(f"nu may be up to 10, not {self.nu}.")
        check_integer("iterations", self.iterations)
        check_integer("steps", self.steps, least=0)

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FactorModel:
        needed = 2 * 4 * self.factors * (train.n_users + train.n_items)  # old and new vectors, in float32
        check_memory(needed, torch.device(device), f"ALS with {self.factors:,} factors", "lower factors")
        # Drawn on the CPU, so that a seed means the same start on every device.
        drawn = torch.randn(train.n_items, self.factors, generator=torch.Generator().manual_seed(seed))
        items = (_SPREAD * drawn).to(device)
        users = items.new_zeros(train.n_users, self.factors)
        by_user, by_item = (train.indptr, train.items), train.by_item
        of_users, of_items = ridges(train, self.alpha, self.l2, self.nu)
        with solvable(self):
            for _ in range(self.iterations):
                users = solved(*by_user, items, self.alpha, of_users, self.steps, users)
                items = solved(*by_item, users, self.alpha, of_items, self.steps, items)
        return FactorModel(
            users.float()[None], items.float()[None], known=train, seeds=(seed,), info=self.description()
        )

    def work(self, train: Interactions) -> float:
        return 1.7e-9 * self.iterations * len(train) * self.factors * (1 + self.steps)


def ridges(train: Interactions, alpha: float, l2: float, nu: float) -> tuple[Ridge, Ridge]:
    """The penalty of every user and of every item, whose mean is `l2`.

    That of a row with n pairs over m columns is proportional to `(n + m / alpha)^nu`, which is the power of the
    weight of all its cells; a flat one is given as a single number.
    """
    if not nu:
        return l2, l2
    users = (alpha * train.activity + train.n_items) ** float(nu)
    items = (alpha * train.popularity + train.n_users) ** float(nu)
    scale = l2 * (train.n_users + train.n_items) / (users.sum() + items.sum())
    return users * scale, items * scale


def solved(
    indptr: np.ndarray,
    columns: np.ndarray,
    others: Tensor,
    alpha: float,
    l2: Ridge,
    steps: int = 0,
    start: Tensor | None = None,
) -> Tensor:
    """[n_rows, d]: the best vector of every row of a CSR matrix, given the vectors of the columns.

    Each row solves `(YᵀY + alpha·Y_uᵀY_u + l2·I) x = (1 + alpha)·Σ Y_u`, where Y are all the columns' vectors
    and Y_u those of the row; exactly, or by `steps` steps of conjugate gradients from `start`. `l2` is one number or
    one per row. An empty row has the vector 0.
    """
    lengths = np.diff(indptr)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = others.new_zeros(len(lengths), others.shape[1]) if start is None else start
    least = float(np.min(l2))
    more = np.broadcast_to(np.asarray(l2 - least), lengths.shape)
    with _rows_by_threads(others.device) as for_each:
        shared = others.T @ others + least * torch.eye(len(others.T), dtype=others.dtype, device=others.device)
        step = _HalfStep(indptr, columns, others, shared, more, alpha, steps, start)
        solve = step.by_rows if steps and others.device.type == "cpu" else step.by_tensors
        return solve(order, lengths, for_each)


@dataclass(frozen=True, eq=False)
class _HalfStep:
    """The normal equations of all users or of all items, solved in either of two ways with the same outcome."""

    indptr: np.ndarray
    columns: np.ndarray
    others: Tensor
    shared: Tensor
    """[d, d]: YᵀY and the least ridge."""
    more: np.ndarray
    """[n_rows]: what the ridge of a row is above that."""
    alpha: float
    steps: int
    start: Tensor

    def by_rows(self, order: np.ndarray, lengths: np.ndarray, for_each: _ForEach) -> Tensor:
        """Conjugate gradients in compiled code, a block of rows a call."""
        from evenhand.baselines.als_rows import solve_rows

        others, shared, start = (side.contiguous().numpy() for side in (self.others, self.shared, self.start))
        found, alpha = torch.zeros_like(self.start), others.dtype.type(self.alpha)
        result, more = found.numpy(), self.more.astype(others.dtype)

        def solve(part: slice) -> None:
            solve_rows(order[part], self.indptr, self.columns, others, shared, more, alpha, self.steps, start, result)

        # Besides its pairs, a row costs products with a matrix as wide as its vector.
        costs = lengths[order] + others.shape[1] // 2
        for _ in for_each(solve, slices_within(costs, _BLOCK_COST)):
            pass
        return found

    def by_tensors(self, order: np.ndarray, lengths: np.ndarray, for_each: _ForEach) -> Tensor:
        """Rows of about equal length together, as tensors."""
        others, dim = self.others, self.others.shape[1]
        # The last row of zeros fills up what is shorter than its group.
        padded = torch.cat([others, others.new_zeros(1, dim)])
        result = others.new_zeros(len(lengths), dim)
        most = _CHUNK_CELLS.get(others.device.type, _CHUNK_CELLS["cuda"])

        def solve(rows: np.ndarray) -> None:
            here = torch.from_numpy(rows).to(others.device)
            system = Systems(self, padded, rows, most)
            if self.steps:
                result[here] = conjugate_gradients(system, self.start[here], self.steps)
            else:
                result[here] = system.solution()

        for _ in for_each(solve, groups(order[::-1].copy(), lengths, dim, most)):
            pass
        return result


@contextmanager
def _rows_by_threads(device: torch.device) -> Iterator[_ForEach]:
    """Yields a `map` that gives each core its own rows.

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


class Systems:
    """The normal equations of some rows, which need not be written out to be multiplied with."""

    def __init__(self, step: _HalfStep, padded: Tensor, rows: np.ndarray, most: int) -> None:
        self.padded, self.shared, self.alpha, self.n_rows = padded, step.shared, step.alpha, len(rows)
        more = torch.from_numpy(step.more[rows]).to(padded)
        self.more = more[:, None] if bool(more.any()) else None
        width = max(1, most // (len(rows) * padded.shape[1]))
        self.pieces = [
            torch.from_numpy(index).to(padded.device)
            for index in _padded_columns(step.indptr, step.columns, rows, len(padded) - 1, width)
        ]
        # A row too long for one piece is gathered again whenever it is needed; most rows are gathered once.
        self.kept = self._gathered(self.pieces[0]) if len(self.pieces) == 1 else None
        sums = (mine.sum(1) for mine in self.vectors())
        self.right = (1 + step.alpha) * sum(sums, padded.new_zeros(len(rows), padded.shape[1]))

    def vectors(self) -> Iterable[Tensor]:
        """Y_u of every row, [n, ≤ width, d] at a time."""
        return map(self._gathered, self.pieces) if self.kept is None else [self.kept]

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
