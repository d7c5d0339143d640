"""Items that were not in the log, from their attributes, without training.

A ridge regression from attributes to what a model says of its items makes of every new item a mixture of known ones:
its score is a fixed weighted sum of theirs. So any model can take it in: vectors are mixed, and models without vectors
mix their scores (`MixedTable`). How strong the ridge is and how far a new item may stand out are settled on known
items, each predicted as if it had been left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from scipy import sparse
from torch import Tensor

from evenhand.data.interactions import Interactions, gather_rows
from evenhand.data.reading.columns import source_label
from evenhand.models.filters import positions
from evenhand.models.item_files import carried_titles, features, read_attributes
from evenhand.models.item_weights import CountTable, DenseTable, GraphFilter, ItemTable, SparseTable, is_csr
from evenhand.models.topk import Score
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.models.base import Model

M = TypeVar("M", bound="Model")

STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Ridges to choose from, in items: with 30, a category of 30 well-known items counts half of what they say."""
HALF_TRUST = 20
"""An item with this number of users counts half in the regression, one of very many users fully."""
LEAST_KNOWN = 10
"""With the attributes of fewer known items nothing can be learned."""
SCALES = (0.1, 10.0)
"""How far at least and at most a new item stands out from the mean one, compared with what the ridge says."""
_LIST = 20
_USERS, _ITEMS, _FOLDED, _SCORES = 500, 5000, 1000, 2**25
"""Users, items and items left out together on which the two numbers are settled; scores held at once for it."""


@dataclass(frozen=True, eq=False)
class Mix:
    """New items as mixtures: what they share of known item j are the columns of `left[j] @ right`."""

    left: sparse.csr_matrix
    """[n_known, f]"""
    right: np.ndarray
    """[f, n_new]"""

    def rows(self, of_known: np.ndarray) -> np.ndarray:
        """[n_new, d] from what is known of the known items [n_known, d]."""
        return self.right.T @ (self.left.T @ of_known)


