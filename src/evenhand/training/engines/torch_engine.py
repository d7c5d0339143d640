"""The plain engine: any encoder, sampler and objective, on any device. The others are measured by it."""

from __future__ import annotations

import torch
from torch import Tensor

from evenhand.training.engines.base import Engine, Plan


class TorchEngine(Engine):
    name = "torch"

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        return torch.stack([self._step(plan, step) for step in range(first, last)]).sum(0)

    def _step(self, plan: Plan, step: int) -> Tensor:
        trainer = self.trainer
        size = trainer.settings.batch
        chosen = plan.order[:, step * size : (step + 1) * size]
        users, positives = trainer.users[chosen], trainer.items[chosen]
        return trainer.learn(users, positives, plan.own[:, step], plan.shared[:, step], plan.epoch)
