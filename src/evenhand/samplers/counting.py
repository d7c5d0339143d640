"""How many scores are at most another."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import torch
from torch import Tensor

_COMPILED = {"cpu": "evenhand.samplers.numba_count", "cuda": "evenhand.samplers.triton_count"}


def counter(device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """`count_below`, in one pass over the scores where something can be compiled for the device."""
    if compile_problem(device) is not None:
        return count_below
    count: Callable[[Tensor, Tensor], Tensor] = import_module(_COMPILED[device]).count_below
    return count


@cache
def compile_problem(device: str) -> str | None:
    """Why nothing can be compiled for the device, in a line, or None; Triton, say, wants a C compiler."""
    try:
        one = torch.ones(1, 1, 1, device=device)
        import_module(_COMPILED[device]).count_below(one, one)
    except Exception as problem:
        return next(iter(str(problem).splitlines()), type(problem).__name__)
    return None


def count_below(scores: Tensor, x: Tensor, items: Tensor | None = None, of: Tensor | None = None) -> Tensor:
    """int32 [R, B, m]: how many of scores [R, B, n] are ≤ each x [R, B, m].

    Where the two were rounded by different kernels, `items` and `of` name what they belong to, so that an
    item still ties with itself.
    """
    counts = []
    for m in range(x.shape[-1]):
        below = scores <= x[..., m : m + 1]
        if items is not None and of is not None:
            below |= items == of[..., m : m + 1]
        counts.append(below.sum(-1, dtype=torch.int32))
    return torch.stack(counts, dim=-1)
