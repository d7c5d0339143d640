"""Most popular: everyone gets the items that most users touched. The floor that a method must clear."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from evenhand.data.interactions import Interactions
from evenhand.ranking.item_table import CountTable
from evenhand.rivals.base import FittedItems, Rival


@dataclass(frozen=True)
class Popular(Rival):
    """`s(u, i) = |U_i|`, the number of train users of the item; of equals, the lowest index comes first."""

    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FittedItems:
        return FittedItems(self, train, CountTable(torch.from_numpy(train.popularity).double()))
