"""Balanced pair mining (SAM): half of the negatives less popular than their positive, half more popular."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import Batch, BoundSampler, Sampler
from evenhand.samplers.unobserved import UnobservedDistribution, in_order, scaled
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class BalancedSampler(Sampler):
    """A fair coin decides the side; the draw is uniform over what the user has not seen on it.

    Equally popular items count as less popular. Where a side is empty, the draw is uniform over both.
    """

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[BalancedSampler], train: Interactions, device: torch.device | str
    ) -> BalancedBound:
        return BalancedBound(train, device, len(replicas))


class BalancedBound(BoundSampler):
    """Items are put in the order of their popularity, so that each side is one stretch of the mass."""

    def __init__(self, train: Interactions, device: torch.device | str, replicas: int) -> None:
        super().__init__(train, device, replicas)
        order = np.argsort(train.popularity, kind="stable")
        regrouped = in_order(train, order)
        self.distribution = UnobservedDistribution(regrouped, None, device)
        self._keys = torch.from_numpy(regrouped.keys).to(self.device)
        self._row_start = torch.from_numpy(regrouped.indptr[:-1]).to(self.device)
        self._item_at = torch.from_numpy(order).to(self.device)
        upto = np.searchsorted(train.popularity[order], train.popularity, side="right")
        self._upto = torch.from_numpy(upto).to(self.device)
        """int64 [n_items]: how many items are at most as popular as each."""

    def width(self, n: int) -> int:
        return 2 * n

    def choose(self, batch: Batch) -> Tensor:
        if batch.positives is None:
            raise InputError("this sampler compares with the positive item: give `positives`.")
        coin, where = batch.uniforms.split(batch.n, dim=-1)
        users = batch.users.unsqueeze(-1)
        edge = self._upto[batch.positives].unsqueeze(-1)
        own = torch.searchsorted(self._keys, users * self.n_items + edge) - self._row_start[users]
        less, all_ = edge - own, self.distribution.mass[users]
        begin = torch.where(coin < 0.5, torch.zeros_like(less), less)
        size = torch.where(coin < 0.5, less, all_ - less)
        empty = size == 0
        begin, size = torch.where(empty, 0, begin), torch.where(empty, all_, size)
        owner = users.expand(where.shape)
        return self._item_at[self.distribution.at(owner, begin + scaled(where, size))]
