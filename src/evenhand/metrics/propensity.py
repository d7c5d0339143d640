"""What a metric would be if every item had been shown alike, estimated from a log that showed popular ones more.

A held-out pair of an item that is shown often stands for few such pairs, one of a rare item for many: each hit is
weighed by 1 / propensity, and a user's weights are scaled to sum 1 (self-normalised; Yang et al. 2018, Schnabel et al.
2016). It assumes that exposure depends on the item's popularity alone, as a power of it, and that every item that could
be wanted has some chance to be shown; propensities below `least` are clipped, which trades bias for variance.
"""

from __future__ import annotations

import numpy as np

LEAST = 0.01
"""Propensities are at least this share of the largest one."""
STEEPEST = 2.0
"""The largest exponent taken from a log: counts that are nearly alike follow no power law, and give any exponent."""


def power_law_exponent(counts: np.ndarray) -> float:
    """The exponent g of P(count = c) ∝ c^-g, by maximum likelihood over items with a pair (Clauset et al. 2009).

    nan without any item. Counts that are all alike have a large g.

    >>> round(power_law_exponent(np.array([1, 1, 1, 1, 2, 3, 8])), 3)
    1.802
    """
    seen = counts[counts > 0].astype(np.float64)
    if not len(seen):
        return np.nan
    return float(1 + len(seen) / np.log(seen / (seen.min() - 0.5)).sum())


def propensities(counts: np.ndarray, exponent: float | None = None, least: float = LEAST) -> np.ndarray:
    """float64 [n_items]: how likely an item is to be shown, relative to the most popular one.

    `(count / largest count)^exponent`, at least `least`. Where no exponent is given it is (g + 1) / 2 as in Yang et
    al., with g from the counts, and at most 2. Items without a pair have `least`; without any pair all items are alike.

    >>> propensities(np.array([16, 4, 1, 0]), exponent=0.5, least=0.1)
    array([1.  , 0.5 , 0.25, 0.1 ])
    """
    top = counts.max(initial=0)
    if not top > 0:  # nothing was shown, or nothing is known
        return np.ones(len(counts)) + 0.0 * counts
    power = min((power_law_exponent(counts) + 1) / 2, STEEPEST) if exponent is None else exponent
    return np.maximum((counts / top) ** power, least)
