"""GF-CF: a graph filter in closed form, with no training at all (Shen et al., CIKM 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, check_integer, check_recency
from evenhand.data.interactions import Interactions
from evenhand.models.item_weights import LARGEST_EXPONENT, GraphFilter, ItemWeightModel, power, sparse_rows
from evenhand.utils.errors import InputError
from evenhand.utils.memory import check_memory


@dataclass(frozen=True)
class GFCF(Baseline):
    """`s_u = x_u (D^-a S D^a + alpha · D^-b V Λ^p Vᵀ D^b)`, V the first `factors` eigenvectors of S.

    S is the normalised co-occurrence of items, Λ its eigenvalues, D the items' popularity; `GraphFilter` spells it out.
    As published: 256 factors, alpha .3, p and a 0, b ½. With p = 1 and a = b the first directions of S count
    1 + alpha times: a negative alpha flattens the spectrum, as ChebyCF's polynomial does at a higher cost per user.
    """

    factors: int = 64
    """How many of the smoothest directions of the graph count for more, or less; 0 leaves the linear part alone."""
    alpha: float = 0.3
    """How much more; below 0 how much less."""
    linear_exponent: float = 0.4
    """a: the larger, the more popular items are recommended; below 0, rare ones."""
    spectral_exponent: float = 0.4
    """b, likewise for the directions."""
    eigen_power: float = 0
    """p: the power of its eigenvalue by which a direction is scaled: 0 treats all alike, 1 follows S itself."""
    recency: float = 0
    """How fast what a user had earlier loses weight in x: the item before the last r counts `(1 + r)^-recency`.
    Needs timestamps."""

    def __post_init__(self) -> None:
        check_integer("factors", self.factors, least=0)
        check_recency(self.recency)
        for name in ("alpha", "linear_exponent", "spectral_exponent", "eigen_power"):
            value, least = getattr(self, name), 0 if name == "eigen_power" else -LARGEST_EXPONENT
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= LARGEST_EXPONENT:
                raise InputError(f"{name} must be a number between {least} and {LARGEST_EXPONENT}, not {value}.")

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        k = min(self.factors, train.n_items) if self.alpha else 0
        values, vectors = smoothest_directions(train, k, torch.device(device))
        gains = self.alpha * values**self.eigen_power
        exponents = float(self.linear_exponent), float(self.spectral_exponent)
        return self.item_model(train, GraphFilter(train.indptr, train.items, vectors, gains, *exponents))

    def work(self, train: Interactions) -> float:
        return 1.4e-7 * len(train) * self.factors if self.alpha else 0.0


def smoothest_directions(train: Interactions, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """float32 [k] and [n_items, k]: the first eigenvalues and eigenvectors of S = R̃ᵀR̃ with R̃ = D_U^-½ R D_I^-½.

    By subspace iteration, from the same random directions every time.
    """
    if not k:
        return torch.empty(0, device=device), torch.empty(train.n_items, 0, device=device)
    # More directions are iterated than are kept, as the graph's spectrum falls slowly.
    width = min(train.n_items, max(int(1.25 * k), k + 32))
    needed = 4 * width * (3 * train.n_items + train.n_users)
    check_memory(needed, device, f"gfcf with {k:,} factors", "lower factors")
    to_users, to_items = _normalised(train, device)
    start = torch.randn(train.n_items, width, generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start.to(device))[0]
    for _ in range(10):
        basis = torch.linalg.qr(to_items @ (to_users @ basis))[0]
    image = to_users @ basis
    within_basis = (image.T @ image).double()
    try:
        values, within = torch.linalg.eigh(within_basis)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # a GPU's solver gives up where LAPACK does not
        values, within = (one.to(device) for one in torch.linalg.eigh(within_basis.cpu()))
    first = values.argsort(descending=True)[:k]
    return values[first].float().clamp(min=0), (basis @ within[:, first].float()).contiguous()


def _normalised(train: Interactions, device: torch.device) -> tuple[Tensor, Tensor]:
    """R̃ and its transpose, as sparse matrices."""
    by_user, by_item = power(train.activity, -0.5), power(train.popularity, -0.5)
    indptr, users = train.by_item
    matrix = sparse_rows(
        train.indptr, train.items, torch.from_numpy(by_user[train.users] * by_item[train.items]), train.n_items, device
    )
    values = by_user[users] * by_item.repeat(train.popularity)
    return matrix, sparse_rows(indptr, users, torch.from_numpy(values), train.n_users, device)
