"""Draws from what a user has *not* interacted with, exactly and without rejection.

Take the items in order and cut the user's own out; the mass that remains is an interval. A point of it is
found by one binary search in the user's sorted row, so a draw costs O(log) whatever the catalogue's size
and nothing is stored per user and item.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError

_WEIGHT_RESOLUTION = 2**36


class UnobservedDistribution:
    """`P(j | u) ∝ weight_j` over the items that user u has no interaction with.

    `weights` are non-negative; None means all equal. They are held as integers with a total of about
    2^36, so that every sum is exact and no draw can fall on an observed item.
    """

    def __init__(self, train: Interactions, weights: np.ndarray | None, device: torch.device | str) -> None:
        self._train, self._device = train, device
        self.before_item: Tensor | None = None
        self.before_pair: Tensor | None = None
        if weights is None:
            total, left = train.n_items, train.n_items - train.activity
        else:
            whole = _as_integers(weights)
            total = int(whole.sum())
            before_item = np.concatenate([[0], np.cumsum(whole)])
            before_pair = np.concatenate([[0], np.cumsum(whole[train.items])])
            left = total - (before_pair[train.indptr[1:]] - before_pair[train.indptr[:-1]])
            self.before_item, self.before_pair = self._tensor(before_item), self._tensor(before_pair)
        if train.n_users * (total + 1) >= 2**63:
            raise InputError(f"{train.n_users:,} users are too many for a weighted distribution.")
        self._stride = total + 1
        self._row_start = self._tensor(train.indptr[:-1])
        self.mass = self._tensor(left)
        """int64 [n_users]: the weight that is left to each user; 0 means there is nothing to draw."""

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(self._device)

    @cached_property
    def _cuts(self) -> Tensor:
        """int64 [n_pairs]: where each own item cuts its user's mass, all users on one line.

        Made when first asked for: the compiled engine searches the rows themselves.
        """
        train = self._train
        start = train.indptr[train.users]
        if self.before_item is None or self.before_pair is None:
            gap = train.items - (np.arange(len(train.items)) - start)
        else:
            before_pair = self.before_pair.cpu().numpy()
            gap = self.before_item.cpu().numpy()[train.items] - (before_pair[:-1] - before_pair[start])
        return self._tensor(train.users.astype(np.int64) * self._stride + gap)

    def at(self, users: Tensor, place: Tensor) -> Tensor:
        """The item at `place` (0 ≤ place < mass of the user) of each user's unobserved mass."""
        start = self._row_start[users]
        passed = torch.searchsorted(self._cuts, users * self._stride + place, right=True)
        if self.before_item is None or self.before_pair is None:
            return place + (passed - start)
        point = place + self.before_pair[passed] - self.before_pair[start]
        return torch.searchsorted(self.before_item, point, right=True) - 1

    def draw(self, users: Tensor, uniforms: Tensor) -> Tensor:
        """One item per uniform number: users [..., B] and uniforms [..., B, w] give items [..., B, w]."""
        users = users.unsqueeze(-1).expand(uniforms.shape)
        return self.at(users, scaled(uniforms, self.mass[users]))

    def draw_any(self, uniforms: Tensor) -> Tensor:
        """One item per uniform number, whoever has it: `P(j) ∝ weight_j` over the whole catalogue."""
        total = self._stride - 1
        place = (uniforms * total).long().clamp_max_(total - 1)
        return place if self.before_item is None else torch.searchsorted(self.before_item, place, right=True) - 1

    def log_probability(self, items: Tensor) -> Tensor:
        """float32: log P(j) of `draw_any`."""
        if self.before_item is None:
            weight = torch.ones_like(items)
        else:
            weight = self.before_item[items + 1] - self.before_item[items]
        return (weight / (self._stride - 1)).log().float()


def scaled(uniforms: Tensor, size: Tensor) -> Tensor:
    """floor(uniform · size) as int64, never reaching `size` by rounding."""
    return torch.minimum((uniforms * size).to(torch.int64), size - 1)


def _as_integers(weights: np.ndarray) -> np.ndarray:
    weights = np.asarray(weights, dtype=np.float64)
    total = weights.sum()
    if not np.isfinite(total) or total <= 0 or weights.min() < 0:
        raise InputError("sampling weights must be finite, non-negative and not all zero.")
    whole = np.rint(weights / total * _WEIGHT_RESOLUTION).astype(np.int64)
    return np.where(weights > 0, np.maximum(whole, 1), 0)
