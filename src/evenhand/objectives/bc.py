"""BC loss: a contrastive loss that asks more of a pair the less popularity alone would predict it.

A small branch that knows only how popular users and items are is trained first and then frozen. What it
predicts badly gets a margin: the angle between user and item must be smaller by that much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.objectives.base import Loss, Objective, Scored, check_flag, check_positive, mine, normal
from evenhand.objectives.softmax import TEMPERATURES, unit_length
from evenhand.samplers.base import rows
from evenhand.utils.errors import InputError, unknown

Margin = Literal["code", "paper"]
Final = Literal["inner", "cosine"]
_USER_LEVELS, _ITEM_LEVELS = 0xBC01, 0xBC02
_EDGE = 1 - 1e-7
"""Beyond this cosine an angle has no finite gradient."""


@dataclass(frozen=True)
class BCLoss(Objective):
    """`-log softmax` of `cos(θ + M)/tau1` for the positive against `cos θ/tau1` of the negatives.

    For `warm_up` epochs only the popularity branch learns, by the same loss on its own cosines without a
    margin; from then on only the encoder, and M is a constant. It wants many negatives: 128 a positive.
    """

    tau1: float | None = None
    """Temperature of the main loss. None settles it on validation; without one it is .07, as published."""
    tau2: float = 0.1
    """Temperature of the popularity branch."""
    weight: float = 0.5
    """Weight of the branch's loss, and 1 - weight that of the main one: a scale against the weight decay."""
    warm_up: int = 5
    """Epochs in which the branch learns and the encoder stays as it is."""
    margin: Margin = "code"
    """M = 1 - σ(a·b) as in the published code, or "paper": the angle between a and b. Never above π - θ."""
    final: Final | None = None
    """Recommend by inner product, as published, or by "cosine", which is what was trained. None is the
    former in the paper's protocol, the latter in the honest one: lengths, which no loss holds, can go anywhere."""
    in_batch: bool = False
    """Use the other positives of the batch as negatives, as published for LightGCN; the sampler is idle."""

    def __post_init__(self) -> None:
        if self.tau1 is not None:
            check_positive("tau1", self.tau1)
        check_positive("tau2", self.tau2)
        if not 0 < self.weight < 1:
            raise InputError(f"weight must lie between 0 and 1, not {self.weight}.")
        if not isinstance(self.warm_up, int) or self.warm_up < 0:
            raise InputError(f"warm_up must be a whole number of at least 0, not {self.warm_up}.")
        if self.margin not in get_args(Margin):
            raise unknown("margin", str(self.margin), get_args(Margin))
        if self.final is not None and self.final not in get_args(Final):
            raise unknown("final", str(self.final), get_args(Final))
        check_flag("in_batch", self.in_batch)

    @property
    def lengths_matter(self) -> bool:
        return False

    @property
    def negatives(self) -> int:
        return 1 if self.in_batch else 128

    def forms(self) -> tuple[BCLoss, ...]:
        return tuple(
            replace(self, tau1=tau1, final=self.final or "cosine")
            for tau1 in (TEMPERATURES if self.tau1 is None else [self.tau1])
        )

    def closed(self) -> BCLoss:
        return replace(self, tau1=self.tau1 or 0.07, final=self.final or "inner")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> RunningBCLoss:
        device, dim = model.items.device, model.items.shape[-1]
        levels, tables = [], []
        for counts, salt in ((train.activity, _USER_LEVELS), (train.popularity, _ITEM_LEVELS)):
            distinct = np.unique(counts[counts > 0])  # what has no pair is like what has the fewest
            levels.append(torch.from_numpy(np.searchsorted(distinct, counts)).to(device))
            xavier = (2 / (len(distinct) + dim)) ** 0.5
            tables.append(normal((len(distinct), dim), seeds, salt, xavier).to(device))
        return RunningBCLoss(self, levels, tables)


