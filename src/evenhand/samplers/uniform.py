"""Random negative sampling (RNS): every unobserved item alike, the baseline of the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import LookingSampler, Sampler
from evenhand.samplers.unobserved import UnobservedDistribution


@dataclass(frozen=True)
class UniformSampler(Sampler):
    """`j ~ Uniform(I_u⁻)`."""

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[UniformSampler], train: Interactions, device: torch.device | str
    ) -> StaticBound:
        return StaticBound(UnobservedDistribution(train, None, device), train, device, len(replicas))


class StaticBound(LookingSampler):
    """Draws from a fixed distribution, whatever the model thinks."""

    def __init__(
        self, distribution: UnobservedDistribution, train: Interactions, device: torch.device | str, replicas: int
    ) -> None:
        super().__init__(train, device, replicas)
        self.distribution = distribution

    def width(self, n: int) -> int:
        return n

    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        return self.distribution.draw(users, uniforms)

    def draw_shared(self, uniforms: Tensor) -> Tensor:
        return self.distribution.draw_any(uniforms)

    def log_probability(self, items: Tensor) -> Tensor:
        return self.distribution.log_probability(items)
