"""Most popular: everyone gets the items that most users interacted with. The floor that a method must clear."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evenhand.baselines.base import Baseline
from evenhand.data.interactions import Interactions
from evenhand.models.item_weights import CountTable, ItemWeightModel
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class Popular(Baseline):
    """`s(u, i) = |U_i|`, the number of train users of the item; of equals, the lowest index comes first."""

    log: bool = False
    """Score by log(1 + |U_i|): the same lists, but on a scale on which popularity can be taken out of a blend."""

    def __post_init__(self) -> None:
        if not isinstance(self.log, bool):
            raise InputError(f"log must be true or false, not {self.log}.")

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        counts = torch.from_numpy(train.popularity).double()
        return self.item_model(train, CountTable(counts.log1p() if self.log else counts))
