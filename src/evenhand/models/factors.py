"""A trained model: two matrices a replica, the ids they belong to, and what users already know.

It recommends by exact top-k, finds similar items, and takes in new users without training. It lives in a
folder (see `evenhand.models.folder`) in which nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.base import Model
from evenhand.models.topk import Score, by_product, first_list, top_items

if TYPE_CHECKING:
    from evenhand.models.new_items import NewItems

RIDGE = 10.0
"""Weight of the vector's length; chosen on three data sets (see docs/models.md); 3 to 30 does nearly as well."""


Factors = tuple[Tensor, Tensor]
"""A matrix as `torch.linalg.lu_factor` gives it: triangular factors and pivots."""


@dataclass(frozen=True, eq=False, repr=False)
class FactorModel(Model):
    """Scores are inner products: s_r(u, i) = user_vectors[r, u] · item_vectors[r, i]."""

    user_vectors: Tensor
    """float32 [R, n_users, d]"""
    item_vectors: Tensor
    """float32 [R, n_items, d]"""
    tables: tuple[Tensor, Tensor] | None = None
    """The learned user and item tables, where the vectors are made from them (LightGCN); else None."""

    kind: ClassVar[str] = "vectors"
    likeness: ClassVar[str] = "cosine"

    def __repr__(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        return f"{super().__repr__()[:-1]}, d = {self.user_vectors.shape[-1]}, seeds {seeds})"

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.user_vectors, self.item_vectors

    def as_vectors(self) -> FactorModel:
        return self

    @property
    def explained(self) -> str:
        return (
            "A user's score of an item is the inner product of their two vectors "
            f"(length {self.item_vectors.shape[2]})."
        )

    def scorer(self, replica: int) -> Score:
        return by_product(self.user_vectors[replica], self.item_vectors[replica])

    def tensors(self) -> dict[str, Tensor]:
        named = {"user_vectors": self.user_vectors, "item_vectors": self.item_vectors}
        if self.tables is not None:
            named |= {"user_tables": self.tables[0], "item_tables": self.tables[1]}
        return named

    def on_cpu(self) -> Self:
        return replace(self, user_vectors=self.user_vectors.cpu(), item_vectors=self.item_vectors.cpu())

    def for_requests(self) -> Self:
        """Item vectors are laid out by coordinate, over which the product with one vector is four times as fast."""
        mine = slice(self.best, self.best + 1)
        items = self.item_vectors[mine].transpose(1, 2).contiguous().transpose(1, 2)
        users, seeds = self.user_vectors[mine].clone(), self.seeds[mine]
        return replace(self, user_vectors=users, item_vectors=items, seeds=seeds, best=0, tables=None)

    def damage(self) -> str | None:
        tables = self.tables or ()
        if any(matrix.ndim != 3 or matrix.dtype != torch.float32 for matrix in (*self.vectors, *tables)):
            return "its vectors are not matrices of 32-bit numbers"
        replicas, dim = len(self.seeds), self.user_vectors.shape[-1]
        wanted = [(replicas, size, dim) for size in (self.known.n_users, self.known.n_items)]
        if [tuple(matrix.shape) for matrix in self.vectors] != wanted:
            return "its vectors do not match its ids"
        if any(t.shape[:2] != v.shape[:2] for t, v in zip(tables, self.vectors, strict=False)):
            return "its tables do not match its ids"
        return None

    def most_similar(self, place: int, k: int, replica: int) -> tuple[np.ndarray, np.ndarray]:
        """By the cosine: the items whose vectors point most in the direction of this item's."""
        if replica not in self._directions:
            self._directions[replica] = torch.nn.functional.normalize(self.item_vectors[replica], dim=1)
        vectors = self._directions[replica]
        others = torch.ones(len(vectors), dtype=torch.bool)
        others[place] = False
        # A vector too long for its length to be a number is like no other.
        return first_list(top_items(vectors, vectors, np.array([place]), k, only=others))

    @cached_property
    def _directions(self) -> dict[int, Tensor]:
        """Item vectors at length 1, by replica, kept: whoever asks about one item asks about more."""
        return {}

    @cached_property
    def _systems(self) -> list[tuple[Tensor, Tensor]]:
        """What solving for users needs of the items, kept for the next user."""
        return systems(self.item_vectors)

    def with_users(self, history: Interactions) -> Self:
        """The vectors of these users are solved for from what they interacted with."""
        return self._of_users(
            history, user_vectors=user_vectors(self.item_vectors, history, self._systems), tables=None
        )

    def with_items(self, added: NewItems) -> Self:
        mix = added.mix(self.scorer(self.best))

        def joined(rows: Tensor) -> Tensor:
            return added.joined(rows, np.stack([mix.rows(one.double().cpu().numpy()) for one in rows]))

        return replace(
            self,
            item_vectors=joined(self.item_vectors),
            tables=None if self.tables is None else (self.tables[0], joined(self.tables[1])),
            known=added.moved(self.known),
        )


def user_vectors(item_vectors: Tensor, history: Interactions, of_items: Sequence[Factors] | None = None) -> Tensor:
    """float32 [R, n_users, d]: the vectors that suit each user's items best, with the items fixed.

    x_u minimises  −2 x·m_u + mean_i (x·q_i)² + λ s |x|²:  a high score for m_u, the mean of the user's
    items, low ones over the whole catalogue, and a short vector. So  x_u = (QᵀQ / n + λ s I)⁻¹ m_u, where
    s, the mean square of an entry of Q, makes λ independent of the vectors' scale. It is a step of
    implicit ALS in which the catalogue outweighs the user's own few items. `of_items` are the `systems` of the
    item vectors, if the caller has cached them: a single user then costs nothing that grows with the catalogue.
    """
    seen, place = np.unique(history.items, return_inverse=True)
    bags = torch.from_numpy(place), torch.from_numpy(history.indptr[:-1])
    found = []
    for items, system in zip(item_vectors, of_items or systems(item_vectors), strict=True):
        rows = items[torch.from_numpy(seen.astype(np.int64))].double()
        means = torch.nn.functional.embedding_bag(bags[0], rows, bags[1], mode="mean")
        found.append(torch.linalg.lu_solve(*system, means.T).T)
    return torch.stack(found).float()


def systems(item_vectors: Tensor) -> list[Factors]:
    """float64 [d, d] per replica: QᵀQ / n + λ s I, factored."""
    found: list[Factors] = []
    for items in map(Tensor.double, item_vectors):
        second_moment = items.T @ items / len(items)
        scale = (second_moment.trace() / items.shape[1]).clamp_min(torch.finfo(items.dtype).tiny)
        lengths = RIDGE * scale * torch.eye(items.shape[1], dtype=items.dtype)
        found.append(torch.linalg.lu_factor(second_moment + lengths))
    return found


def on_cpu(vectors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    users, items = vectors
    return users.to("cpu", torch.float32), items.to("cpu", torch.float32)
