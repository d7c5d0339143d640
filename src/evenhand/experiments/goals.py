"""The goals of a search: one metric, or two that trade off, their Pareto front, and which point of it is picked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from evenhand.metrics.catalogue import METRICS, Metric
from evenhand.metrics.lists import LONGEST_LIST
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import parse_integer

MOST = 2
"""Metrics at most: a person can choose on the front of two, which is a line."""
_OPPOSITES = {"fpr": "precision", "fnr": "recall"}
"""Metrics that are 1 minus another one."""


Pick = Literal["knee", "most-accurate", "least-biased"]
PICKS: tuple[Pick, ...] = get_args(Pick)
Point = tuple[float, float]
"""Two gains: both coordinates are better the larger they are."""
_ROUNDING = 1e-9
"""Scaled points that differ by less lie out equally far."""


@dataclass(frozen=True)
class Goal:
    """A metric at one length of the lists, and which way it should go."""

    text: str
    """As it is called: `ndcg@10`."""
    name: str
    k: int
    """Never more than the catalogue has items."""

    @property
    def rises(self) -> bool:
        return bool(METRICS[self.name].higher_is_better)

    @property
    def arrow(self) -> str:
        return "↑" if self.rises else "↓"

    @property
    def worst(self) -> float:
        """The value that nothing can fall below."""
        return METRICS[self.name].low if self.rises else METRICS[self.name].high

    def gain(self, value: float) -> float:
        """The value turned so that more is better."""
        return value if self.rises else -value


def parse_goals(metric: str | Sequence[str], n_items: int | None = None) -> tuple[Goal, ...]:
    """`ndcg@10`, or two metrics as `ndcg@10,ohr@10` or in a list.

    >>> [(goal.text, goal.k, goal.arrow) for goal in parse_goals("ndcg@10, ohr@200", n_items=80)]
    [('ndcg@10', 10, '↑'), ('ohr@200', 80, '↓')]
    """
    texts = [text.strip() for text in (metric.split(",") if isinstance(metric, str) else metric)]
    if not 1 <= len(texts) <= MOST:
        raise InputError(f"a search takes one metric or two, as in ndcg@10,ohr@10, not {len(texts)}.")
    known = [name for name, one in METRICS.items() if _can_be_sought(one, alone=len(texts) == 1)]
    goals = tuple(_parsed(text, known, n_items) for text in texts)
    if len(goals) == MOST:
        _check_two(goals[0], goals[1], n_items)
    return goals


def _can_be_sought(metric: Metric, alone: bool) -> bool:
    """One way must be better, with a worst value; alone it must be accuracy: the least biased list is easy to make."""
    worst = metric.low if metric.higher_is_better else metric.high
    if metric.higher_is_better is None or not math.isfinite(worst):
        return False
    return not alone or (metric.group == "accuracy" and metric.higher_is_better)


def accurate_first(goals: Sequence[Goal]) -> tuple[int, int]:
    """Positions of two goals, first the one that rises; where both go the same way, as they were named."""
    return (1, 0) if goals[1].rises and not goals[0].rises else (0, 1)


def _parsed(text: str, known: Sequence[str], n_items: int | None) -> Goal:
    name, _, k = text.partition("@")
    if name not in known:
        raise unknown("metric of a search", name, known)
    length = parse_integer(k)
    if not length:
        raise InputError(f"a metric is written name@k, as in ndcg@10, not '{text}'.")
    if length > LONGEST_LIST:
        raise InputError(f"the k of a metric may be up to {LONGEST_LIST:,}, unlike that of '{text}'.")
    return Goal(f"{name}@{length}", name, min(length, n_items or length))


def _check_two(first: Goal, second: Goal, n_items: int | None) -> None:
    """Refuse two goals of which one decides the other: their front is a single point."""
    if _quantity(first) != _quantity(second):
        return
    if first.text == second.text:
        raise InputError(f"{first.text} is named twice; a search on two metrics needs two different ones.")
    why = f"the catalogue has {n_items} items" if first.name == second.name else _why(first, second)
    raise InputError(
        f"{first.text} and {second.text} say the same ({why}); a search on two metrics needs two that can pull apart."
    )


def _quantity(goal: Goal) -> tuple[str, int]:
    """What is measured, under one name for all that always agree; with one slot, NDCG counts hits too."""
    name = _OPPOSITES.get(goal.name, goal.name)
    return ("precision" if (name, goal.k) == ("ndcg", 1) else name), goal.k


def _why(first: Goal, second: Goal) -> str:
    opposite = next((g.name for g in (first, second) if g.name in _OPPOSITES), None)
    if opposite and "ndcg" not in (first.name, second.name):
        return f"{opposite} = 1 − {_OPPOSITES[opposite]}"
    return "a list of one item is a hit or none"


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
    """The pick by default: the knee of two goals; one goal has nothing to pick from."""
    if pick is not None and pick not in PICKS:
        raise unknown("pick", pick, PICKS)
    if goals == 1:
        if pick is not None:
            raise InputError("there is nothing to pick from with one metric; name a second one, as in ndcg@10,ohr@10.")
        return None
    return next(one for one in PICKS if one == (pick or "knee"))
