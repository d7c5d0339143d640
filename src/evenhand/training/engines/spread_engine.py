"""What every engine over several processes has: its part of an epoch's order, and item rows that lie on all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evenhand.objectives.softmax_relatives import SLatKLoss
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.item_rows import ItemRows
from evenhand.utils import keyed
from evenhand.utils.world import Counts, World

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer


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
