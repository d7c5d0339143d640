"""Random numbers that are a function of their key rather than of the order in which they are drawn.

The simulator asks for the same pair again and again, in any order and chunking, and must get the same answer.
It is numpy's sibling of `evenhand.utils.keyed`, since the data room does without torch; their numbers differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def keyed_uniform(*key: Any) -> np.ndarray:
    """Uniform numbers in [0, 1), one for each element of the broadcast integer key; same key, same number.

    Each part of the key passes through the finaliser of the SplitMix64 generator, in wrapping 64-bit integers
    alone, so the numbers do not depend on the platform.
    """
    state = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in key:
            state = _mix(state + np.asarray(part).astype(np.uint64) * _GOLDEN + _GOLDEN)
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
