"""Keyed randomness: a random number is a hash of its key, such as (seed, epoch, step, position).

So the same key gives the same number, whatever runs beside it, in whichever order, on however many threads,
and whether or not the run was resumed. The hash is SplitMix64 in wrapping 64-bit arithmetic, the same on every
device. `keyed_uniform` is for numpy; the others are for torch, with other numbers for the same key.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def keyed_uniform(*key: Any) -> np.ndarray:
    """Uniform numbers in [0, 1), one for each element of the broadcast integer key; same key, same number."""
    golden, first, second = (np.uint64(constant) for constant in (_GOLDEN, _FIRST, _SECOND))
    x = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in key:
            x = x + np.asarray(part).astype(np.uint64) * golden + golden
            x = (x ^ (x >> np.uint64(30))) * first
            x = (x ^ (x >> np.uint64(27))) * second
            x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def key(*parts: int) -> int:
    """One signed 64-bit key from integers; every part and its place matter.

    >>> key(0, 1) == key(0, 1), key(0, 1) == key(1, 0)
    (True, False)
    """
    state = 0
    for part in parts:
        state = (state + part + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * _FIRST) & _MASK
        state = ((state ^ (state >> 27)) * _SECOND) & _MASK
        state ^= state >> 31
    return _signed(state)


def keys(seeds: Iterable[int], *parts: int, device: torch.device | str = "cpu") -> Tensor:
    """int64 [R]: one key for each seed."""
    import torch

    return torch.tensor([key(seed, *parts) for seed in seeds], dtype=torch.int64, device=device)


def hashes(base: Tensor, n: int) -> Tensor:
    """int64 [*base.shape, n]: the n hashed positions under each key, uniform over all 64-bit integers."""
    import torch

    return hashes_at(base.unsqueeze(-1), torch.arange(n, device=base.device))


def hashes_at(base: Tensor, positions: Tensor) -> Tensor:
    """The hashes of these positions under keys that broadcast with them; no two positions of a key share one."""
    x = base + (positions + 1) * _signed(_GOLDEN)
    # torch shifts int64 arithmetically; the masks make it a logical shift.
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _signed(_FIRST)
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _signed(_SECOND)
    return x ^ ((x >> 31) & (2**33 - 1))


def uniforms(base: Tensor, *shape: int) -> Tensor:
    """float64 [*base.shape, *shape] in [0, 1), with 53 random bits each."""
    return _fractions(hashes(base, prod(shape))).reshape(*base.shape, *shape)


def uniforms_at(base: Tensor, positions: Tensor) -> Tensor:
    """float64, the numbers that `uniforms` has at these positions under keys that broadcast with them."""
    return _fractions(hashes_at(base, positions))


def _fractions(hashed: Tensor) -> Tensor:
    return ((hashed >> 11) & (2**53 - 1)).double() * 2.0**-53


def permutations(base: Tensor, n: int) -> Tensor:
    """int64 [R, n]: a random order of 0…n-1 for each key."""
    import torch

    return torch.stack([torch.argsort(hashes(k, n), stable=True) for k in base])
