"""Group sampling (FairStatic): first a group of items by a fixed distribution, then an item uniformly within it.

This is the static form of FairNeg. With groups hot and cold drawn by their share of interactions, half of
the negatives are popular items, so that the tail is pushed down less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.samplers.base import LookingSampler, Sampler
from evenhand.samplers.unobserved import UnobservedDistribution, in_order, scaled
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class GroupSampler(Sampler):
    """`z ~ π`, then `j` uniform on group z minus the user's items; groups with nothing left are redrawn."""

    groups: tuple[int, ...] | None = None
    """The group of every item, by item index (0…G-1); None makes two groups, cold (0) and hot (1)."""
    shares: Literal["interactions", "items"] | tuple[float, ...] = "interactions"
    """π: each group's share of train interactions, of items (which is RNS), or given."""

    structural = ("groups", "shares")

    def __post_init__(self) -> None:
        if isinstance(self.shares, str):
            if self.shares not in ("interactions", "items"):
                raise InputError(f"shares must be 'interactions', 'items' or numbers, not '{self.shares}'.")
        elif not self.shares or min(self.shares) < 0 or sum(self.shares) <= 0:
            raise InputError("shares must be non-negative numbers, one a group, not all zero.")
        if self.groups is not None and (not self.groups or min(self.groups) < 0):
            raise InputError("groups must give every item a group number of 0 or more.")

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[GroupSampler], train: Interactions, device: torch.device | str
    ) -> GroupBound:
        sampler = replicas[0]
        groups = np.asarray(hot_items(train.popularity) if sampler.groups is None else sampler.groups, dtype=np.int64)
        if len(groups) != train.n_items:
            raise InputError(f"the grouping covers {len(groups):,} items, but the data has {train.n_items:,}.")
        return GroupBound(groups, _group_shares(sampler, groups, train), train, device, len(replicas))


def _group_shares(sampler: GroupSampler, groups: np.ndarray, train: Interactions) -> np.ndarray:
    n_groups = int(groups.max()) + 1
    if isinstance(sampler.shares, str):
        weights = None if sampler.shares == "items" else train.popularity
        distribution = np.bincount(groups, weights, n_groups).astype(np.float64)
    else:
        if len(sampler.shares) != n_groups:
            raise InputError(f"there are {n_groups} groups, but {len(sampler.shares)} shares.")
        distribution = np.asarray(sampler.shares, dtype=np.float64)
    return distribution / distribution.sum()


class GroupBound(LookingSampler):
    """Items are put in the order of their groups, so that a group is one stretch of the unobserved mass."""

    def __init__(
        self,
        groups: np.ndarray,
        distribution: np.ndarray,
        train: Interactions,
        device: torch.device | str,
        replicas: int,
    ) -> None:
        super().__init__(train, device, replicas)
        order = np.argsort(groups, kind="stable")
        self.regrouped = in_order(train, order)
        sizes = np.bincount(groups, minlength=len(distribution))
        own = np.zeros((train.n_users, len(distribution)), dtype=np.int64)
        np.add.at(own, (train.users, groups[train.items]), 1)
        left = sizes - own
        weights = np.where(left > 0, distribution, 0.0)

        self.distribution = UnobservedDistribution(self.regrouped, None, device)
        self.item_at = torch.from_numpy(order).to(self.device)
        self.left = torch.from_numpy(left).to(self.device)
        self.begin = torch.from_numpy(np.cumsum(left, axis=1) - left).to(self.device)
        self.choice = torch.from_numpy(np.cumsum(weights, axis=1)).to(self.device)
        """float64 [n_users, G]: running sum of π over the groups that have something left."""

    @property
    def eligible(self) -> Tensor:
        return self.choice[:, -1] > 0

    def width(self, n: int) -> int:
        return 2 * n

    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        which, where = uniforms.split(n, dim=-1)
        owner = users.unsqueeze(-1).expand(which.shape)
        steps = self.choice[users]
        point = which * (1 - 2**-52) * steps[..., -1:]  # stays below the sum when rounded
        group = (steps.unsqueeze(-2) <= point.unsqueeze(-1)).sum(-1)
        place = self.begin[owner, group] + scaled(where, self.left[owner, group])
        return self.item_at[self.distribution.at(owner, place)]
