"""CausE: a second item table learns from a sample that is nearly even over items, and steers the first.

Without a log of random exposure, the even sample is a tenth of the training pairs, drawn by inverse
popularity once and for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.objectives.base import Loss, Objective, Scored, mine
from evenhand.objectives.pairwise import bpr
from evenhand.samplers.base import is_in, rows
from evenhand.utils import keyed
from evenhand.utils.errors import InputError

_TREATMENT = 0xCA05E
"""The sample depends on the data and on this key, not on a run's seed: all replicas have the same."""


@dataclass(frozen=True)
class CausE(Objective):
    """BPR with the treatment table for sampled pairs and the control table for the rest, kept close.

    The penalty is `weight` times the mean squared distance of an item's two vectors over the distinct items
    of a batch. Both tables start equal and share the users; LightGCN propagates each with them over the
    whole graph. The control table, which is the encoder's own, makes the predictions.
    """

    weight: float = 0.1
    """Weight λ of the distance between the tables."""
    share: float = 0.1
    """Share of the training pairs that are treatment, in (0, 1); an item's pairs by 1 / popularity."""

    least_lr: ClassVar[float] = 0.002  # each table learns from a part of the pairs (docs/sparse.md)

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise InputError(f"weight must be at least 0, not {self.weight}.")
        if not 0 < self.share < 1:
            raise InputError(f"share must lie between 0 and 1, not {self.share}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> CausELoss:
        treated = train.keys[treatment(train, self.share)]
        if not len(treated):
            raise InputError(
                f"a share of {self.share:g} of {len(train):,} training pairs leaves none to treat; raise it."
            )
        return CausELoss(model, torch.from_numpy(treated).to(model.items.device), self.weight)


class CausELoss(Loss):
    def __init__(self, model: Tables, treated: Tensor, weight: float) -> None:
        super().__init__()
        self.items = nn.Parameter(model.items.detach().clone())
        """[R, n_items, d]: the treatment table."""
        self.treated, self.weight = treated, weight
        self._own_users = model.propagates
        self._vectors: Vectors | None = None

    def prepare(self, model: Tables) -> None:
        self._vectors = model.encode(model.users, self.items)

    def finish(self) -> None:
        self._vectors = None

    def item_tables(self) -> tuple[nn.Parameter, ...]:
        return (self.items,)

    def forward(self, batch: Scored) -> Tensor:
        assert self._vectors is not None, "prepare() comes first"
        items = mine(self._vectors.items, batch)
        positive, negative = rows(items, batch.positives), rows(items, batch.negatives)
        user = batch.user
        if self._own_users:  # otherwise both tables meet the very same vectors of the users
            user = rows(mine(self._vectors.users, batch), batch.users)
        treated = is_in(self.treated, batch.users * items.shape[1] + batch.positives)
        score = torch.where(treated, (user * positive).sum(-1), batch.s_positive)
        other = torch.where(treated.unsqueeze(-1), (user.unsqueeze(2) * negative).sum(-1), batch.s_negative)
        loss = bpr(score, other).mean((1, 2))
        if self.weight == 0:
            return loss
        control = torch.cat([batch.positive, batch.negative.flatten(1, 2)], 1)
        treatment = torch.cat([positive, negative.flatten(1, 2)], 1)
        once = first_occurrences(torch.cat([batch.positives, batch.negatives.flatten(1)], 1))
        distance = (control - treatment).square().sum(-1)
        return loss + self.weight * (distance * once).sum(1) / once.sum(1)


def first_occurrences(items: Tensor) -> Tensor:
    """bool, like items [r, m]: where an item stands for the first time in its row."""
    ordered, order = items.sort(dim=1, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(new).scatter(1, order, new)


def treatment(train: Interactions, share: float) -> np.ndarray:
    """bool [n_pairs]: the sample, about `share` of the pairs, each by `inclusion` of its item."""
    drawn = keyed.uniforms(torch.tensor(keyed.key(_TREATMENT)), len(train)).numpy()
    return drawn < inclusion(train.popularity, share)[train.items]


def inclusion(popularity: np.ndarray, share: float) -> np.ndarray:
    """float64 [n_items]: min(1, c / popularity), with c such that `share` of all pairs is expected.

    So every item expects c pairs in the sample, or all it has where these are fewer.

    >>> inclusion(np.array([8, 4, 1, 0]), 5 / 13).round(6).tolist()
    [0.25, 0.5, 1.0, 1.0]
    """
    wanted = share * popularity.sum()
    low, high = 0.0, float(popularity.max(initial=0))
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(popularity, c).sum() < wanted else (low, c)
    return np.minimum(1.0, high / np.maximum(popularity, 1e-9))
