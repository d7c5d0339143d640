"""What every engine over several processes has: its part of an epoch's order, and item rows that lie on all ranks.

Rows are fetched from their owners, and gradients returned to them, in plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evenhand.objectives.softmax_relatives import SLatKLoss
from evenhand.training.engines.base import Engine, Plan
from evenhand.utils import keyed
from evenhand.utils.world import Blocks, Counts, World

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer


_UNIT, _MOST = 2.0**50, 2.0**12
"""Parts of 1 that gradients are counted in, and where a gradient is cut, as in `sharded_steps`."""


@dataclass(frozen=True)
class SpreadPlan(Plan):
    """The part of an epoch's plan that one rank needs: `order` holds its own pairs, in the order of the epoch."""

    places: Tensor
    """int64 [R, own pairs], ascending: where in the epoch they stand."""


def spread_plan(world: World, seeds: tuple[int, ...], epoch: int, numbers: Tensor, n_steps: int) -> SpreadPlan:
    """The order that a single process would use, found by processes that each know only their own pairs.

    `numbers` are the pairs' numbers among all. A pair's place is the position of its hash among all hashes; each
    process sorts one stretch of the 64 bits.
    """
    orders, own, shared = Plan.keys(seeds, epoch, n_steps, numbers.device)
    placed = [_placed(world, keyed.hashes_at(key, numbers)) for key in orders]
    order, places = (torch.stack(one) for one in zip(*placed, strict=True))
    return SpreadPlan(order, own, shared, epoch, places)


def _placed(world: World, hashes: Tensor) -> tuple[Tensor, Tensor]:
    """int64, like hashes, of which no two are equal: their order, and how many of all ranks are smaller than each."""
    order = hashes.argsort()
    hashes = hashes[order]
    send = torch.bincount(((hashes >> 32) + 2**31) * world.size >> 32, minlength=world.size).tolist()
    counts = world.counts(send)
    received = world.swap(hashes, send, counts)
    rank = torch.empty_like(received)
    rank[received.argsort()] = torch.arange(len(received), device=rank.device)
    before = sum(world.gathered(len(received))[: world.rank])
    return order, world.swap(rank + before, counts.receive, Counts(tuple(send), counts.most))


class SpreadEngine(Engine):
    """An engine whose process is one of several."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.world = trainer.world
        self._n_items = trainer.train.n_items
        self._items = ItemRows(trainer)

    def plan(self, epoch: int) -> SpreadPlan:
        trainer = self.trainer
        return spread_plan(self.world, trainer.seeds, epoch, trainer.numbers.to(trainer.device), trainer.steps)

    def refresh(self, epoch: int) -> None:
        loss = self.trainer.loss
        if isinstance(loss, SLatKLoss):  # its quantiles need the vectors of items, which lie on other ranks
            loss.fetch, loss.rounds = self._vectors, lambda n: max(self.world.gathered(n))
        super().refresh(epoch)

    def _vectors(self, items: Tensor, r: int, ids: Tensor) -> tuple[Tensor, Tensor]:
        """A table with the vectors of items of a replica, from their owners, and where in it they lie."""
        found = self._items.fetch(items, [(r, ids)])
        return found.table, found.at[0]


@dataclass(frozen=True)
class Fetched:
    """Item rows from their owners."""

    table: Tensor
    """float32 [m, d]"""
    at: list[Tensor]
    """Where in the table each of the ids that were asked for lies."""
    owner: Tensor | None = None
    """int64 [m]: the rank that has each; None where all are this rank's."""
    row: Tensor | None = None
    """int [m]: which row it is there."""


class ItemRows:
    """The rows of all replicas' item tables, dealt to ranks in blocks."""

    def __init__(self, trainer: Trainer) -> None:
        self.world, self.n, self.replicas = trainer.world, trainer.train.n_items, len(trainer.seeds)
        self.blocks = Blocks.of_items(self.n, self.world.size)
        sizes = [self.blocks.count(rank) for rank in range(self.world.size)]
        self.sizes = torch.tensor(sizes, device=trainer.device)
        """int64 [ranks]: how many rows a replica has on each."""
        self.index = torch.int32 if self.replicas * max(sizes) < 2**31 else torch.int64
        """The type that rows are asked for in."""

    def fetch(self, items: Tensor, asked: Sequence[tuple[int, Tensor]]) -> Fetched:
        """Rows by replica and ids, where `items` [R, own rows, d] are those of this rank; each is asked for once."""
        table, n = items.detach().view(-1, items.shape[-1]), self.n
        if self.world.lone:
            return Fetched(table, [r * n + ids for r, ids in asked])
        most = self.replicas * n
        keys = torch.cat([(r * n + ids).flatten() for r, ids in asked])
        distinct, where = torch.unique(self.blocks.owner(keys % n) * most + keys, return_inverse=True)
        owner, key = distinct // most, distinct % most
        row = (key // n * self.sizes[owner] + self.blocks.local(key % n)).to(self.index)
        send = torch.bincount(owner, minlength=self.world.size).tolist()
        counts = self.world.counts(send)
        answer = table.index_select(0, self.world.swap(row, send, counts))
        came = self.world.swap(answer, counts.receive, Counts(tuple(send), counts.most))
        parts = where.split([ids.numel() for _, ids in asked])
        at = [part.view(ids.shape) for part, (_, ids) in zip(parts, asked, strict=True)]
        return Fetched(came, at, owner, row)

    def give_back(self, rows: Fetched, at: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Send gradients of fetched rows to their owners; back come rows of this rank, with gradients for them.

        A row with one contribution goes as float32, of which the owner makes the same whole number.
        """
        if rows.owner is None or rows.row is None:
            return at, units
        times = torch.bincount(at, minlength=len(rows.table))
        sums = torch.zeros_like(rows.table, dtype=torch.int64).index_add_(0, at, units)
        found: list[Tensor] = []
        values: list[Tensor] = []
        for chosen in ((times == 1).nonzero().squeeze(1), (times > 1).nonzero().squeeze(1)):
            send = torch.bincount(rows.owner[chosen], minlength=self.world.size).tolist()
            counts = self.world.counts(send)
            found.append(self.world.swap(rows.row[chosen], send, counts).long())
            given = sums[chosen] if values else from_units(sums[chosen])
            came = self.world.swap(given, send, counts)
            values.append(came if values else in_units(came))
        return torch.cat(found), torch.cat(values)


def in_units(values: Tensor) -> Tensor:
    """int64: numbers in parts of 1 / UNIT; nan is 0."""
    return (values.double().nan_to_num_(0.0).clamp_(-_MOST, _MOST) * _UNIT).round_().long()


def from_units(sums: Tensor) -> Tensor:
    """float32"""
    return (sums.double() / _UNIT).float()
