"""What every model can do, whatever its scores are made of: recommend, take in new users, be saved.

`Model` is made of vectors, `ItemWeightModel` of weights between items; whoever has one need not ask which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.id_lookup import known_positions, list_table
from evenhand.models.topk import Score, top_by
from evenhand.utils.errors import InputError


class Model(ABC):
    """Subclasses are frozen dataclasses that hold the attributes named here."""

    known: Interactions
    """Train and validation pairs: the vocabulary of users and items, and what is not recommended again."""
    seeds: tuple[int, ...]
    best: int
    """Position of the replica that did best on validation: the one that recommends."""
    info: Mapping[str, Any]
    """How it came to be: method, settings, protocol, data, versions. Plain JSON values."""
    history: tuple[Mapping[str, Any], ...]
    """One record an epoch."""
    metrics: Mapping[str, Mapping[str, Any]]
    """Results on test: {"10": {"ndcg": {"mean": …, "std": …, "values": […]}, …}, …}; empty without a test."""

    likeness: ClassVar[str]
    """What the score of a similar item is."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """Which form of model this is, in its folder's config.json."""

    @property
    @abstractmethod
    def explained(self) -> str:
        """One sentence on what a score is, for the model card."""

    @abstractmethod
    def scorer(self, replica: int) -> Score:
        """What scores the whole catalogue for users by index."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What the folder's model.safetensors holds."""

    @abstractmethod
    def similar(self, item: Any, k: int = 10, *, seed: int | None = None) -> pa.Table:
        """The k items most like this one, best first: item, score."""

    @abstractmethod
    def with_users(self, history: Interactions) -> Self:
        """The same model for other users, who touched these of its items."""

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
                t.append_column("seed", pa.array(np.full(len(t), s))) for s, t in zip(self.seeds, tables, strict=True)
            )
        return self._table(self.replica(seed), wanted, k, known, allowed)

    def scores(self, users: np.ndarray) -> Tensor:
        """[n, n_items]: what the recommending replica thinks of every item, for users by index."""
        return self.scorer(self.best)(users)

    def fold_in(self, history: Any) -> Self:
        """This model with other users: those of `history`, scored by what they touched.

        `history` is an `Interactions`, a file or a table with columns user and item. No training takes
        place and the items stay as they are. What could not be used is told in `known.notes` of the result.
        """
        from evenhand.models.fold_in import usable_history

        return self.with_users(usable_history(history, self.known))

    def on_cpu(self) -> Self:
        """The same with its tensors in main memory."""
        return self

    def having(self, **changes: Any) -> Self:
        """The same with other `info`, `metrics` or whatever else it holds."""
        return replace(self, **changes)  # type: ignore[type-var]

    def no_vectors(self) -> InputError:
        """What whoever asks for vectors is told, where there are none."""
        method = str(self.info.get("method", "this kind")).partition(":")[0]
        return InputError(
            f"a model of {method} has no vectors to export; write its lists with `evenhand recommend --out`, "
            "or train als or another method that has vectors."
        )

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model folder, whole or not at all; one that exists is only replaced with `force`."""
        from evenhand.models.folder import write_model

        write_model(self, folder, force=force)

    def replica(self, seed: int | None) -> int:
        """The position of a seed's replica; of the best one for None."""
        if seed is None:
            return self.best
        if seed not in self.seeds:
            raise InputError(f"the model has no seed {seed}; it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)

    def _position(self, item: Any, k: int) -> int:
        """Where an item stands that has k others beside it."""
        place = int(known_positions([item], self.known.item_ids, "item")[0])
        if not 1 <= k < self.known.n_items:
            raise InputError(f"k must lie between 1 and the {self.known.n_items - 1:,} other items, not {k}.")
        return place

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

    def _table(self, replica: int, users: np.ndarray, k: int, known: bool, allowed: Tensor | None) -> pa.Table:
        exclude = None if known else self.known
        items, scores = top_by(self.scorer(replica), self.known.n_items, users, k, exclude=exclude, only=allowed)
        self._check_finite(users, items, scores, known, allowed)
        return list_table(self.known, users, items, scores)

    def _check_finite(
        self, users: np.ndarray, items: np.ndarray, scores: np.ndarray, known: bool, allowed: Tensor | None
    ) -> None:
        """Refuse scores that are no numbers: infinite ones, and those that a list is shorter by than it must be."""
        left = self.known.n_items if allowed is None else int(allowed.sum())
        least = np.minimum(items.shape[1], left - (0 if known else self.known.activity[users]))
        wrong = np.isposinf(scores).any(1) | ((items >= 0).sum(1) < least)
        if wrong.any():
            raise InputError(
                f"the model's scores are not finite for {int(wrong.sum()):,} of {len(users):,} users: its numbers "
                "are damaged or ran away in training; train it again, with a lower --lr if need be."
            )
