"""Several models as one: each model's scores of a user's items, brought to the same scale and added up.

Scores of two models do not compare: one may be in thousandths, the other in tens. Within the catalogue of one user
they do, once the mean is 0 and the best item that the user does not have yet is 1 (or, in blends of version 0.1, once
the spread is 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions, gather_rows
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.models.item_weights import ItemWeightModel
from evenhand.models.topk import Score

if TYPE_CHECKING:
    from evenhand.models.new_items import NewItems

Scale = Literal["best", "spread"]
WEIGHTS: Mapping[Scale, str] = {"best": "weights_to_best", "spread": "weights"}
"""Name of the tensor that holds the parts' weights, by scale; those of the parts are called `0.dense.weights`."""

Part = FactorModel | ItemWeightModel


def standardised(scores: Tensor) -> Tensor:
    """Every row with mean 0 and spread 1; a row that is all the same becomes 0.

    >>> standardised(torch.tensor([[1.0, 3.0], [5.0, 5.0]]))
    tensor([[-1.,  1.],
            [ 0.,  0.]])
    """
    spread, mean = torch.std_mean(scores.float(), dim=1, correction=0, keepdim=True)
    return (scores.float() - mean).div_(torch.where(spread > 0, spread, 1))


def scaled_to_best(scores: Tensor, seen: tuple[Tensor, Tensor]) -> Tensor:
    """Every row with mean 0 and a maximum of 1 over what is not in `seen` (row, item); equal scores become 0.

    >>> scaled_to_best(torch.tensor([[1.0, 3.0, 8.0], [5.0, 5.0, 5.0]]), (torch.tensor([0]), torch.tensor([2])))
    tensor([[-1.,  1.,  6.],
            [ 0.,  0.,  0.]])
    """
    scores, n = scores.float(), scores.shape[1]
    # From sums over all items and over the few that are seen: a pass over a large catalogue costs memory traffic.
    own = torch.zeros(len(scores), device=scores.device).index_add_(0, seen[0], scores[seen])
    count = n - torch.bincount(seen[0], minlength=len(scores))
    moved = scores - ((scores.sum(1) - own) / count.clamp(min=1)).unsqueeze(1)
    kept = moved[seen]
    best = moved.index_put_(seen, moved.new_zeros(())).amax(1, keepdim=True)
    moved.index_put_(seen, kept)
    return moved.div_(torch.where(best > 0, best, torch.inf))


def scaled(scores: Tensor, known: Interactions, users: np.ndarray, scale: Scale) -> Tensor:
    """A part's scores [n, n_items] of these users, on the scale on which parts are added up."""
    if scale == "spread":
        return standardised(scores)
    row, item = (torch.from_numpy(x).to(scores.device) for x in gather_rows(known.indptr, known.items, users))
    return scaled_to_best(scores, (row, item.long()))


@dataclass(frozen=True, eq=False, repr=False)
class BlendModel(Model):
    """The models of a blend with their weights; all of them know the same users and items."""

    parts: tuple[Part, ...]
    weights: tuple[float, ...]
    scale: Scale = "best"
    fitted_to: Interactions | None = None
    """The pairs that the parts were fitted to, where `known` has more: what a user had then sets the scale."""
    seeds: tuple[int, ...] = field(default=(0,), kw_only=True)

    kind: ClassVar[str] = "blend"
    likeness: ClassVar[str] = "score"

    @property
    def explained(self) -> str:
        if len(self.parts) == 1:
            return self.parts[0].explained
        weights = ", ".join(f"{weight:g}" for weight in self.weights)
        rule = "a spread of 1" if self.scale == "spread" else "1 at the best item that is new to the user"
        return (
            f"A user's score of an item is the sum, with weights {weights}, of what {len(self.parts)} models "
            f"say, each with mean 0 and {rule}."
        )

    def as_vectors(self) -> FactorModel:
        """One part alone ranks as its vectors do: a positive weight and a user's own scale change no order."""
        (part, weight), *more = zip(self.parts, self.weights, strict=True)
        if more or weight <= 0 or not isinstance(part, FactorModel):
            return super().as_vectors()
        return part

    @property
    def seen(self) -> Interactions:  # type: ignore[override]
        return self.known if self.fitted_to is None else self.fitted_to

    def scorer(self, replica: int) -> Score:
        scorers = [part.scorer(part.best) for part in self.parts]

        def score(users: np.ndarray) -> Tensor:
            total: Tensor | None = None
            for one, weight in zip(scorers, self.weights, strict=True):
                own = scaled(one(users), self.seen, users, self.scale).mul_(weight)
                total = own if total is None else total.add_(own.to(total.device))
            assert total is not None
            return total

        return score

    def tensors(self) -> dict[str, Tensor]:
        named = {
            f"{place}.{part.kind}.{name}": tensor
            for place, part in enumerate(self.parts)
            for name, tensor in part.tensors().items()
        }
        return {WEIGHTS[self.scale]: torch.tensor(self.weights, dtype=torch.float64), **named}

    @property
    def uses_times(self) -> bool:
        return any(part.uses_times for part in self.parts)

    def damage(self) -> str | None:
        if not 0 < len(self.parts) == len(self.weights) or not all(type(weight) is float for weight in self.weights):
            return "its weights do not match its parts"
        return next(filter(None, (part.damage() for part in self.parts)), None)

    def on_cpu(self) -> Self:
        return replace(self, parts=tuple(part.on_cpu() for part in self.parts))

    def for_requests(self) -> Self:
        return replace(self, parts=tuple(part.for_requests() for part in self.parts))

    def most_similar(self, place: int, k: int, replica: int) -> tuple[np.ndarray, np.ndarray]:
        """As the first of the parts has them."""
        return self.parts[0].most_similar(place, k, self.parts[0].best)

    def with_users(self, history: Interactions) -> Self:
        return self._of_users(history, parts=tuple(part.with_users(history) for part in self.parts), fitted_to=None)

    def with_items(self, added: NewItems) -> Self:
        return replace(
            self,
            parts=tuple(part.with_items(added) for part in self.parts),
            known=added.moved(self.known),
            fitted_to=None if self.fitted_to is None else added.moved(self.fitted_to),
        )


def parts_of(tensors: Mapping[str, Tensor]) -> list[tuple[str, dict[str, Tensor]]]:
    """The kind and the tensors of every part, from those of the whole.

    >>> parts_of({"weights": torch.ones(1), "0.dense.weights": torch.ones(2, 2)})[0][0]
    'dense'
    """
    found: dict[tuple[int, str], dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name not in WEIGHTS.values():
            place, kind, own = name.split(".", 2)
            found.setdefault((int(place), kind), {})[own] = tensor
    return [(kind, found[place, kind]) for place, kind in sorted(found)]
