"""Matrix factorisation: the score is the inner product of two learned vectors, without biases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, Tables


@dataclass(frozen=True)
class MF(Encoder):
    """`s(u, i) = p_u · q_i`."""

    def start(self, train: Interactions, seeds: Sequence[int], device: torch.device | str) -> Tables:
        return Tables(train, self.dim, seeds, device)
