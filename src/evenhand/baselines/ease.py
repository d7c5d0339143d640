"""EASE: a linear model from items to items in closed form. Deterministic, and hard to beat on dense data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, check_integer, check_number, check_recency, solvable
from evenhand.data.interactions import Interactions, gather_rows
from evenhand.models.item_weights import DenseTable, ItemWeightModel
from evenhand.utils.memory import check_memory

_CHUNK_CELLS = 2**24
"""Counts held at once while XᵀX is filled."""
_DOUBLE_UP_TO = 20_000
"""Items up to which weights are solved for in float64; beyond, memory and time are better spent on more items."""


@dataclass(frozen=True)
class EASE(Baseline):
    """`min ‖X - XB‖² + l2·‖B‖²` with `diag(B) = 0`; the scores of a user are the row `X_u B`.

    With `P = (XᵀX + l2·I)⁻¹` the minimum is `B_ij = -P_ij / P_jj` off the diagonal.
    With `balance`, X·D stands for X, where `D_ii = (n_i / mean)^-balance`, and the scores are `X_u D B D^-lift`.
    """

    l2: float = 400
    """Ridge penalty: the larger, the closer to plain co-occurrence; larger data bears more."""
    balance: float = 0
    """Divide an item's column of X by its popularity to this power first, which spares rare items."""
    lift: float = 1
    """How much of that the scores get back: 1 all of it; the less, the more rare items are recommended."""
    max_items: int | Literal["all"] = "all"
    """Weights are learned between the items with the most pairs, this number; the others have none and score 0. Time
    grows with the cube of the items, memory with the square."""
    recency: float = 0
    """How fast what a user had earlier loses weight in their scores: the item before the last r counts
    `(1 + r)^-recency`. Needs timestamps."""

    def __post_init__(self) -> None:
        check_number("l2", self.l2, zero=False)
        check_number("balance", self.balance, zero=True)
        check_number("lift", self.lift, zero=True)
        if self.max_items != "all":
            check_integer("max_items", self.max_items)
        check_recency(self.recency)

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        device, kept = torch.device(device), self._kept(train)
        pairs = train if kept is None else _of_items(train, kept)
        n = pairs.n_items
        dtype = torch.float64 if n <= _DOUBLE_UP_TO else torch.float32
        copy = 4 if dtype == torch.float64 else 0
        # Of items × items: a CPU inverts in place, a GPU holds XᵀX, its factor or its inverse too.
        needed = ((1 if device.type == "cpu" else 3) * dtype.itemsize + copy) * n * n
        instead = "lower max_items, or take itemknn, gfcf or als instead"
        check_memory(needed, device, f"EASE on {n:,} items", instead)
        counted = gram_by_counting(pairs, dtype) if device.type == "cpu" else gram_by_products(pairs, device, dtype)
        with solvable(self):
            weights = ease_weights(counted, self.l2, self.balance, self.lift)
        table = DenseTable(weights.float().contiguous(), None if kept is None else torch.from_numpy(kept).to(device))
        return self.item_model(train, table)

    def work(self, train: Interactions) -> float:
        n = train.n_items if self.max_items == "all" else min(train.n_items, int(self.max_items))
        return 4e-11 * n**3 + 1e-8 * float(np.square(train.activity, dtype=np.float64).sum())

    def _kept(self, train: Interactions) -> np.ndarray | None:
        """Ascending: the items with the most pairs, of equals those with the lowest index; None for all."""
        if self.max_items == "all" or int(self.max_items) >= train.n_items:
            return None
        return np.sort(np.argsort(-train.popularity, kind="stable")[: int(self.max_items)])


def ease_weights(gram: Tensor, l2: float, balance: float, lift: float = 1) -> Tensor:
    """B, from XᵀX, whose memory it takes over; an item that nobody has counts as one with a single user."""
    seen = gram.diagonal().clamp(min=1)
    scale = (seen / seen.mean()) ** -balance
    gram *= scale[:, None]
    gram *= scale
    gram.diagonal().add_(l2)
    weights = inverse(gram)
    weights /= -weights.diagonal().clone()
    weights.fill_diagonal_(0)
    weights *= scale[:, None]
    weights /= scale**lift
    return weights


def inverse(matrix: Tensor) -> Tensor:
    """Of a symmetric positive definite matrix, whose memory it takes over on a CPU."""
    if matrix.is_cuda:
        return torch.cholesky_inverse(torch.linalg.cholesky(matrix))
    from scipy.linalg import lapack

    # What is stored row by row is its own transpose column by column, which LAPACK can overwrite.
    kind = "d" if matrix.dtype == torch.float64 else "s"
    factor, wrong = getattr(lapack, f"{kind}potrf")(matrix.numpy().T, lower=1, clean=0, overwrite_a=1)
    if not wrong:
        found, wrong = getattr(lapack, f"{kind}potri")(factor, lower=1, overwrite_c=1)
    if wrong:
        raise torch.linalg.LinAlgError("the matrix is not positive definite")  # type: ignore[attr-defined]
    mirror(found.T)
    return torch.from_numpy(found.T)


def mirror(matrix: np.ndarray, block: int = 1024) -> None:
    """Copy the upper triangle to the lower one, block by block: both are then read along rows of the cache."""
    n = len(matrix)
    for i in range(0, n, block):
        for j in range(0, i + 1, block):
            upper = matrix[j : j + block, i : i + block]
            if i == j:
                matrix[i : i + block, i : i + block] = np.triu(upper) + np.triu(upper, 1).T
            else:
                matrix[i : i + block, j : j + block] = upper.T


def _of_items(train: Interactions, kept: np.ndarray) -> Interactions:
    """The pairs of these items alone, which are now called 0, 1, …"""
    place = np.full(train.n_items, -1)
    place[kept] = np.arange(len(kept))
    own = train.take(place[train.items] >= 0)
    return Interactions.from_pairs(own.users, place[own.items], n_users=train.n_users, n_items=len(kept))


def gram_by_counting(train: Interactions, dtype: torch.dtype = torch.float64) -> Tensor:
    """XᵀX, [n_items, n_items]: the work is that of the pairs a user makes, which suits a CPU."""
    from evenhand.baselines.cooccurrence import cooccurrences

    n = train.n_items
    gram = torch.empty(n, n, dtype=dtype)
    step = max(1, _CHUNK_CELLS // max(n, 1))
    for begin in range(0, n, step):
        gram[begin : begin + step] = cooccurrences(train, np.arange(begin, min(begin + step, n)))
    return gram


def gram_by_products(train: Interactions, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    """The same by matrix products, zeros included: fast on a GPU, and exact, as counts are whole."""
    n = train.n_items
    gram = torch.zeros(n, n, dtype=dtype, device=device)
    step = max(1, _CHUNK_CELLS // max(n, 1))
    for begin in range(0, train.n_users, step):
        users = np.arange(begin, min(begin + step, train.n_users))
        row, item = map(torch.from_numpy, gather_rows(train.indptr, train.items, users))
        x = torch.zeros(len(users), n, device=device)
        x[row.to(device), item.to(device)] = 1
        gram += x.T @ x
    return gram
