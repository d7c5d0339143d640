"""Several models as one: what each thinks of a user's items, brought to the same scale and added up.

Scores of two models do not compare: one may speak in thousandths where the other speaks in tens. Over the
catalogue of one user they do, once each has mean 0 and spread 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.metrics.lists import count
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.models.item_weights import ItemWeightModel
from evenhand.models.topk import Score

WEIGHTS = "weights"
"""Name of the tensor that holds the parts' weights; those of the parts are called `0.dense.weights`."""

Part = FactorModel | ItemWeightModel


def standardised(scores: Tensor) -> Tensor:
    """Every row with mean 0 and spread 1; a row that is all the same becomes 0.

    >>> standardised(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    return _standardise(scores.float().clone())


def _standardise(scores: Tensor) -> Tensor:
    """The same in place, as a blend of large catalogues spends its time on memory."""
    spread, mean = torch.std_mean(scores, dim=1, correction=0, keepdim=True)
    return scores.sub_(mean).div_(torch.where(spread > 0, spread, 1))


def blended(scorers: Sequence[Score], weights: Sequence[float]) -> Score:
    """Σ weight · standardised scores."""

    def score(users: np.ndarray) -> Tensor:
        total = _standardise(scorers[0](users).float()).mul_(weights[0])
        for one, weight in zip(scorers[1:], weights[1:], strict=True):
            total.add_(_standardise(one(users).float()).to(total.device), alpha=weight)
        return total

    return score


@dataclass(frozen=True, eq=False)
class BlendModel(Model):
    """The models of a blend with their weights; all of them know the same users and items."""

    parts: tuple[Part, ...]
    weights: tuple[float, ...]
    known: Interactions
    seeds: tuple[int, ...] = (0,)
    info: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: tuple[Mapping[str, Any], ...] = ()
    best: int = 0
    titles: pa.Array | None = None

    kind: ClassVar[str] = "blend"
    likeness: ClassVar[str] = "score"

    def __repr__(self) -> str:
        method = self.info.get("method", self.kind)
        return f"BlendModel({method}: {count(self.known.n_users, 'user')} × {count(self.known.n_items, 'item')})"

    @property
    def explained(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].explained
        shares = ", ".join(f"{weight:g}" for weight in self.weights)
        return (
            f"A user's score of an item is the sum, with weights {shares}, of what {len(self.parts)} models "
            "say, each with mean 0 and spread 1 over the catalogue."
        )

    def as_vectors(self) -> FactorModel:
        """One part alone ranks as its vectors do: a positive weight and a user's own scale change no order."""
        (part, weight), *more = zip(self.parts, self.weights, strict=True)
        if more or weight <= 0 or not isinstance(part, FactorModel):
            raise self.no_vectors()
        return part

    @property
    def seen(self) -> Interactions:  # type: ignore[override]
        """The pairs that the scores of the parts are made of."""
        return next((part.seen for part in self.parts if part.seen is not None), self.known)

    def scorer(self, replica: int) -> Score:
        return blended([part.scorer(part.best) for part in self.parts], self.weights)

    def tensors(self) -> dict[str, Tensor]:
        named = {
            f"{place}.{part.kind}.{name}": tensor
            for place, part in enumerate(self.parts)
            for name, tensor in part.tensors().items()
        }
        return {WEIGHTS: torch.tensor(self.weights, dtype=torch.float64), **named}

    def damage(self) -> str | None:
        if not 0 < len(self.parts) == len(self.weights) or not all(type(weight) is float for weight in self.weights):
            return "its weights do not match its parts"
        return next(filter(None, (part.damage() for part in self.parts)), None)

    def on_cpu(self) -> Self:
        return replace(self, parts=tuple(part.on_cpu() for part in self.parts))

    def similar(self, item: Any, k: int = 10, *, seed: int | None = None) -> pa.Table:
        """As the first of the parts has them."""
        self.replica(seed)
        return self.parts[0].similar(item, k)

    def with_users(self, history: Interactions) -> Self:
        return replace(
            self,
            parts=tuple(part.with_users(history) for part in self.parts),
            known=history,
            info={**self.info, "folded_in": history.n_users},
            metrics={},
        )


def parts_of(tensors: Mapping[str, Tensor]) -> list[tuple[str, dict[str, Tensor]]]:
    """The kind and the tensors of every part, from those of the whole.

    >>> parts_of({"weights": torch.ones(1), "0.dense.weights": torch.ones(2, 2)})[0][0]
    'dense'
    """
    found: dict[tuple[int, str], dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name != WEIGHTS:
            place, kind, own = name.split(".", 2)
            found.setdefault((int(place), kind), {})[own] = tensor
    return [(kind, found[place, kind]) for place, kind in sorted(found)]
