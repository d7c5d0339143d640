"""A positive should score higher than its negative: BPR, and the same with weights (IPS) or a penalty (REG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss, Objective, Scored
from evenhand.utils.errors import InputError

_GUARD = 1e-5
"""Keeps a correlation finite where one side does not vary."""


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """-log σ(s⁺ - s⁻) of every pair: positive [R, B] and negative [R, B, n] give [R, B, n]."""
    return softplus(negative - positive.unsqueeze(-1))


@dataclass(frozen=True)
class BPR(Objective):
    """Bayesian personalised ranking: `-log σ(s⁺ - s⁻)`, the mean over a batch."""

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> BPRLoss:
        return BPRLoss()


class BPRLoss(Loss):
    def forward(self, batch: Scored) -> Tensor:
        return bpr(batch.s_positive, batch.s_negative).mean((1, 2))


@dataclass(frozen=True)
class IPS(Objective):
    """IPS-CN: `-w_i log σ(s_i - s_j)` with `w = min(1/ρ, median 1/ρ)`, divided by its maximum; ρ_i = pop_i / max pop.

    The less popular half of the catalogue weighs 1, the most popular item 1 / median. Weight decay does not
    shrink with the loss, so a strong one can push the model into the tail: tune it together with lr.
    """

    smoothing: float = 1.0
    """An exponent on the weights, in [0, 1]: 0 is plain BPR."""

    l2_also_tried = (1e-5,)  # popular items weigh a hundredth and less, and L2 does not

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


@dataclass(frozen=True)
class Reg(Objective):
    """REG: `(1 - weight)·BPR + weight·r²`, r the Pearson correlation of σ(s_i - s_j) with pop_i over the batch.

    Batches of fewer than about a hundred make r noisy.
    """

    weight: float = 0.05
    """Share of the penalty, in [0, 1); 0 is plain BPR."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < 1:
            raise InputError(f"weight must lie in [0, 1), not {self.weight}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> RegLoss:
        popularity = torch.from_numpy(train.popularity).to(model.users.device, torch.float32)
        return RegLoss(popularity / popularity.max().clamp_min(1), self.weight)


class RegLoss(Loss):
    def __init__(self, popularity: Tensor, weight: float) -> None:
        super().__init__()
        self.popularity, self.weight = popularity, weight

    def forward(self, batch: Scored) -> Tensor:
        ranking = bpr(batch.s_positive, batch.s_negative).mean((1, 2))
        if self.weight == 0:
            return ranking
        margin = torch.sigmoid(batch.s_positive.unsqueeze(-1) - batch.s_negative)
        popularity = self.popularity[batch.positives].unsqueeze(-1).expand_as(margin)
        r = correlation(margin.flatten(1), popularity.flatten(1))
        return (1 - self.weight) * ranking + self.weight * r.square()


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's r along the last axis, in [-1, 1]; near 0 where one side does not vary."""
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    spread = (a.square().sum(-1) * b.square().sum(-1) + _GUARD**2).sqrt()
    return ((a * b).sum(-1) / spread).clamp(-1, 1)
