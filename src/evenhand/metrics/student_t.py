"""Student's t distribution, written out so that a test over seeds needs no statistics library.

The tail probability is a regularised incomplete beta function, which a continued fraction gives to about
fourteen digits; the quantile inverts it by bisection.
"""

from __future__ import annotations

import math
from functools import lru_cache


def t_two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) for `df` degrees of freedom.

    >>> round(t_two_sided(1.0, df=1), 12)
    0.5
    """
    square = t * t
    if math.isinf(square):
        return 0.0
    # Each form is exact where its argument is small; the other one would lose the digits of t there.
    if square < df:
        return 1.0 - incomplete_beta(0.5, df / 2, square / (df + square))
    return incomplete_beta(df / 2, 0.5, df / (df + square))


def t_cdf(t: float, df: float) -> float:
    """P(T ≤ t).

    >>> round(t_cdf(-1.0, df=1), 12)
    0.25
    """
    tail = t_two_sided(t, df) / 2
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=1024)  # an audit asks for the same ones again and again
def t_quantile(probability: float, df: float) -> float:
    """The t with P(T ≤ t) = probability, for a probability strictly between 0 and 1.

    >>> round(t_quantile(0.975, df=4), 4)
    2.7764
    """
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    tail = 2.0 * (1.0 - probability)
    low, high = 0.0, 1.0
    while t_two_sided(high, df) > tail:
        low, high = high, 2.0 * high
    # Halving an interval of floats until no float lies between its ends.
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if t_two_sided(middle, df) > tail else (low, middle)
    return high if probability > 0.5 else 0.0


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    >>> incomplete_beta(1, 1, 0.25), round(incomplete_beta(2, 3, 0.5), 12)
    (0.25, 0.6875)
    """
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    # The fraction converges fast on the side of the mean where x is small.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _continued_fraction(a, b, x))


def _continued_fraction(a: float, b: float, x: float) -> float:
    """1 + d1/(1 + d2/(1 + …)) with the beta function's coefficients, by the modified Lentz method."""
    tiny = 1e-300
    value, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, 2000):
        m, odd = divmod(step, 2)
        if odd:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1.0 / (1.0 + d * denominator or tiny)
        numerator = 1.0 + d / numerator or tiny
        change = numerator * denominator
        value *= change
        if abs(change - 1.0) < 1e-16:
            break
    return value
