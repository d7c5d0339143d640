"""A model of weights between items: a user's scores are the sums of the weights of what they have.

So a new user costs no training. The weights are a dense matrix, a sparse one, or one number per item.
"""

from __future__ import annotations

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
        from evenhand.models.compiled_rows import add_weights, by_threads

        found = torch.zeros(len(users), seen.n_items)
        rows = np.ascontiguousarray(users, dtype=np.int64)
        amounts = np.empty(0, np.float32) if counts is None else counts
        arrays = rows, seen.indptr, seen.items, amounts, self.indptr, self.items, self.weights, found.numpy()
        by_threads(lambda first, last: add_weights(*arrays, first, last), len(users))
        return found

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
