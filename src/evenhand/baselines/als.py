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

from evenhand.baselines.base import Baseline, check_number, check_whole, solvable
from evenhand.data.csr import slices_within
from evenhand.data.interactions import Interactions
from evenhand.models.factors import FactorModel
from evenhand.utils.memory import check_memory

_CHUNK_CELLS = {"cpu": 2**21, "cuda": 2**27}
"""Numbers held at once, in gathered vectors and in normal equations: what fits caches, what fills a GPU."""
_BLOCK_COST = 2**14
"""Pairs in a block of rows: long enough to outweigh a call, short enough to keep every core busy."""
_BYTES_A_NUMBER = 2 * 4
"""Old and new vectors, in float32."""
_SPREAD = 0.01
"""Standard deviation of the vectors that the first half-step starts from."""

_ForEach = Callable[[Callable[[Any], None], Iterable[Any]], Iterable[None]]


@dataclass(frozen=True)
class ALS(Baseline):
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

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FactorModel:
        check_memory(
            _BYTES_A_NUMBER * self.factors * (train.n_users + train.n_items),
            torch.device(device),
            f"ALS with {self.factors:,} factors",
            "lower factors",
        )
        # Drawn on the CPU, so that a seed means the same start on every device.
        drawn = torch.randn(train.n_items, self.factors, generator=torch.Generator().manual_seed(seed))
        items = (_SPREAD * drawn).to(device)
        users = items.new_zeros(train.n_users, self.factors)
        by_user, by_item = (train.indptr, train.items), train.by_item
        with solvable(self):
            for _ in range(self.iterations):
                users = solved(*by_user, items, self.alpha, self.l2, self.steps, users)
                items = solved(*by_item, users, self.alpha, self.l2, self.steps, items)
        return FactorModel(users.float()[None], items.float()[None], train, seeds=(seed,), info=self.description())


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
    and Y_u those of the row; exactly, or by so many steps of conjugate gradients from `start`. An empty row
    has the vector 0.
    """
    lengths = np.diff(indptr)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 0]
    start = others.new_zeros(len(lengths), others.shape[1]) if start is None else start
    with _a_part_a_core(others.device) as for_each:
        shared = others.T @ others + l2 * torch.eye(len(others.T), dtype=others.dtype, device=others.device)
        problem = _Problem(indptr, columns, others, shared, alpha, steps, start)
        solve = problem.by_rows if steps and others.device.type == "cpu" else problem.by_tensors
        return solve(order, lengths, for_each)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What one half of an iteration solves, in either of two ways with the same outcome."""

    indptr: np.ndarray
    columns: np.ndarray
    others: Tensor
    shared: Tensor
    alpha: float
    steps: int
    start: Tensor

    def by_rows(self, order: np.ndarray, lengths: np.ndarray, for_each: _ForEach) -> Tensor:
        """Conjugate gradients in compiled code, a block of rows a call."""
        from evenhand.baselines.als_rows import solve_rows

        others, shared, start = (side.contiguous().numpy() for side in (self.others, self.shared, self.start))
        found, alpha = torch.zeros_like(self.start), others.dtype.type(self.alpha)
        result = found.numpy()

        def solve(part: slice) -> None:
            solve_rows(order[part], self.indptr, self.columns, others, shared, alpha, self.steps, start, result)

        # Besides its pairs, a row costs products with a matrix as wide as its vector.
        costs = lengths[order] + others.shape[1] // 2
        for _ in for_each(solve, slices_within(costs, _BLOCK_COST)):
            pass
        return found

    def by_tensors(self, order: np.ndarray, lengths: np.ndarray, for_each: _ForEach) -> Tensor:
        """Rows of about equal length together, as tensors."""
        from evenhand.baselines.als_systems import Systems, conjugate_gradients, groups

        others, dim = self.others, self.others.shape[1]
        # The last row of zeros fills up what is shorter than its group.
        padded = torch.cat([others, others.new_zeros(1, dim)])
        result = others.new_zeros(len(lengths), dim)
        most = _CHUNK_CELLS.get(others.device.type, _CHUNK_CELLS["cuda"])

        def solve(rows: np.ndarray) -> None:
            here = torch.from_numpy(rows).to(others.device)
            system = Systems(padded, self.indptr, self.columns, rows, self.shared, self.alpha, most)
            if self.steps:
                result[here] = conjugate_gradients(system, self.start[here], self.steps)
            else:
                result[here] = system.solution()

        for _ in for_each(solve, groups(order[::-1].copy(), lengths, dim, most)):
            pass
        return result


@contextmanager
def _a_part_a_core(device: torch.device) -> Iterator[_ForEach]:
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
