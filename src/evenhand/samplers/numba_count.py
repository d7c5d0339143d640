"""How many scores are at most another, compiled for a CPU: no comparison is written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.utils.compiled import compiled


def count_below(scores: Tensor, x: Tensor) -> Tensor:
    """int32 [R, B, m]: how many of scores [R, B, n] are ≤ each x [R, B, m]."""
    found = torch.empty(x.shape, dtype=torch.int32)
    rows = (side.detach().contiguous().view(-1, side.shape[-1]).numpy() for side in (scores, x, found))
    _count(*rows)
    return found


@compiled(error_model="numpy")
def _count(scores: Any, x: Any, found: Any) -> None:
    for row in range(scores.shape[0]):
        for m in range(x.shape[1]):
            bound, total = x[row, m], np.int32(0)
            for i in range(scores.shape[1]):
                total += np.int32(scores[row, i] <= bound)
            found[row, m] = total
