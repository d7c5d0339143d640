"""The plain engine: any encoder, sampler and objective, on any device. The others are measured by it."""

from __future__ import annotations

import torch
from torch import Tensor

from evenhand.encoders.base import Vectors
from evenhand.objectives import Scored
from evenhand.samplers.base import Batch, rows
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.l2 import add_gradient
from evenhand.utils import keyed


class TorchEngine(Engine):
    name = "torch"

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        done = [self._step(plan, step) for step in range(first, last)]
        return torch.stack(done).sum(0)

    def _step(self, plan: Plan, step: int) -> Tensor:
        loop = self.loop
        size = loop.settings.batch
        chosen = plan.order[:, step * size : (step + 1) * size]
        users, positives = loop.users[chosen], loop.items[chosen]
        return self.learn(users, positives, plan.own[:, step], plan.shared[:, step], plan.epoch)

    def learn(self, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor, epoch: int) -> Tensor:
        """One batch of every replica; returns loss, hot share and false share [3, R]."""
        loop = self.loop
        vectors = loop.model()
        negatives = self._choose(vectors, users, positives, own, shared)
        loop.loss.prepare(loop.model)
        batch = Scored(
            replicas=slice(0, len(loop.seeds)),
            users=users,
            positives=positives,
            negatives=negatives,
            user=rows(vectors.users, users),
            positive=rows(vectors.items, positives),
            items=vectors.items,
        )
        loss = loop.loss(batch) if users.is_cuda else torch.cat([loop.loss(one) for one in batch.each()])
        loss.sum().backward()
        loop.loss.finish()
        add_gradient(loop.model, loop.loss, loop.l2, users, positives, negatives)
        loop.move(epoch, users, torch.cat([positives.unsqueeze(-1), negatives], dim=-1))
        with torch.no_grad():
            return torch.stack([loss.detach().double(), *self._diagnose(users, negatives)])

    @torch.no_grad()
    def _choose(self, vectors: Vectors, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor) -> Tensor:
        loop = self.loop
        seen = loop.model.raw() if loop.settings.sampler_scores == "raw" else vectors
        first = loop.samplers[0]
        batch = Batch(
            users=users,
            positives=positives,
            uniforms=keyed.uniforms(own, users.shape[1], first.width(loop.negatives)),
            shared=keyed.uniforms(shared, first.shared_width),
            user_vectors=seen.users.detach(),
            item_vectors=seen.items.detach(),
            n=loop.negatives,
        )
        parts = batch.split(len(loop.seeds) // len(loop.samplers))
        return torch.cat([one.choose(part) for one, part in zip(loop.samplers, parts, strict=True)])

    def _diagnose(self, users: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        loop = self.loop
        hot = loop.hot[negatives].double().mean((1, 2))
        held_out = loop.held_out_keys
        if held_out is None or not len(held_out):
            return hot, torch.zeros_like(hot)
        wanted = users.unsqueeze(-1) * loop.train.n_items + negatives
        place = torch.searchsorted(held_out, wanted).clamp_max(len(held_out) - 1)
        return hot, (held_out[place] == wanted).double().mean((1, 2))
