"""Models of what items say about each other: a user's scores are the sums of the weights of what they have.

So a new user costs no training. The weights are a dense matrix, a sparse one, one number per item, or a filter on the
graph of users and items, which is applied to what a user has and never written out.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions, gather_rows, recency_counts
from evenhand.models.base import Model
from evenhand.models.topk import Score, first_list, top_by
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.models.new_items import NewItems

MOST_RECENCY = 10
LARGEST_EXPONENT = 10
_MOST = 2**53
"""Up to here a float64 can count."""


@dataclass(frozen=True, eq=False)
class ItemTable(ABC):
    """What an item says about the others."""

    kind: ClassVar[str]
    explained: ClassVar[str]

    @abstractmethod
    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        """[n, n_items] for users by index, from what they interacted with: a new tensor.

        `counts` float32 [n_pairs] is how much each pair of `seen` counts; None is 1 for all.
        """

    @abstractmethod
    def row(self, item: int, n_items: int) -> Tensor:
        """[n_items]: the weights of one item, -inf where there is none."""

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name; `from_tensors` makes it again."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: torch.as_tensor(value) for name, value in named.items() if value is not None}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        found: dict[str, Any] = {}
        for one in fields(cls):
            if one.name in tensors or one.default is MISSING:
                tensor = tensors[one.name]
                found[one.name] = tensor.numpy() if one.type == "np.ndarray" else tensor
        return cls(**found)

    @abstractmethod
    def fits(self, n_items: int) -> bool:
        """Whether it is complete and has `n_items` items."""


def summed_rows(
    rows: Tensor, seen: Interactions, users: np.ndarray, counts: np.ndarray | None, places: np.ndarray | None = None
) -> Tensor:
    """[n, d]: the sum of the `rows` of what each user interacted with, by what the pairs count.

    `places` says where each item stands in `rows`, -1 where it does not; None is all in their order.
    """
    whose, pair = gather_rows(seen.indptr, np.arange(len(seen)), users)
    item = seen.items[pair].astype(np.int64)
    if places is not None:
        item = places[item]
        whose, pair, item = whose[item >= 0], pair[item >= 0], item[item >= 0]
    lengths = np.bincount(whose, minlength=len(users))
    chosen, offsets = (torch.from_numpy(one).to(rows.device) for one in (item, np.cumsum(lengths) - lengths))
    amounts = None if counts is None else torch.from_numpy(counts[pair]).to(rows.device)
    return torch.nn.functional.embedding_bag(chosen, rows, offsets, mode="sum", per_sample_weights=amounts)


def is_csr(indptr: np.ndarray, columns: np.ndarray, n_rows: int, n_columns: int) -> bool:
    return (
        indptr.shape == (n_rows + 1,)
        and n_rows >= 0
        and indptr[0] == 0
        and bool((np.diff(indptr) >= 0).all())
        and columns.shape == (indptr[-1],)
        and bool(((columns >= 0) & (columns < n_columns)).all())
    )


@dataclass(frozen=True, eq=False)
class DenseTable(ItemTable):
    """A weight for every pair of items, or of some items; the others have none."""

    weights: Tensor
    """float32 [m, m], from row to column"""
    items: Tensor | None = None
    """int64 [m], ascending: which items these are; None for all"""

    kind: ClassVar[str] = "dense"
    explained: ClassVar[str] = (
        "A user's score of an item is the sum of the weights from the items they interacted with to it."
    )

    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        if self.items is None:
            return summed_rows(self.weights, seen, users, counts)
        sums = summed_rows(self.weights, seen, users, counts, self._places(seen.n_items))
        return sums.new_zeros(len(users), seen.n_items).index_copy_(1, self.items, sums)

    def _places(self, n_items: int) -> np.ndarray:
        """int64 [n_items]: where each item stands in the weights, -1 where it does not."""
        assert self.items is not None
        found = np.full(n_items, -1)
        found[self.items.cpu().numpy()] = np.arange(len(self.items))
        return found

    def row(self, item: int, n_items: int) -> Tensor:
        if self.items is None:
            return self.weights[item]
        found = torch.full((n_items,), -torch.inf)
        if (place := self._places(n_items)[item]) >= 0:
            found[self.items.cpu()] = self.weights[place].cpu()
        return found

    def fits(self, n_items: int) -> bool:
        items = torch.arange(n_items) if self.items is None else self.items
        return (
            self.weights.shape == (len(items), len(items))
            and self.weights.dtype == torch.float32
            and (items.ndim, items.dtype) == (1, torch.int64)
            and bool((items.diff() > 0).all())
            and (not len(items) or (int(items[0]) >= 0 and int(items[-1]) < n_items))
        )


@dataclass(frozen=True, eq=False)
class SparseTable(ItemTable):
    """Weights between some pairs of items, as CSR; the others are zero."""

    indptr: np.ndarray
    """int64 [n_items + 1]"""
    items: np.ndarray
    """int32 [n_weights]: to which items the weights of a row go, ascending within it"""
    weights: np.ndarray
    """float32 [n_weights]"""

    kind: ClassVar[str] = "sparse"
    explained: ClassVar[str] = DenseTable.explained

    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        from evenhand.models.compiled_rows import add_weights, sums_of_users

        return sums_of_users(add_weights, seen, users, counts, self.indptr, self.items, self.weights)

    def row(self, item: int, n_items: int) -> Tensor:
        mine = slice(self.indptr[item], self.indptr[item + 1])
        found = torch.full((n_items,), -torch.inf)
        found[torch.from_numpy(self.items[mine].astype(np.int64))] = torch.from_numpy(self.weights[mine])
        return found

    def fits(self, n_items: int) -> bool:
        return (
            (self.indptr.dtype, self.items.dtype, self.weights.dtype) == (np.int64, np.int32, np.float32)
            and is_csr(self.indptr, self.items, n_items, n_items)
            and self.weights.shape == self.items.shape
        )


@dataclass(frozen=True, eq=False)
class CountTable(ItemTable):
    """One number an item, the same for everyone."""

    counts: Tensor
    """float64 [n_items]: float32 would make equal what differs above 16 million."""

    kind: ClassVar[str] = "counts"
    explained: ClassVar[str] = (
        "The score of an item is the number of users who interacted with it, the same for everyone."
    )

    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        return self.counts.repeat(len(users), 1)

    def row(self, item: int, n_items: int) -> Tensor:
        raise InputError("a model of counts knows nothing of two items together; ask one of itemknn, ease or als.")

    def fits(self, n_items: int) -> bool:
        return (
            self.counts.shape == (n_items,)
            and self.counts.dtype == torch.float64
            and bool(((self.counts >= 0) & (self.counts <= _MOST)).all())
        )


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
        from evenhand.models.compiled_rows import propagate, sums_of_users

        return sums_of_users(propagate, seen, users, counts, *self._by_item, self.indptr, self.items, *self._scales)

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
        return power(degree, -0.5 - a), power(np.diff(self.indptr), -1), power(degree, a - 0.5)

    @cached_property
    def _spectral(self) -> tuple[Tensor, Tensor]:
        """V with all that stands before it, H included, and with what stands after it."""
        degree, b = np.diff(self._by_item[0]), self.spectral_exponent
        before, after = (torch.from_numpy(power(degree, e)).to(self.vectors.device)[:, None] for e in (-b, b))
        return self.vectors * before * self.gains, self.vectors * after

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        """The two steps as sparse matrices on the GPU, users × items with D_U⁻¹ and items × users."""
        where = self.vectors.device
        between = torch.from_numpy(np.repeat(self._scales[1], np.diff(self.indptr)))
        by_user = sparse_rows(self.indptr, self.items, between, len(self.vectors), where)
        return by_user, sparse_rows(*self._by_item, torch.ones(len(self.items)), len(self.indptr) - 1, where)

    @property
    def _exponents(self) -> tuple[float, float]:
        return self.linear_exponent, self.spectral_exponent

    def tensors(self) -> dict[str, Tensor]:
        return {
            "indptr": torch.from_numpy(self.indptr),
            "items": torch.from_numpy(self.items),
            "vectors": self.vectors,
            "gains": self.gains,
            "exponents": torch.tensor(self._exponents, dtype=torch.float64),
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
            and all(type(x) is float and abs(x) <= LARGEST_EXPONENT for x in self._exponents)
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


@dataclass(frozen=True, eq=False, repr=False)
class ItemWeightModel(Model):
    """Scores are sums over what the user interacted with: s(u, j) = Σ_{i seen by u} c(u, i)·table[i, j].

    c is 1, or with a `recency` `(1 + r)^-recency` for an item after which the user interacted with r others.
    """

    table: ItemTable
    seen: Interactions = field(kw_only=True)  # type: ignore[misc]
    """The pairs that scores are made of: those of train, as it was evaluated without the later ones."""
    seeds: tuple[int, ...] = field(default=(0,), kw_only=True)
    """One: the outcome does not depend on it."""
    recency: float = 0.0
    """How fast what a user had earlier loses weight; without timestamps all of it counts the same."""

    likeness: ClassVar[str] = "weight"

    @property
    def kind(self) -> str:
        return self.table.kind

    @property
    def explained(self) -> str:
        return self.table.explained

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        """There are none."""
        return self.as_vectors().vectors

    @cached_property
    def _counts(self) -> np.ndarray | None:
        return recency_counts(self.seen, self.recency)

    def scorer(self, replica: int) -> Score:
        return lambda users: self.table.scores(self.seen, users, self._counts)

    def tensors(self) -> dict[str, Tensor]:
        own = {"recency": torch.tensor(self.recency, dtype=torch.float64)} if self.recency else {}
        return {**self.table.tensors(), **own}

    @property
    def uses_times(self) -> bool:
        return bool(self.recency)

    def damage(self) -> str | None:
        if not 0 <= self.recency <= MOST_RECENCY:
            return "its recency is out of range"
        return None if self.table.fits(self.known.n_items) else "its weights do not match its items"

    def on_cpu(self) -> Self:
        tensors = {name: tensor.cpu() for name, tensor in self.table.tensors().items()}
        return replace(self, table=type(self.table).from_tensors(tensors))

    def most_similar(self, place: int, k: int, replica: int) -> tuple[np.ndarray, np.ndarray]:
        """The items to which this one has the largest weights, as if a user had seen nothing else."""
        row = self.table.row(place, self.known.n_items).clone()
        row[place] = -np.inf
        return first_list(top_by(lambda users: row[None], len(row), np.array([0]), k))

    def with_users(self, history: Interactions) -> Self:
        return self._of_users(history, seen=history)

    def with_items(self, added: NewItems) -> Self:
        table = added.table(self.table, self.scorer(self.best))
        return replace(self, table=table, known=added.moved(self.known), seen=added.moved(self.seen))
