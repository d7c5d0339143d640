"""Randomness that is looked up, not consumed: a draw is a hash of (seed, epoch, step, position).

So a replica draws the same numbers whatever runs beside it, however many threads there are, and whether
or not the run was resumed. The hash is SplitMix64 in wrapping 64-bit arithmetic, the same on every device;
the simulator, which does without torch, has its own in `evenhand.utils.hashing`, with other numbers.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


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
    return torch.tensor([key(seed, *parts) for seed in seeds], dtype=torch.int64, device=device)


def hashes(base: Tensor, n: int) -> Tensor:
    """int64 [*base.shape, n]: the n hashed positions under each key, uniform over all 64-bit integers."""
    position = torch.arange(1, n + 1, device=base.device)
    x = base.unsqueeze(-1) + position * _signed(_GOLDEN)
    # torch shifts int64 arithmetically; the masks make it a logical shift.
    x = (x ^ ((x >> 30) & (2**34 - 1))) * _signed(_FIRST)
    x = (x ^ ((x >> 27) & (2**37 - 1))) * _signed(_SECOND)
    return x ^ ((x >> 31) & (2**33 - 1))


def uniforms(base: Tensor, *shape: int) -> Tensor:
    """float64 [*base.shape, *shape] in [0, 1), with 53 random bits each."""
    n = 1
    for size in shape:
        n *= size
    bits = (hashes(base, n) >> 11) & (2**53 - 1)
    return (bits.to(torch.float64) * 2.0**-53).reshape(*base.shape, *shape)


def permutations(base: Tensor, n: int) -> Tensor:
    """int64 [R, n]: a random order of 0…n-1 for each key."""
    return torch.stack([torch.argsort(hashes(k, n), stable=True) for k in base])
