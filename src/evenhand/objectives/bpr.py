"""Bayesian personalised ranking: a positive should score higher than its negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss, Objective, Scored


@dataclass(frozen=True)
class BPR(Objective):
    """`-log σ(s⁺ - s⁻)`, the mean over a batch."""

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> BPRLoss:
        return BPRLoss()


class BPRLoss(Loss):
    def forward(self, batch: Scored) -> Tensor:
        return bpr(batch.s_positive, batch.s_negative).mean((1, 2))


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """-log σ(s⁺ - s⁻) of every pair: positive [R, B] and negative [R, B, n] give [R, B, n]."""
    return softplus(negative - positive.unsqueeze(-1))
