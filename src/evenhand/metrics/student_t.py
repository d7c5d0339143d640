"""Student's t distribution, for tests and intervals over seeds and users. scipy is loaded when first asked for."""

from __future__ import annotations

import math
from functools import lru_cache


def t_two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) for `df` degrees of freedom.

    >>> round(t_two_sided(1.0, df=1), 12)
    0.5
    """
    from scipy.special import betainc

    square = t * t
    if math.isinf(square):
        return 0.0
    # Each form is exact where its argument is small; the other one would lose the digits of t there.
    if square < df:
        return 1.0 - float(betainc(0.5, df / 2, square / (df + square)))
    return float(betainc(df / 2, 0.5, df / (df + square)))


@lru_cache(maxsize=1024)  # an audit asks for the same ones again and again
def t_quantile(probability: float, df: float) -> float:
    """The t with P(T ≤ t) = probability, for a probability strictly between 0 and 1.

    >>> round(t_quantile(0.975, df=4), 4)
    2.7764
    """
    from scipy.special import betaincinv  # its own quantile of t has nine digits in older versions

    tail = 2 * min(probability, 1 - probability)
    if tail > 0.5:  # as above
        within = float(betaincinv(0.5, df / 2, 1 - tail))
        t = math.sqrt(df * within / (1 - within))
    else:
        beyond = float(betaincinv(df / 2, 0.5, tail))
        t = math.sqrt(df * (1 - beyond) / beyond)
    return t if probability > 0.5 else -t
