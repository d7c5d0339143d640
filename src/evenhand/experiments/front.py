"""The Pareto front of trials with two values, and the three points of it that one may want.

Points are pairs of gains: both coordinates are better the larger they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from evenhand.utils.errors import InputError, unknown

Pick = Literal["knee", "most-accurate", "least-biased"]
PICKS: tuple[Pick, ...] = get_args(Pick)
Point = tuple[float, float]
_ROUNDING = 1e-9
"""Scaled points that differ by less lie out equally far."""


def front_of(points: Sequence[Point]) -> list[int]:
    """Positions of the points that no other beats, from the best first coordinate to the best second.

    One point beats another if it is better in one coordinate and not worse in the other. Of equal points the
    earliest stands for all.

    >>> front_of([(1, 1), (3, 0), (2, 2), (2, 1), (3, 0)])
    [1, 2]
    """
    kept: list[int] = []
    for place in sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1], i)):
        if not kept or points[place][1] > points[kept[-1]][1]:
            kept.append(place)
    return kept


def knee_of(front: Sequence[Point]) -> int:
    """The position, in a front, of the point farthest out from the line between its two ends.

    Both coordinates are scaled to the front's own range first, so that the ends are (1, 0) and (0, 1), and a
    point lies out by the sum of its coordinates less 1. Where no point lies out, as with one or two, and
    where several lie out equally far, it is the one with the best first coordinate.

    >>> knee_of([(4, 0), (3, 3), (0, 4)]), knee_of([(4, 0), (1, 1), (0, 4)]), knee_of([(7, 7)])
    (1, 0, 0)
    """
    (most, first_low), (least, last_high) = front[0], front[-1]
    if len(front) < 3:
        return 0
    out = [(x - least) / (most - least) + (y - first_low) / (last_high - first_low) for x, y in front]
    farthest = max(out)
    return next(place for place, far in enumerate(out) if far >= farthest - _ROUNDING)


def picked_of(front: Sequence[Point], pick: Pick) -> int:
    """The position of what was asked for in a front."""
    return {"most-accurate": 0, "least-biased": len(front) - 1, "knee": knee_of(front)}[pick]


def check_pick(pick: str | None, goals: int) -> Pick | None:
    """The pick for so many goals: the knee of two unless told; one goal has nothing to pick from."""
    if pick is not None and pick not in PICKS:
        raise unknown("pick", pick, PICKS)
    if goals == 1:
        if pick is not None:
            raise InputError("there is nothing to pick from with one metric; name a second one, as in ndcg@10,ohr@10.")
        return None
    return next(one for one in PICKS if one == (pick or "knee"))
