"""Most popular: everyone gets the items that most users touched. The floor that a method must clear."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evenhand.baselines.base import Baseline
from evenhand.data.interactions import Interactions
from evenhand.models.item_weights import CountTable, ItemWeightModel


@dataclass(frozen=True)
class Popular(Baseline):
    """`s(u, i) = |U_i|`, the number of train users of the item; of equals, the lowest index comes first."""

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        return self.item_model(train, CountTable(torch.from_numpy(train.popularity).double()))
