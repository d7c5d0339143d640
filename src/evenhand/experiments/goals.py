"""What a search is after: one metric, or two that pull in different directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.metrics.catalogue import METRICS, Metric
from evenhand.metrics.lists import LONGEST_LIST
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import whole_number

MOST = 2
"""A front of more metrics is no line that a person can choose on."""
_OPPOSITES = {"fpr": "precision", "fnr": "recall"}
"""Metrics that are 1 minus another one."""


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
        """Whether more is better."""
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
    length = whole_number(k)
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
