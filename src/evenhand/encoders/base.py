"""What an encoder is: parameters → one vector a user and one an item, for R replicas at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from evenhand.data.interactions import Interactions
from evenhand.utils import keyed
from evenhand.utils.errors import InputError

_AT_ONCE = 2**16
"""Rows that are drawn at once where only some of them are held."""


class Vectors(NamedTuple):
    """A model: the score of (u, i) is the inner product of `users[r, u]` and `items[r, i]`."""

    users: Tensor
    """[R, n_users, d]"""
    items: Tensor
    """[R, n_items, d]"""

    def detach(self) -> Vectors:
        return Vectors(self.users.detach(), self.items.detach())


@dataclass(frozen=True)
class Encoder(ABC):
    """The shape of a model; `start` makes one with fresh parameters for every seed."""

    dim: int = 64
    """Length of the vectors."""

    weight_decay: ClassVar[float] = 7e-5
    """The coupled form of the paper's protocol, for 72,000 pairs (see `training.settings.usual_decay`)."""
    lr: ClassVar[float] = 0.002
    """Learning rate for losses on inner products, where none is given."""
    l2: ClassVar[float] = 1e-4
    """L2 on the rows of a batch where nothing was held out to settle it on."""
    l2_tried: ClassVar[tuple[float, ...]] = (1e-4,)
    """What a fit tries where there is a validation part: no one value does well on all logs (docs/sparse.md)."""
    pulls_tried: ClassVar[tuple[float, ...]] = (0.7,)
    """Weight decays that a fit tries as well where every row moves at every step, as `pull / 2N` for N pairs: items
    with fewer pairs than this are pulled to zero more strongly than the first steps of BPR push them."""

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise InputError(f"dim must be at least 1, not {self.dim}.")

    @abstractmethod
    def start(self, train: Interactions, seeds: Sequence[int], device: torch.device | str) -> Tables:
        """A module with parameters for one replica a seed."""


@dataclass(frozen=True)
class RowsHeld:
    """Which rows of the tables of n_users and n_items this process holds: None is all, else indices, ascending."""

    n_users: int
    n_items: int
    users: np.ndarray | None = None
    items: np.ndarray | None = None


class Tables(nn.Module):
    """One learned vector a user and an item; called, it returns them as the model's vectors."""

    propagates: bool = False
    """Whether the model's vectors are something else than the tables."""

    def __init__(
        self, train: Interactions | RowsHeld, dim: int, seeds: Sequence[int], device: torch.device | str
    ) -> None:
        super().__init__()
        self._held = train if isinstance(train, RowsHeld) else RowsHeld(train.n_users, train.n_items)
        tables = [_xavier_normal(self._held, dim, seed) for seed in seeds]
        self.users = nn.Parameter(torch.stack([users for users, _ in tables]).to(device))
        self.items = nn.Parameter(torch.stack([items for _, items in tables]).to(device))

    @torch.no_grad()
    def rescale(self, std: float) -> None:
        """Give fresh tables another size than the usual one."""
        for table, rows in ((self.users, self._held.n_users), (self.items, self._held.n_items)):
            table.mul_(std / _usual_std(rows, table.shape[-1]))

    def raw(self) -> Vectors:
        """The tables themselves, before any propagation."""
        return Vectors(self.users, self.items)

    def encode(self, users: Tensor, items: Tensor) -> Vectors:
        """The vectors that this model makes of tables [R, n, d], its own or others of the same shape."""
        return Vectors(users, items)

    def forward(self) -> Vectors:
        return self.encode(*self.raw())


def _usual_std(rows: int, dim: int) -> float:
    return float((2 / (rows + dim)) ** 0.5)


def _xavier_normal(held: RowsHeld, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """User and item tables N(0, 2 / (rows + dim)), drawn on the CPU so that every device starts alike."""
    generator = torch.Generator().manual_seed(keyed.key(seed, 0x1417) & (2**63 - 1))

    def table(size: int, mine: np.ndarray | None) -> Tensor:
        if mine is None:
            return torch.randn(size, dim, generator=generator) * _usual_std(size, dim)
        found = torch.empty(len(mine), dim)
        begin = 0
        while begin < size:  # in pieces, which give the numbers of one stroke where they are multiples of 16
            end = size if size - begin < 2 * _AT_ONCE else begin + _AT_ONCE
            first, last = np.searchsorted(mine, [begin, end])
            drawn = torch.randn(end - begin, dim, generator=generator)
            found[first:last] = drawn[torch.from_numpy(mine[first:last] - begin)]
            begin = end
        return found * _usual_std(size, dim)

    return table(held.n_users, held.users), table(held.n_items, held.items)
