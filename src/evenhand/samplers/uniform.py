"""Random negative sampling (RNS): every unobserved item alike, the baseline of the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import Batch, BoundSampler, Sampler
from evenhand.samplers.unobserved import UnobservedLaw


@dataclass(frozen=True)
class UniformSampler(Sampler):
    """`j ~ Uniform(I_u⁻)`."""

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[UniformSampler], train: Interactions, device: torch.device | str
    ) -> StaticBound:
        return StaticBound(UnobservedLaw(train, None, device), train, device, len(replicas))


class StaticBound(BoundSampler):
    """Draws from a fixed law, whatever the model thinks."""

    def __init__(self, law: UnobservedLaw, train: Interactions, device: torch.device | str, replicas: int) -> None:
        super().__init__(train, device, replicas)
        self.law = law

    @property
    def eligible(self) -> Tensor:
        return self.law.mass > 0

    def width(self, n: int) -> int:
        return n

    def choose(self, batch: Batch) -> Tensor:
        return self.law.draw(batch.users, batch.uniforms)

    def draw_shared(self, uniforms: Tensor) -> Tensor:
        return self.law.draw_any(uniforms)

    def log_probability(self, items: Tensor) -> Tensor:
        return self.law.log_probability(items)
