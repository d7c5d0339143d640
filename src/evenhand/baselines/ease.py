"""EASE: a linear model from items to items in closed form. Deterministic, and hard to beat on dense data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, check_number, solvable
from evenhand.data.csr import gather_rows
from evenhand.data.interactions import Interactions
from evenhand.models.item_weights import DenseTable, ItemWeightModel
from evenhand.utils.memory import check_memory

_CHUNK_CELLS = 2**24
"""Counts held at once while XᵀX is filled."""
_BYTES_A_CELL = 3 * 8
"""XᵀX, its Cholesky factor and its inverse, in float64."""


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

    def __post_init__(self) -> None:
        check_number("l2", self.l2, zero=False)
        for name in ("balance", "lift"):
            check_number(name, getattr(self, name), zero=True)

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        device, n = torch.device(device), train.n_items
        check_memory(
            _BYTES_A_CELL * n * n,
            device,
            f"EASE on {n:,} items",
            "leave rare items out, or take itemknn or als instead",
        )
        gram = gram_by_counting(train) if device.type == "cpu" else gram_by_products(train, device)
        scale = self._scale(gram.diagonal())
        gram *= scale[:, None] * scale
        gram.diagonal().add_(self.l2)
        with solvable(self):
            factor = torch.linalg.cholesky(gram)
        del gram
        weights = torch.cholesky_inverse(factor)
        del factor
        weights /= -weights.diagonal().clone()
        weights.fill_diagonal_(0)
        weights *= scale[:, None] / scale**self.lift
        return self.item_model(train, DenseTable(weights.float().contiguous()))

    def _scale(self, popularity: Tensor) -> Tensor:
        """[n_items]: D's diagonal; an item that nobody touched counts as touched once."""
        seen = popularity.clamp(min=1)
        return (seen / seen.mean()) ** -self.balance


def gram_by_counting(train: Interactions) -> Tensor:
    """XᵀX, float64 [n_items, n_items]: the work is that of the pairs a user makes, which suits a CPU."""
    from evenhand.baselines.cooccurrence import cooccurrences

    n = train.n_items
    gram = torch.empty(n, n, dtype=torch.float64)
    step = max(1, _CHUNK_CELLS // max(n, 1))
    for begin in range(0, n, step):
        gram[begin : begin + step] = cooccurrences(train, np.arange(begin, min(begin + step, n)))
    return gram


def gram_by_products(train: Interactions, device: torch.device) -> Tensor:
    """The same by matrix products, zeros included: fast on a GPU, and exact, as counts are whole."""
    n = train.n_items
    gram = torch.zeros(n, n, dtype=torch.float64, device=device)
    step = max(1, _CHUNK_CELLS // max(n, 1))
    for begin in range(0, train.n_users, step):
        users = np.arange(begin, min(begin + step, train.n_users))
        row, item = map(torch.from_numpy, gather_rows(train.indptr, train.items, users))
        x = torch.zeros(len(users), n, device=device)
        x[row.to(device), item.to(device)] = 1
        gram += x.T @ x
    return gram
