"""The fused steps over processes with a GPU each: users are split among them, and item rows lie on every one.

A step sends each positive's user row and slope to all, who move the same items alike: no row is asked for, whatever the
sampler looks at. Sums are whole numbers, so that any number of processes gives the same bits. Between epochs
each process keeps its share of the items, as the other engines over processes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evenhand.training.engines.base import Plan
from evenhand.training.engines.fused_tables import Ranks, Table
from evenhand.training.engines.spread_engine import SpreadEngine, SpreadPlan
from evenhand.training.engines.triton_engine import FusedSteps, fused_steps

if TYPE_CHECKING:
    from evenhand.training.adam import Adam
    from evenhand.training.trainer import Trainer

_SPARE = 1.02
"""Room for positives of a batch beyond the most that a process has in the first epoch: later ones differ a little."""


class TritonRanksEngine(SpreadEngine):
    name = "triton-ranks"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.stride = 512
        blocks = self._items.blocks
        self._owned = [torch.from_numpy(blocks.mine(rank)).to(trainer.device) for rank in range(self.world.size)]
        """The items of each process."""
        self._ends = torch.arange(trainer.steps + 1, device=trainer.device).mul_(trainer.settings.positives)
        self._steps: FusedSteps | None = None
        self._lanes = 0
        self._adam: Adam | None = None
        self._plan: SpreadPlan | None = None
        self._full: list[Tensor] = []
        """The items of all processes: rows, Adam's mean and square, and the clock where rows have one."""

    @torch.no_grad()
    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        assert isinstance(plan, SpreadPlan)
        adam = self.trainer.optimisers[0]
        if plan is not self._plan or adam is not self._adam:
            self._begin(plan, adam)
        assert self._steps is not None
        adam.count(last - first)
        tally = self._steps.run(first, last)
        for own, full in zip(self._shares(adam), self._full, strict=True):
            own.copy_(full.index_select(1, self._owned[self.world.rank]))
        return tally

    def _begin(self, plan: SpreadPlan, adam: Adam) -> None:
        """Take the order of an epoch, and the items of all processes."""
        ends = self._ends.clamp_max(self.trainer.pairs)
        cuts = torch.stack([torch.searchsorted(places, ends) for places in plan.places])
        most = max(self.world.gathered(int(cuts.diff(dim=1).max())))
        if self._steps is None or most > self._lanes or adam is not self._adam:
            self._build(adam, most)
        assert self._steps is not None
        for own, full in zip(self._shares(adam), self._full, strict=True):
            self._collect(own, full)
        self._plan = plan
        self._steps.restart(int(adam.steps[0]))
        self._steps.begin_epoch(plan.order, plan.own, plan.shared, self.trainer.rates(plan.epoch), plan.places, cuts)

    def _build(self, adam: Adam, most: int) -> None:
        trainer, world = self.trainer, self.world
        self._adam, self._lanes = adam, min(trainer.settings.positives, int(_SPARE * most) + 1)
        self._full = [own.new_zeros(own.shape[0], self._n_items, *own.shape[2:]) for own in self._shares(adam)]
        clock = adam.clocks[0] if adam.lazy else None
        users = Table(adam.parameters[0].detach(), adam.mean[0], adam.square[0], clock)
        ranks = Ranks(world.size, trainer.pairs, self._lanes, None if world.lone else world.gather)
        self._steps = fused_steps(trainer, users, Table(*self._full), ranks)

    def _shares(self, adam: Adam) -> list[Tensor]:
        """This process's items: rows [R, n, d], Adam's mean and square, and the clock [R, n] where rows have one."""
        found = [adam.parameters[1].detach(), adam.mean[1], adam.square[1]]
        return [*found, adam.clocks[1]] if adam.lazy else found

    def _collect(self, own: Tensor, full: Tensor) -> None:
        """Fill a table [R, n_items, …] with what each process has of it."""
        longest = max(len(rows) for rows in self._owned)
        padded = own.new_zeros(own.shape[0], longest, *own.shape[2:])
        padded[:, : own.shape[1]] = own
        everyone = padded.unsqueeze(0)
        if not self.world.lone:
            everyone = padded.new_empty(self.world.size, *padded.shape)
            self.world.gather(padded, everyone)
        for rows, part in zip(self._owned, everyone, strict=True):
            full[:, rows] = part[:, : len(rows)]
