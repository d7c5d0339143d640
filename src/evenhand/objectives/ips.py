"""IPS-CN: positives weigh by their inverse propensity, clipped and normalised, so that hits count less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss, Objective, Scored
from evenhand.objectives.bpr import bpr
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class IPS(Objective):
    """`-w_i log σ(s_i - s_j)` with `w = min(1/ρ, median 1/ρ)`, divided by its maximum; ρ_i = pop_i / max pop.

    The less popular half of the catalogue weighs 1, the most popular item 1 / median. Weight decay does not
    shrink with the loss, so a strong one can push the model into the tail: tune it together with lr.
    """

    smoothing: float = 1.0
    """An exponent on the weights, in [0, 1]: 0 is plain BPR."""

    def __post_init__(self) -> None:
        if not 0 <= self.smoothing <= 1:
            raise InputError(f"smoothing must lie in [0, 1], not {self.smoothing}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> IPSLoss:
        weights = torch.from_numpy(propensity_weights(train.popularity) ** self.smoothing)
        return IPSLoss(weights.to(model.users.device, torch.float32))


class IPSLoss(Loss):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, batch: Scored) -> Tensor:
        weight = self.weights[batch.positives].unsqueeze(-1)
        return (weight * bpr(batch.s_positive, batch.s_negative)).mean((1, 2))


def propensity_weights(popularity: np.ndarray) -> np.ndarray:
    """float64 [n_items]: clipped at the median over *items* (not interactions), then divided by the largest.

    >>> propensity_weights(np.array([8, 4, 2, 0])).round(3).tolist()
    [0.333, 0.667, 1.0, 1.0]
    """
    counts = np.maximum(popularity, 1).astype(np.float64)
    weights = counts.max() / counts
    clipped = np.minimum(weights, np.median(weights))
    return clipped / clipped.max()
