"""The GPU engine for MF with BPR: the trainer's tables and samplers, handed to the fused steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.fused import FusedSteps
from evenhand.training.engines.fused_tables import Table, distribution_and_rule

if TYPE_CHECKING:
    from evenhand.training.adam import Adam
    from evenhand.training.trainer import Trainer


class TritonEngine(Engine):
    name = "triton"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.stride = 512
        self._adam: Adam | None = None
        self._plan: Plan | None = None
        self._build()

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        adam = self.trainer.optimisers[0]
        if adam is not self._adam:
            self._build()
        if plan is not self._plan:
            self._plan = plan
            self._steps.restart(int(adam.steps[0]))
            self._steps.begin_epoch(plan.order, plan.own, plan.shared, self.trainer.rates(plan.epoch))
        adam.count(last - first)
        return self._steps.run(first, last)

    def _build(self) -> None:
        trainer = self.trainer
        self._adam = adam = trainer.optimisers[0]
        users, items = (
            Table(
                adam.parameters[side].detach(),
                adam.mean[side],
                adam.square[side],
                adam.clocks[side] if adam.lazy else None,
            )
            for side in (0, 1)
        )
        self._steps = FusedSteps(
            users,
            items,
            (trainer.users, trainer.items),
            *distribution_and_rule(trainer.samplers[0], trainer.train),
            batch=trainer.settings.batch,
            steps=trainer.steps,
            decay=adam.decay,
            l2=trainer.l2,
            hot=trainer.hot,
            held_out=trainer.held_out_keys,
        )
