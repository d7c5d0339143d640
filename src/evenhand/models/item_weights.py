"""A model without vectors: what users touched, and what each item says about the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.metrics.lists import count
from evenhand.models.base import Model
from evenhand.models.item_table import ItemTable
from evenhand.models.list_table import list_table
from evenhand.models.topk import Score, top_by


@dataclass(frozen=True, eq=False)
class ItemWeightModel(Model):
    """Scores are sums over what the user touched: s(u, j) = Σ_{i ∈ touched by u} table[i, j]."""

    table: ItemTable
    known: Interactions
    touched: Interactions
    """The pairs that scores are made of: those of train, as no later ones were there when it was judged."""
    seeds: tuple[int, ...] = (0,)
    """One: the outcome does not depend on it."""
    info: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    best: int = 0

    likeness: ClassVar[str] = "weight"

    def __repr__(self) -> str:
        method = self.info.get("method", self.kind)
        return f"ItemWeightModel({method}: {count(self.known.n_users, 'user')} × {count(self.known.n_items, 'item')})"

    @property
    def kind(self) -> str:
        return self.table.kind

    @property
    def explained(self) -> str:
        return self.table.explained

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        """There are none."""
        raise self.no_vectors()

    def scorer(self, replica: int) -> Score:
        return lambda users: self.table.scores(self.touched, users)

    def tensors(self) -> dict[str, Tensor]:
        return self.table.tensors()

    def on_cpu(self) -> Self:
        tensors = {name: tensor.cpu() for name, tensor in self.table.tensors().items()}
        return replace(self, table=type(self.table).from_tensors(tensors))

    def similar(self, item: Any, k: int = 10, *, seed: int | None = None) -> pa.Table:
        """The k items to which this one has the largest weights, as if a user had touched nothing else.

        Fewer than k where it has weights to fewer.
        """
        place = self._position(item, k)
        self.replica(seed)
        row = self.table.row(place).clone()
        row[place] = -np.inf
        items, scores = top_by(lambda users: row[None].clone(), len(row), np.array([place]), k)
        return list_table(self.known, np.array([0]), items, scores).select(["item", "score"])

    def with_users(self, history: Interactions) -> Self:
        info = {**self.info, "folded_in": history.n_users}
        return replace(self, known=history, touched=history, info=info, metrics={})
