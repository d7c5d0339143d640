# mypy: disable-error-code="no-untyped-def"
"""How many scores are at most another, in one pass over them; plain torch makes three a candidate."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

_SCORES, _CANDIDATES = 256, 8
"""A tile of comparisons."""


def count_below(scores: Tensor, x: Tensor) -> Tensor:
    """int32 [R, B, m]: how many of scores [R, B, n] are ≤ each x [R, B, m]."""
    (replicas, batch, n), m = scores.shape, x.shape[-1]
    found = torch.empty(replicas, batch, m, dtype=torch.int32, device=x.device)
    if found.numel():
        grid = (replicas * batch, triton.cdiv(m, _CANDIDATES))
        _count[grid](scores.contiguous(), x.contiguous(), found, n, m, SCORES=_SCORES, CANDIDATES=_CANDIDATES)
    return found


@triton.jit
def _count(scores, x, found, n, m, SCORES: tl.constexpr, CANDIDATES: tl.constexpr):
    """One row of scores against a few of its candidates."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * CANDIDATES + tl.arange(0, CANDIDATES)
    mine = tl.load(x + row * m + column, column < m)
    counted = tl.zeros([SCORES, CANDIDATES], tl.int32)
    for begin in range(0, n, SCORES):
        place = begin + tl.arange(0, SCORES)
        score = tl.load(scores + row * n + place, place < n)
        counted += ((score[:, None] <= mine[None, :]) & (place < n)[:, None]).to(tl.int32)
    tl.store(found + row * m + column, tl.sum(counted, 0), column < m)
