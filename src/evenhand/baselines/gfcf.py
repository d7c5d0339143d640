"""GF-CF: a graph filter in closed form, with no training at all (Shen et al., CIKM 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, FittedItems, check_number, check_whole
from evenhand.data.interactions import Interactions
from evenhand.models.graph_filter import GraphFilter, power, sparse_rows
from evenhand.utils.errors import InputError
from evenhand.utils.memory import check_memory

_OVERSAMPLING = 1.25
"""Directions that are iterated for every one that is kept: the graph's spectrum falls slowly."""
_LEAST_MORE = 32
_ITERATIONS = 10


@dataclass(frozen=True)
class GFCF(Baseline):
    """`s_u = x_u (D^-a S D^a + alpha · D^-b V Vᵀ D^b)`, S the normalised co-occurrence of items and V its first
    `factors` eigenvectors; `GraphFilter` spells it out.

    As published a is 0 and b is ½; ChebyCF's degree factors put the same number in both places.
    """

    factors: int = 256
    """How many of the smoothest directions of the graph the ideal low-pass part keeps; 0 leaves it out."""
    alpha: float = 0.3
    """How much that part counts beside the linear one."""
    linear_exponent: float = 0
    """a: the larger, the more popular items are recommended; below 0, rare ones."""
    ideal_exponent: float = 0.5
    """b, likewise."""

    def __post_init__(self) -> None:
        check_whole("factors", self.factors, least=0)
        check_number("alpha", self.alpha, zero=True)
        for name in ("linear_exponent", "ideal_exponent"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not -10 <= value <= 10:
                raise InputError(f"{name} must be a number between -10 and 10, not {value}.")

    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FittedItems:
        vectors = smoothest_directions(train, min(self.factors, train.n_items), torch.device(device))
        numbers = float(self.alpha), float(self.linear_exponent), float(self.ideal_exponent)
        return FittedItems(self, train, GraphFilter(train.indptr, train.items, vectors, *numbers))


def smoothest_directions(train: Interactions, k: int, device: torch.device) -> Tensor:
    """float32 [n_items, k]: the first k right singular vectors of R̃ = D_U^-½ R D_I^-½, by subspace iteration.

    It starts from the same random directions every time. Only V Vᵀ matters, so signs and order do not.
    """
    if not k:
        return torch.empty(train.n_items, 0, device=device)
    width = min(train.n_items, max(int(_OVERSAMPLING * k), k + _LEAST_MORE))
    needed = 4 * width * (3 * train.n_items + train.n_users)
    check_memory(needed, device, f"gfcf with {k:,} factors", "lower factors")
    to_users, to_items = _normalised(train, device)
    start = torch.randn(train.n_items, width, generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start.to(device))[0]
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(to_items @ (to_users @ basis))[0]
    image = to_users @ basis
    values, within = torch.linalg.eigh((image.T @ image).double())
    return (basis @ within[:, values.argsort(descending=True)[:k]].float()).contiguous()


def _normalised(train: Interactions, device: torch.device) -> tuple[Tensor, Tensor]:
    """R̃ and its transpose, as sparse matrices."""
    by_user, by_item = power(train.activity, -0.5), power(train.popularity, -0.5)
    indptr, users = train.by_item
    matrix = sparse_rows(
        train.indptr, train.items, torch.from_numpy(by_user[train.users] * by_item[train.items]), train.n_items, device
    )
    values = by_user[users] * by_item.repeat(train.popularity)
    return matrix, sparse_rows(indptr, users, torch.from_numpy(values), train.n_users, device)
