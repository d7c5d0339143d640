"""Most popular: everyone gets the items that most users touched. The floor that a method must clear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.rivals.base import Fitted, Rival


@dataclass(frozen=True)
class Popular(Rival):
    """`s(u, i) = |U_i|`, the number of train users of the item; of equals, the lowest index comes first."""

    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FittedPopular:
        return FittedPopular(train)


@dataclass(frozen=True, eq=False)
class FittedPopular(Fitted):
    train: Interactions

    def scores(self, users: np.ndarray) -> Tensor:
        # float64, because float32 would tie counts above 16 million.
        return torch.from_numpy(self.train.popularity).double().repeat(len(users), 1)
