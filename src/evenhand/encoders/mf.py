"""Matrix factorisation: the score is the inner product of two learned vectors, without biases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, RowsHeld, Tables


@dataclass(frozen=True)
class MF(Encoder):
    """`s(u, i) = p_u · q_i`."""

    lr: ClassVar[float] = 0.001
    l2: ClassVar[float] = 0.01
    l2_tried: ClassVar[tuple[float, ...]] = (0.001, 0.01, 0.08)
    pulls_tried: ClassVar[tuple[float, ...]] = (3, 5, 10)

    def start(self, train: Interactions | RowsHeld, seeds: Sequence[int], device: torch.device | str) -> Tables:
        return Tables(train, self.dim, seeds, device)
