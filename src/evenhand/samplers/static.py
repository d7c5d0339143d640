"""Samplers whose distribution no score changes: uniform (RNS), by popularity (PNS), by group, balanced (SAM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.samplers.base import Batch, BoundSampler, LookingSampler, Sampler
from evenhand.samplers.unobserved import UnobservedDistribution, scaled
from evenhand.utils.errors import InputError


class StaticBound(LookingSampler):
    """Draws from a fixed distribution, whatever the model thinks."""

    def __init__(
        self, distribution: UnobservedDistribution, train: Interactions, device: torch.device | str, replicas: int
    ) -> None:
        super().__init__(train, device, replicas)
        self.distribution = distribution

    def width(self, n: int) -> int:
        return n

    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        return self.distribution.draw(users, uniforms)

    def draw_shared(self, uniforms: Tensor) -> Tensor:
        return self.distribution.draw_any(uniforms)

    def log_probability(self, items: Tensor) -> Tensor:
        return self.distribution.log_probability(items)


@dataclass(frozen=True)
class UniformSampler(Sampler):
    """`j ~ Uniform(I_u⁻)`, random negative sampling (RNS): the baseline of the field."""

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[UniformSampler], train: Interactions, device: torch.device | str
    ) -> StaticBound:
        return StaticBound(UnobservedDistribution(train, None, device), train, device, len(replicas))


@dataclass(frozen=True)
class PopularitySampler(Sampler):
    """`P(j | u) ∝ pop_j^exponent` on `I_u⁻`, with train counts; items without interactions are never drawn."""

    exponent: float = 0.75
    """0 draws uniformly among items with data, 1 in proportion to popularity."""

    structural = ("exponent",)

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 10:
            raise InputError(f"exponent must lie in [0, 10], not {self.exponent}.")

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[PopularitySampler], train: Interactions, device: torch.device | str
    ) -> StaticBound:
        popularity = train.popularity.astype(np.float64)
        weights = np.where(popularity > 0, popularity ** replicas[0].exponent, 0.0)
        return StaticBound(UnobservedDistribution(train, weights, device), train, device, len(replicas))


@dataclass(frozen=True)
class GroupSampler(Sampler):
    """`z ~ π`, then `j` uniform on group z minus the user's items; groups with nothing left are redrawn.

    This is the static form of FairNeg (FairStatic). With groups hot and cold drawn by their share of interactions, half
    of the negatives are popular items, so that the tail is pushed down less.
    """

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
        n_groups = int(groups.max()) + 1
        if isinstance(sampler.shares, str):
            weights = None if sampler.shares == "items" else train.popularity
            shares = np.bincount(groups, weights, n_groups).astype(np.float64)
        elif len(sampler.shares) == n_groups:
            shares = np.asarray(sampler.shares, dtype=np.float64)
        else:
            raise InputError(f"there are {n_groups} groups, but {len(sampler.shares)} shares.")
        return GroupBound(groups, shares / shares.sum(), train, device, len(replicas))


class GroupBound(LookingSampler):
    """Items are put in the order of their groups, so that a group is one stretch of the unobserved mass."""

    def __init__(
        self, groups: np.ndarray, shares: np.ndarray, train: Interactions, device: torch.device | str, replicas: int
    ) -> None:
        super().__init__(train, device, replicas)
        order = np.argsort(groups, kind="stable")
        self.regrouped = _in_order(train, order)
        own = np.zeros((train.n_users, len(shares)), dtype=np.int64)
        np.add.at(own, (train.users, groups[train.items]), 1)
        left = np.bincount(groups, minlength=len(shares)) - own
        weights = np.where(left > 0, shares, 0.0)

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


@dataclass(frozen=True)
class BalancedSampler(Sampler):
    """Balanced pair mining (SAM): half of the negatives less popular than their positive, half more popular.

    A fair coin decides the side; the draw is uniform over what the user has not seen on it. Equally popular items count
    as less popular. Where a side is empty, the draw is uniform over both.
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
        by_popularity = _in_order(train, order)
        self.distribution = UnobservedDistribution(by_popularity, None, device)
        self._keys = torch.from_numpy(by_popularity.keys).to(self.device)
        self._row_start = torch.from_numpy(by_popularity.indptr[:-1]).to(self.device)
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


def _in_order(train: Interactions, order: np.ndarray) -> Interactions:
    """The same log with its items numbered by their place in `order`, so that what stands together is one stretch."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return Interactions.from_pairs(train.users, place[train.items], n_users=train.n_users, n_items=train.n_items)
