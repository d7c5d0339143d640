"""REG: BPR with a penalty on the correlation between how well an item is ranked and how popular it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss, Objective, Scored
from evenhand.objectives.bpr import bpr
from evenhand.utils.errors import InputError

_GUARD = 1e-5


@dataclass(frozen=True)
class Reg(Objective):
    """`(1 - weight)·BPR + weight·r²`, r the Pearson correlation of σ(s_i - s_j) with pop_i over the batch.

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
        accuracy = bpr(batch.s_positive, batch.s_negative).mean((1, 2))
        if self.weight == 0:
            return accuracy
        margin = torch.sigmoid(batch.s_positive.unsqueeze(-1) - batch.s_negative)
        popularity = self.popularity[batch.positives].unsqueeze(-1).expand_as(margin)
        r = correlation(margin.flatten(1), popularity.flatten(1))
        return (1 - self.weight) * accuracy + self.weight * r.square()


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's r along the last axis, in [-1, 1]; near 0 where one side does not vary."""
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    spread = (a.square().sum(-1) * b.square().sum(-1) + _GUARD**2).sqrt()
    return ((a * b).sum(-1) / spread).clamp(-1, 1)