class RunningBCLoss(Loss):
    decays = False

    def __init__(self, of: BCLoss, levels: Sequence[Tensor], tables: Sequence[Tensor]) -> None:
        super().__init__()
        self.of = of = of.closed()
        assert of.tau1 is not None
        self.temperature = of.tau1
        self.transforms = of.final == "cosine"
        self.user_level, self.item_level = levels
        """int64: the place of each user's and item's count among the distinct ones."""
        self.user_table, self.item_table = map(nn.Parameter, tables)
        """[R, levels, d]"""
        self.warming = of.warm_up > 0

    @property
    def trains_encoder(self) -> bool:
        return not self.warming

    def begin_epoch(self, epoch: int) -> None:
        self.warming = epoch < self.of.warm_up

    def forward(self, batch: Scored) -> Tensor:
        if self.warming:
            return self.of.weight * self.popularity_loss(batch)
        return (1 - self.of.weight) * self.main_loss(batch)

    def popularity_loss(self, batch: Scored) -> Tensor:
        """[r]: the branch's own contrastive loss."""
        user, positive = self._branch(batch)
        if self.of.in_batch:
            others = self._others(batch, user, positive)
        else:
            others = cosines(user, mine(self.item_table, batch), self.item_level[batch.negatives])
        return contrast(cosine(user, positive), others, self.of.tau2)

    def main_loss(self, batch: Scored) -> Tensor:
        """[r]: the encoder's contrastive loss, with the margin on the positive."""
        angle = cosine(batch.user, batch.positive).clamp(-_EDGE, _EDGE).arccos()
        raised = (angle + self.margins(batch, angle.detach())).cos()
        if self.of.in_batch:
            others = self._others(batch, batch.user, batch.positive)
        else:
            others = cosines(batch.user, batch.items, batch.negatives)
        return contrast(raised, others, self.temperature)

    @torch.no_grad()
    def margins(self, batch: Scored, angle: Tensor) -> Tensor:
        """[r, B]: M of the positives, no more than what is left of π: beyond it cos would rise again."""
        user, positive = self._branch(batch)
        if self.of.margin == "code":
            margin = 1 - torch.sigmoid((user * positive).sum(-1))
        else:
            margin = cosine(user, positive).clamp(-_EDGE, _EDGE).arccos()
        return torch.minimum(margin, math.pi - angle)

    def finals(self, vectors: Vectors) -> tuple[Vectors, ...]:
        if self.of.final == "inner":
            return (vectors,)
        return (unit_length(vectors),)

    def _branch(self, batch: Scored) -> tuple[Tensor, Tensor]:
        """[r, B, d] each: the branch's vectors of users and positives."""
        return (
            rows(mine(self.user_table, batch), self.user_level[batch.users]),
            rows(mine(self.item_table, batch), self.item_level[batch.positives]),
        )

    def _others(self, batch: Scored, user: Tensor, positive: Tensor) -> Tensor:
        """[r, B, B]: cosines with the batch's positives; -inf where that is the user's own positive."""
        same = batch.positives.unsqueeze(1) == batch.positives.unsqueeze(2)
        return unit_products(user, positive).masked_fill(same, -torch.inf)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Along the last axis; 0 where a vector is 0. Faster than to make unit vectors of all b first."""
    length = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return (a * b).sum(-1) / length.clamp_min(1e-12)


def cosines(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """[r, B, n]: of each user [r, B, d] with the items [r, N, d] that index [r, B, n] names.

    Where a user's items hold more numbers than the table has rows, products with all of them cost less.
    """
    if items.shape[1] > index.shape[2] * items.shape[2]:
        return cosine(users.unsqueeze(2), rows(items, index))
    return unit_products(users, items).gather(-1, index)


def unit_products(a: Tensor, b: Tensor) -> Tensor:
    """[r, A, B]: the cosines of all pairs."""
    return normalize(a, dim=-1) @ normalize(b, dim=-1).mT


def contrast(positive: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """[r]: the mean of form (S) of scores [r, B] against those of their own negatives [r, B, n]."""
    logits = torch.cat([positive.unsqueeze(-1), negatives], -1) / temperature
    return (logits.logsumexp(-1) - logits[..., 0]).mean(1)
