"""The GPU engine for MF with BPR: the loop's tables and samplers, handed to the fused steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from evenhand.samplers.auc import AUCBound
from evenhand.samplers.dynamic import DynamicBound
from evenhand.samplers.group import GroupBound
from evenhand.samplers.uniform import StaticBound
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.fused import FusedSteps
from evenhand.training.engines.fused_tables import Table, law_and_rule

if TYPE_CHECKING:
    from evenhand.training.adam import Adam
    from evenhand.training.loop import Loop


class TritonEngine(Engine):
    name = "triton"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.stride = 512
        self._adam: Adam | None = None
        self._plan: Plan | None = None
        self._build()

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        adam = self.loop.optimisers[0]
        if adam is not self._adam:
            self._build()
        if plan is not self._plan:
            self._plan = plan
            self._steps.restart(int(adam.steps[0]))
            self._steps.begin_epoch(plan.order, plan.own, plan.shared, self.loop.rates(plan.epoch))
        adam.count(last - first)
        return self._steps.run(first, last)

    def _build(self) -> None:
        loop = self.loop
        self._adam = adam = loop.optimisers[0]
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
            (loop.users, loop.items),
            *law_and_rule(loop.samplers[0], loop.train),
            batch=loop.settings.batch,
            steps=loop.steps,
            decay=adam.decay,
            l2=loop.l2,
            hot=loop.hot,
            held_out=loop.held_out_keys,
        )


def serves(loop: Loop) -> bool:
    """Whether the fused steps can do what the loop asks for."""
    sampler = loop.samplers[0]
    known = isinstance(sampler, (StaticBound, DynamicBound, GroupBound, AUCBound)) and not sampler.state()
    return known and loop.is_plain_mf and loop.negatives == 1 and loop.device.type == "cuda"
