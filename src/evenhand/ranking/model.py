"""A trained model: two matrices a replica, the ids they belong to, and what users already know.

It recommends by exact top-k, finds similar items, and takes in new users without training. It lives in a
folder (see `evenhand.ranking.folder`) in which nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError
from evenhand.ranking.ids import known_positions
from evenhand.ranking.recommender import list_table
from evenhand.ranking.topk import by_product, top_items


@dataclass(frozen=True, eq=False)
class Model:
    """Scores are inner products: s_r(u, i) = user_vectors[r, u] · item_vectors[r, i]."""

    user_vectors: Tensor
    """float32 [R, n_users, d]"""
    item_vectors: Tensor
    """float32 [R, n_items, d]"""
    known: Interactions
    """Train and validation pairs: the vocabulary of users and items, and what is not recommended again."""
    seeds: tuple[int, ...]
    best: int = 0
    """Position of the replica that did best on validation: the one that recommends."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it came to be: method, settings, protocol, data, versions. Plain JSON values."""
    history: tuple[Mapping[str, Any], ...] = ()
    """One record an epoch: loss, diagnostics and metrics, each one value a replica."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Results on test: {"10": {"ndcg": {"mean": …, "std": …, "values": […]}, …}, …}; empty without a test."""
    tables: tuple[Tensor, Tensor] | None = None
    """The learned user and item tables, where the vectors are made from them (LightGCN); else None."""

    def __repr__(self) -> str:
        method = self.info.get("method", "vectors")
        return (
            f"Model({method}: {self.known.n_users:,} users × {self.known.n_items:,} items, "
            f"d = {self.user_vectors.shape[-1]}, seeds {', '.join(map(str, self.seeds))})"
        )

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.user_vectors, self.item_vectors

    def recommend(
        self,
        users: Any = None,
        k: int = 20,
        *,
        seed: int | Literal["all"] | None = None,
        known: bool = False,
        exclude: Any = None,
        only: Any = None,
    ) -> pa.Table:
        """The k best items of the given users (ids; None means all): user, item, score, rank.

        `seed` picks a replica by its seed, "all" takes each and adds a column seed; `known=True` lets
        items through that the user has already touched. Items in `exclude` are never recommended, with
        `only` no others are (ids in any form). Equal scores come in the order of the items' ids.
        """
        wanted = np.arange(self.known.n_users)
        if users is not None:
            wanted = known_positions(users, self.known.user_ids, "user")
        allowed = self._allowed(exclude, only)
        if seed == "all":
            tables = [self._table(r, wanted, k, known, allowed) for r in range(len(self.seeds))]
            return pa.concat_tables(
                t.append_column("seed", pa.array(np.full(len(t), s)))
                for s, t in zip(self.seeds, tables, strict=True)
            )
        return self._table(self.replica(seed), wanted, k, known, allowed)

    def scores(self, users: np.ndarray) -> Tensor:
        """[n, n_items]: what the recommending replica thinks of every item, for users by index."""
        return by_product(self.user_vectors[self.best], self.item_vectors[self.best])(users)

    def similar(self, item: Any, k: int = 10, *, seed: int | None = None) -> pa.Table:
        """The k items whose vectors point most in the direction of this item's: item, score (the cosine)."""
        place = int(known_positions([item], self.known.item_ids, "item")[0])
        if not 1 <= k < self.known.n_items:
            raise InputError(f"k must lie between 1 and the {self.known.n_items - 1:,} other items, not {k}.")
        vectors = torch.nn.functional.normalize(self.item_vectors[self.replica(seed)], dim=1)
        others = torch.ones(len(vectors), dtype=torch.bool)
        others[place] = False
        items, scores = top_items(vectors, vectors, np.array([place]), k, only=others)
        return pa.table({"item": self.known.item_ids.take(pa.array(items[0])), "score": pa.array(scores[0])})

    def fold_in(self, history: Any) -> Model:
        """This model with other users: those of `history`, their vectors solved for from what they touched.

        `history` is an `Interactions`, a file or a table with columns user and item. No training takes
        place and the items stay as they are. What could not be used is told in `known.notes` of the result.
        """
        from evenhand.ranking.fold_in import folded_in

        return folded_in(self, history)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model folder, whole or not at all; one that exists is only replaced with `force`."""
        from evenhand.ranking.folder import write_model

        write_model(self, folder, force=force)

    def replica(self, seed: int | None) -> int:
        """The position of a seed's replica; of the best one for None."""
        if seed is None:
            return self.best
        if seed not in self.seeds:
            raise InputError(f"the model has no seed {seed}; it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)

    def _allowed(self, exclude: Any, only: Any) -> Tensor | None:
        """bool [n_items]: what may be recommended to anyone; None where all may."""
        if exclude is None and only is None:
            return None
        allowed = torch.full((self.known.n_items,), only is None)
        if only is not None:
            allowed[known_positions(only, self.known.item_ids, "item")] = True
        if exclude is not None:
            allowed[known_positions(exclude, self.known.item_ids, "item")] = False
        if not allowed.any():
            raise InputError("nothing is left to recommend: `only` and `exclude` leave out every item.")
        return allowed

    def _table(
        self, replica: int, users: np.ndarray, k: int, known: bool, allowed: Tensor | None
    ) -> pa.Table:
        items, scores = top_items(
            self.user_vectors[replica],
            self.item_vectors[replica],
            users,
            k,
            exclude=None if known else self.known,
            only=allowed,
        )
        return list_table(self.known, users, items, scores)


def load(folder: str | Path, *, verify: bool = True) -> Model:
    """Read a model folder that `Model.save` wrote; `verify` compares every file with its checksum."""
    from evenhand.ranking.folder import read_model

    return read_model(folder, verify=verify)


def on_cpu(vectors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Both matrices in main memory, as a model keeps them."""
    users, items = vectors
    return users.to("cpu", torch.float32), items.to("cpu", torch.float32)
