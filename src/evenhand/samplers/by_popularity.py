"""Popularity-based negative sampling (PNS): popular items are pushed down more often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import Sampler
from evenhand.samplers.uniform import StaticBound
from evenhand.samplers.unobserved import UnobservedDistribution
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class PopularitySampler(Sampler):
    """`P(j | u) ∝ pop_j^exponent` on `I_u⁻`, with train counts; items without interactions are never drawn."""

    exponent: float = 0.75
    """0 draws uniformly among items with data, 1 in proportion to popularity."""

    structural = ("exponent",)

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 10:
            raise InputError(f"exponent must lie in [0, 10], not {self.exponent}.")

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[PopularitySampler], train: Interactions, device: torch.device | str
    ) -> StaticBound:
        popularity = train.popularity.astype(np.float64)
        weights = np.where(popularity > 0, popularity ** replicas[0].exponent, 0.0)
        return StaticBound(UnobservedDistribution(train, weights, device), train, device, len(replicas))