@dataclass(frozen=True, eq=False)
class NewItems:
    """New items among those that a model has, and what their attributes say."""

    item_ids: pa.Array
    """All items, old and new, sorted."""
    places: np.ndarray
    """int64 [n_known]: where the model's own items stand among them."""
    items: np.ndarray
    """int64 [n_new]: where the new ones stand; they may be the model's own, if nobody has them yet."""
    known: Interactions
    """The model's pairs, over its own items."""
    own: sparse.csr_matrix
    """[n_known, f]: attributes of the model's own items; zero where the table has none."""
    new: sparse.csr_matrix
    """[n_new, f]"""
    weights: np.ndarray
    """float64 [n_known]: how much each item counts in the regression; 0 without attributes or users."""
    exposure: float
    chosen: list[dict[str, float]] = field(default_factory=list)
    """Strength and scale of every mixture that was made."""

    def moved(self, pairs: Interactions) -> Interactions:
        """Pairs over the model's own items as pairs over all items."""
        return Interactions.from_pairs(
            pairs.users, self.places[pairs.items], user_ids=pairs.user_ids, item_ids=self.item_ids, notes=pairs.notes
        )

    def joined(self, of_known: Tensor, of_new: np.ndarray) -> Tensor:
        """[…, n_items, d] from rows of the model's own items and of the new ones."""
        found = of_known.new_zeros(*of_known.shape[:-2], len(self.item_ids), of_known.shape[-1])
        found[..., self.places, :] = of_known
        found[..., self.items, :] = torch.from_numpy(of_new).to(found)
        return found

    def table(self, inner: ItemTable, score: Score) -> MixedTable:
        """What a model without vectors becomes."""
        mix, places = self.mix(score), self.places
        left = mix.left.astype(np.float32)
        if isinstance(inner, MixedTable) and np.isin(places[inner.items.numpy()], self.items).all():
            # All of its new items are made again, so what it was made of is enough.
            kept = inner.places.numpy()
            left, places, inner = left[kept], places[kept], inner.inner
        named = {
            "places": places,
            "items": self.items,
            "indptr": left.indptr.astype(np.int64),
            "columns": left.indices.astype(np.int64),
            "values": left.data,
            "right": mix.right.astype(np.float32),
        }
        return MixedTable(inner, **{name: torch.from_numpy(array) for name, array in named.items()})

    def mix(self, score: Score) -> Mix:
        """The mixtures that suit what `score` says of the known items."""
        users = self._users
        scores = score(users).cpu().numpy().astype(np.float64)
        mean = scores @ self.weights / self._total
        usual, values, basis = self._ridge
        target = basis.T @ ((self._weighted.T @ scores.T) - self._total * np.outer(usual, mean))
        left_out = {strength: self._left_out(strength, scores, mean, target) for strength in STRENGTHS}
        strength = max(STRENGTHS, key=lambda one: (self._recall(left_out[one]), one))
        scale = self._scale(scores, mean, left_out[strength])
        self.chosen.append({"strength": strength, "scale": round(scale, 4)})
        within = (self.new @ basis - usual @ basis) / (values + strength)
        slopes = scale * basis @ within.T
        right = np.vstack([slopes, 1 / self._total - usual @ slopes])
        return Mix(sparse.csr_matrix(sparse.hstack([self._weighted, self.weights[:, None]], format="csr")), right)

    @cached_property
    def _total(self) -> float:
        return float(self.weights.sum())

    @cached_property
    def _weighted(self) -> sparse.csr_matrix:
        return sparse.diags(self.weights) @ self.own

    @cached_property
    def _ridge(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The weighted mean of the attributes, and their covariance (not divided by anything) as values and basis."""
        mean = np.asarray(self._weighted.sum(0)).ravel() / self._total
        covariance = (self.own.T @ self._weighted).toarray() - self._total * np.outer(mean, mean)
        values, basis = np.linalg.eigh(covariance)
        return mean, values.clip(min=0), basis

    @cached_property
    def _users(self) -> np.ndarray:
        active = np.random.Generator(np.random.PCG64(0)).permutation(np.flatnonzero(self.known.activity))
        return np.sort(active[: max(64, min(_USERS, _SCORES // self.known.n_items))])

    @cached_property
    def _sample(self) -> np.ndarray:
        """Known items that are left out one at a time, in random order."""
        return np.random.Generator(np.random.PCG64(1)).permutation(np.flatnonzero(self.weights))[:_ITEMS]

    @cached_property
    def _wanted(self) -> np.ndarray:
        """bool [n_users, n_sample]: whether a user has an item."""
        return self.known.contains(self._users[:, None], self._sample[None])

    def _left_out(self, strength: float, scores: np.ndarray, mean: np.ndarray, target: np.ndarray) -> np.ndarray:
        """[n_users, n_sample]: the scores of known items, each from a regression on all others.

        With h the item's own share in its prediction, leaving it out gives (prediction - h · own) / (1 - h).
        """
        (usual, values, basis), sample = self._ridge, self._sample
        within = self.own[sample] @ basis - usual @ basis
        solved = within / (values + strength)
        share = self.weights[sample] * ((solved * within).sum(1) + 1 / self._total)
        return ((solved @ target).T + mean[:, None] - share * scores[:, sample]) / (1 - share).clip(min=1e-9)

    def _recall(self, scores: np.ndarray) -> float:
        """Of the sampled items that a user has, the share among the first twenty of that order."""
        k = min(_LIST, max(1, scores.shape[1] // 5))
        top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        some = self._wanted.sum(1)
        hits = np.take_along_axis(self._wanted, top, axis=1).sum(1)
        return float((hits[some > 0] / some[some > 0]).mean()) if some.any() else 0.0

    def _scale(self, scores: np.ndarray, mean: np.ndarray, left_out: np.ndarray) -> float:
        """What known items, left out a tenth at a time, must be scaled by to get their number's share of all lists."""
        hidden = np.broadcast_to(self.known.popularity == 0, scores.shape).copy()
        hidden[gather_rows(self.known.indptr, self.known.items, self._users)] = True
        size = max(1, len(self._sample) // 10)
        folds = [slice(first, first + size) for first in range(0, min(len(self._sample), _FOLDED), size)]
        k = min(_LIST, max(1, len(self._sample) // 20))
        warm = []
        for fold in folds:
            others = np.where(hidden, -np.inf, scores)
            others[:, self._sample[fold]] = -np.inf
            # What users have was shown to them once; it says nothing of what they will be shown next.
            apart = np.where(self._wanted[:, fold], -np.inf, left_out[:, fold] - mean[:, None])
            warm.append((-np.partition(-others, k - 1, axis=1)[:, :k], apart))
        target = self.exposure * size / np.count_nonzero(self.known.popularity)

        def share(scale: float) -> float:
            found = []
            for others, apart in warm:
                everything = np.hstack([others, mean[:, None] + scale * apart])
                first = np.argpartition(-everything, others.shape[1] - 1, axis=1)[:, : others.shape[1]]
                found.append((first >= others.shape[1]).mean())
            return float(np.mean(found))

        low, high = np.log(SCALES)
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if share(np.exp(middle)) < target else (low, middle)
        return float(np.exp((low + high) / 2))


@dataclass(frozen=True, eq=False)
class MixedTable(ItemTable):
    """A table that knows more items than were fitted: the score of a new one is a mixture of theirs.

    In a user's history a new item counts as the known one of which its mixture has most.
    """

    inner: ItemTable
    places: Tensor
    """int64 [n_inner]: where the items of `inner` stand among all."""
    items: Tensor
    """int64 [n_new]: where the new ones stand, ascending."""
    indptr: Tensor
    """With `columns` and `values`, the CSR matrix left [n_inner, f] of the mixtures `left @ right`."""
    columns: Tensor
    values: Tensor
    right: Tensor
    """float32 [f, n_new]"""

    kind: ClassVar[str] = "mixed"
    explained: ClassVar[str] = (
        "Known items are scored by what users have in common; the score of a new one is a mixture of those of known "
        "items with attributes like its own."
    )

    def scores(self, seen: Interactions, users: np.ndarray, counts: np.ndarray | None = None) -> Tensor:
        whose, pair = gather_rows(seen.indptr, np.arange(len(seen)), users)
        stands_for = self._inner_places[seen.items[pair]]
        amounts = None if counts is None else counts[pair]
        history = Interactions.from_pairs(
            whose, stands_for, ratings=amounts, n_users=len(users), n_items=len(self.places)
        )
        return self._joined(self.inner.scores(history, np.arange(len(users)), history.ratings), seen.n_items)

    def row(self, item: int, n_items: int) -> Tensor:
        new = np.flatnonzero(self.items.numpy() == item)
        if not len(new):
            inner = self.inner.row(int(self._inner_places[item]), len(self.places))
            found = self._joined(torch.where(inner.isfinite(), inner, 0)[None], n_items)[0]
            found[self.places[~inner.isfinite()]] = -torch.inf
            return found
        found = torch.full((n_items,), -torch.inf)
        found[self.places] = torch.from_numpy(self._left @ self.right[:, new[0]].numpy())
        found[self.items] = -torch.inf
        return found

    def _joined(self, inner: Tensor, n_items: int) -> Tensor:
        inner = inner.cpu()
        found = inner.new_zeros(len(inner), n_items)
        found[:, self.places] = inner
        mixed = torch.from_numpy((self._left.T @ inner.float().numpy().T).T) @ self.right
        found[:, self.items] = mixed.to(inner.dtype)
        return found

    @cached_property
    def _left(self) -> sparse.csr_matrix:
        arrays = self.values.numpy(), self.columns.numpy(), self.indptr.numpy()
        return sparse.csr_matrix(arrays, shape=(len(self.places), len(self.right)))

    @cached_property
    def _inner_places(self) -> np.ndarray:
        """int64 [n_items]: where each item stands in `inner`; of a new one the item it stands for."""
        found = np.zeros(len(np.union1d(self.places.numpy(), self.items.numpy())), dtype=np.int64)
        found[self.places.numpy()] = np.arange(len(self.places))
        for first in range(0, len(self.items), 256):
            some = slice(first, first + 256)
            found[self.items[some].numpy()] = (self._left @ self.right[:, some].numpy()).argmax(0)
        return found

    def tensors(self) -> dict[str, Tensor]:
        inner = {f"inner.{self.inner.kind}.{name}": tensor for name, tensor in self.inner.tensors().items()}
        return {name: getattr(self, name) for name in _MIXED} | inner

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        kind = next(name.split(".")[1] for name in tensors if name.startswith("inner."))
        start = f"inner.{kind}."
        inner = {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
        return cls(TABLES[kind].from_tensors(inner), **{name: tensors[name] for name in _MIXED})

    def fits(self, n_items: int) -> bool:
        whole = (self.places, self.items, self.indptr, self.columns)
        return (
            all((one.ndim, one.dtype) == (1, torch.int64) for one in whole)
            and self.values.dtype == self.right.dtype == torch.float32
            and self.right.ndim == 2
            and self.right.shape[1] == len(self.items)
            and self.inner.fits(len(self.places))
            and all(bool((one.diff() > 0).all()) for one in (self.places, self.items))
            and np.array_equal(np.union1d(self.places.numpy(), self.items.numpy()), np.arange(n_items))
            and is_csr(self.indptr.numpy(), self.columns.numpy(), len(self.places), len(self.right))
            and self.values.shape == self.columns.shape
        )


_MIXED = ("places", "items", "indptr", "columns", "values", "right")
TABLES: Mapping[str, type[ItemTable]] = {
    table.kind: table for table in (DenseTable, SparseTable, CountTable, GraphFilter, MixedTable)
}
"""Kinds of models that are made of what items say about each other."""


def with_new_items(model: M, source: Any, *, item: str, attributes: Any, exposure: float) -> M:
    if not 0 < exposure <= 100:
        raise InputError(f"exposure is a number above 0, 1 being an average item's, not {exposure}.")
    ids, table = read_attributes(source, item, attributes)
    own = model.known.item_ids
    try:
        ids = ids.cast(own.type)
    except pa.ArrowInvalid:
        raise InputError(
            f"the items of {source_label(source)} are texts, such as '{ids[0]}', those of the model are integers."
        ) from None
    place = positions(ids, own)
    counts = model.known.popularity
    learn = (place >= 0) & (counts[np.maximum(place, 0)] > 0)
    if learn.all():
        return model
    if learn.sum() < LEAST_KNOWN:
        raise InputError(
            f"{source_label(source)} has the attributes of {int(learn.sum())} items that the model knows; at least "
            f"{LEAST_KNOWN} are needed to learn from, so give those of the whole catalogue."
        )
    everything = pa.concat_arrays([own, ids.filter(pa.array(place < 0))])
    everything = everything.take(pc.sort_indices(everything))
    matrix = features(table, learn)
    rows = sparse.csr_matrix((np.ones(learn.sum()), (place[learn], np.flatnonzero(learn))), (len(own), len(ids)))
    new = np.flatnonzero(~learn)
    among = positions(ids.take(pa.array(new)), everything)
    new, among = new[np.argsort(among)], np.sort(among)
    trust = counts / (counts + HALF_TRUST)
    added = NewItems(
        everything,
        positions(own, everything),
        among,
        model.known,
        sparse.csr_matrix(rows @ matrix),
        matrix[new],
        np.where(np.asarray(rows.sum(1)).ravel() > 0, trust, 0),
        exposure,
    )
    titles = carried_titles(model.titles, own, everything)
    found = model.with_items(added).having(titles=titles, metrics={})
    said = {"items": len(new), "attributes": table.column_names, "mixtures": added.chosen}
    return found.having(info={**found.info, "new_items": said})
