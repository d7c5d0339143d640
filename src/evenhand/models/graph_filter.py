"""A filter on the graph of users and items, applied to what a user has and never written out.

A linear part walks from a user's items to all who have them and on to theirs; a spectral part counts the smoothest
directions of the graph for more, or for less. The graph belongs to the filter: a new user is just another row.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions, gather_rows
from evenhand.models.item_weights import ItemTable, is_csr, summed_rows

LARGEST_EXPONENT = 10


@dataclass(frozen=True, eq=False)
class GraphFilter(ItemTable):
    """`F = D^-a S D^a + D^-b V H Vᵀ D^b`; a user's scores are `x F`, x being 1 for the items they have.

    With R the graph's users × items, `S = R̃ᵀR̃` for `R̃ = D_U^-½ R D^-½`, D and D_U the numbers of users of an item
    and of items of a user. V holds eigenvectors of S and the diagonal H their gains. Items without users score 0.
    """

    indptr: np.ndarray
    """int64 [n + 1]: the items of user u of the graph are items[indptr[u]:indptr[u + 1]]."""
    items: np.ndarray
    """int32 [n_pairs]"""
    vectors: Tensor
    """float32 [n_items, k]: V"""
    gains: Tensor
    """float32 [k]: the diagonal of H; below 0, a direction counts for less than S has it."""
    linear_exponent: float
    """a: the larger, the more popular items are recommended."""
    spectral_exponent: float
    """b, likewise."""

    kind: ClassVar[str] = "graph-filter"
    explained: ClassVar[str] = (
        "A user's score of an item comes from the users who share items with them, and from the smoothest directions "
        "of the graph of users and items."
    )

    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        found = self._linear(seen, users, counts)
        if len(self.gains):
            into, out = self._spectral
            found.addmm_(summed_rows(into, seen, users, counts), out.T)
        return found

    def _linear(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        if self.vectors.is_cuda:
            return self._linear_by_products(seen, users, counts)
        from evenhand.models.compiled_rows import by_threads, propagate

        found = torch.zeros(len(users), len(self.vectors))
        rows = np.ascontiguousarray(users, dtype=np.int64)
        amounts = np.empty(0, np.float32) if counts is None else counts
        arrays = rows, seen.indptr, seen.items, amounts, *self._by_item, self.indptr, self.items, *self._scales
        by_threads(lambda first, last: propagate(*arrays, found.numpy(), first, last), len(users))
        return found

    def _linear_by_products(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        """The same on a GPU, where all paths at once are faster than those that lead somewhere."""
        where, (before, _, after) = self.vectors.device, map(torch.from_numpy, self._scales)
        row, pair = gather_rows(seen.indptr, np.arange(len(seen)), users)
        item = torch.from_numpy(seen.items[pair].astype(np.int64))
        amount = before[item] if counts is None else before[item] * torch.from_numpy(counts[pair])
        x = torch.zeros(len(self.vectors), len(users), device=where)
        x[item.to(where), torch.from_numpy(row).to(where)] = amount.to(where)
        to_users, to_items = self._matrices
        return (to_items @ (to_users @ x)).T.mul(after.to(where)).contiguous()

    def row(self, item: int, n_items: int) -> Tensor:
        one = Interactions.from_pairs([0], [item], n_items=n_items)
        found = self.scores(one, np.array([0]))[0].cpu()
        return torch.where(found != 0, found, -torch.inf)

    @cached_property
    def _by_item(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR over items: the users of each."""
        counts = np.bincount(self.items, minlength=len(self.vectors))
        users = np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))
        return np.concatenate([[0], np.cumsum(counts)]), users[np.argsort(self.items, kind="stable")]

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """float32: what S multiplies with before its first step, between its two steps, and after them."""
        degree, a = np.diff(self._by_item[0]), self.linear_exponent
        scales = power(degree, -0.5 - a), power(np.diff(self.indptr), -1), power(degree, a - 0.5)
        return scales[0], scales[1], scales[2]

    @cached_property
    def _spectral(self) -> tuple[Tensor, Tensor]:
        """V with all that stands before it, H included, and with what stands after it."""
        degree, b = np.diff(self._by_item[0]), self.spectral_exponent
        before, after = (torch.from_numpy(power(degree, e)).to(self.vectors.device)[:, None] for e in (-b, b))
        return self.vectors * before * self.gains, self.vectors * after

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        """The two steps as sparse matrices on the GPU, users × items with D_U⁻¹ and items × users."""
        n_users, n_items = len(self.indptr) - 1, len(self.vectors)
        where = self.vectors.device
        between = torch.from_numpy(np.repeat(self._scales[1], np.diff(self.indptr)))
        by_user = sparse_rows(self.indptr, self.items, between, n_items, where)
        by_item = sparse_rows(*self._by_item, torch.ones(len(self.items)), n_users, where)
        return by_user, by_item

    def tensors(self) -> dict[str, Tensor]:
        exponents = (self.linear_exponent, self.spectral_exponent)
        return {
            "indptr": torch.from_numpy(self.indptr),
            "items": torch.from_numpy(self.items),
            "vectors": self.vectors,
            "gains": self.gains,
            "exponents": torch.tensor(exponents, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        arrays = tensors["indptr"].numpy(), tensors["items"].numpy()
        linear, spectral = tensors["exponents"].tolist()
        return cls(*arrays, tensors["vectors"], tensors["gains"], linear, spectral)

    def fits(self, n_items: int) -> bool:
        return (
            (self.indptr.dtype, self.items.dtype) == (np.int64, np.int32)
            and self.vectors.dtype == self.gains.dtype == torch.float32
            and self.gains.shape == self.vectors.shape[1:]
            and self.vectors.ndim == 2
            and len(self.vectors) == n_items
            and self.indptr.ndim == 1
            and is_csr(self.indptr, self.items, len(self.indptr) - 1, n_items)
            and all(
                type(x) is float and abs(x) <= LARGEST_EXPONENT for x in (self.linear_exponent, self.spectral_exponent)
            )
        )


def power(counts: np.ndarray, exponent: float) -> np.ndarray:
    """float32: counts to this power; 0 stays 0.

    >>> power(np.array([0, 1, 4]), -0.5)
    array([0. , 1. , 0.5], dtype=float32)
    """
    return np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** exponent, 0).astype(np.float32)


def sparse_rows(
    indptr: np.ndarray, columns: np.ndarray, values: Tensor, n_columns: int, device: torch.device
) -> Tensor:
    """A CSR matrix for products with dense ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its sparse tensors may still change
        return torch.sparse_csr_tensor(
            torch.from_numpy(indptr), torch.from_numpy(columns).long(), values.float(), (len(indptr) - 1, n_columns)
        ).to(device)
