"""What a search is for and what it found: one metric or two that trade off, the trials, the front, the pick."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import pyarrow as pa

from evenhand.experiments.search_space import Space
from evenhand.metrics.catalogue import METRICS, Metric
from evenhand.metrics.lists import LONGEST_LIST
from evenhand.training.method import Method
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count, html_table, parse_integer

_OPPOSITES = {"fpr": "precision", "fnr": "recall"}
"""Metrics that are 1 minus another one."""


Pick = Literal["knee", "most-accurate", "least-biased"]
PICKS: tuple[Pick, ...] = get_args(Pick)
Point = tuple[float, float]
"""Two gains: both coordinates are better the larger they are."""


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
    if not 1 <= len(texts) <= 2:  # a person can choose on the front of two, which is a line
        raise InputError(f"a search takes one metric or two, as in ndcg@10,ohr@10, not {len(texts)}.")
    known = [name for name, one in METRICS.items() if _can_be_sought(one, alone=len(texts) == 1)]
    goals = tuple(_parsed(text, known, n_items) for text in texts)
    if len(goals) == 2:
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
    return next(place for place, far in enumerate(out) if far >= farthest - 1e-9)  # less is rounding


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


@dataclass(frozen=True)
class Verdict:
    """What a point is worth on validation."""

    values: tuple[float, ...]
    """One a goal, the mean over seeds; the worst there is where it could not be measured."""
    margins: tuple[float | None, ...] = ()
    """How far the 95 % intervals over users reach to either side, where they were asked for."""
    problem: str | None = None
    """Why it could not be trained or measured."""


@dataclass(frozen=True)
class Trial:
    """One point that was tried."""

    number: int
    """Its place among the finished ones, from 1, which is the starting point."""
    parameters: Mapping[str, Any]
    """The values of what was searched."""
    verdict: Verdict
    seconds: float
    """Its share of the time of its run."""

    @property
    def value(self) -> float:
        """That of the first metric; where the trial failed, the worst there is."""
        return self.verdict.values[0]

    @property
    def problem(self) -> str | None:
        return self.verdict.problem

    def to_json(self, goals: Sequence[Goal]) -> dict[str, Any]:
        """With `value`, or with `values` by metric where there are two; those of a failed trial are null."""
        found: dict[str, Any] = {"value": self.value}
        if len(goals) > 1:
            found = {"values": self.by_metric(goals), "margins": self.by_metric(goals, margins=True)}
        return {
            "trial": self.number,
            **found,
            "parameters": dict(self.parameters),
            "seconds": round(self.seconds, 2),
            "problem": self.problem,
        }

    def by_metric(self, goals: Sequence[Goal], margins: bool = False) -> dict[str, float | None]:
        """The values, or how far their intervals reach, by the metric's name."""
        numbers = (self.verdict.margins if margins else self.verdict.values) or [None] * len(goals)
        return {goal.text: None if self.problem else number for goal, number in zip(goals, numbers, strict=True)}


@dataclass(frozen=True, eq=False)
class TuneResult:
    """What a search found, and every trial it rests on."""

    chosen: Method
    """With the chosen values, ready to be fitted; its label is still what was asked for."""
    picked: Trial
    """The chosen trial: the best one, or of two metrics the one that `pick` asked for."""
    goals: tuple[Goal, ...]
    trials: tuple[Trial, ...]
    """In the order in which they were asked for; the first one has the defaults."""
    space: Space
    fixed: Mapping[str, Any]
    pick: Pick | None = None
    """What was asked for of the front; None for one metric."""
    notes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """The chosen method and the best trials, for a notebook."""
        rows = [
            {"trial": trial.number}
            | {name: "–" if value is None else f"{value:.4f}" for name, value in trial.by_metric(self.goals).items()}
            | {"parameters": ", ".join(f"{name}={value}" for name, value in trial.parameters.items())}
            for trial in self.best(5)
        ]
        title = f"{self.method}: the choice of {count(len(self.trials), 'trial')} by {self.metric} on validation"
        return html_table(title, rows, self.notes)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The values that were searched, in the chosen method."""
        return self.picked.parameters

    @property
    def value(self) -> float:
        """The metric of the chosen trial on validation, of two the first."""
        return self.picked.value

    @property
    def metric(self) -> str:
        return ",".join(goal.text for goal in self.goals)

    @property
    def method(self) -> str:
        """The method as one would ask for it: `auc-ns:alpha=0.8:beta=0.02`."""
        return self.chosen.text({**self.parameters, **self.fixed})

    @property
    def flags(self) -> dict[str, Any]:
        """Options for the rest: `{"--lr": 0.003}`."""
        return self.chosen.flags({**self.parameters, **self.fixed})

    @property
    def ready(self) -> Method:
        """The chosen method under the name that has its values in it."""
        return replace(self.chosen, asked=self.method)

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """Of two metrics: the trials that no other beats, the most accurate first; empty for one."""
        return front_trials(self.trials, self.goals)

    def best(self, count: int) -> list[Trial]:
        """The best trials by the first metric; of equals, the earliest comes first."""
        first = self.goals[0]
        return sorted(self.trials, key=lambda trial: -first.gain(trial.value))[:count]

    def sentences(self, call: Callable[[Goal], str] = lambda goal: goal.text) -> list[str]:
        """For two metrics, in sentences: what was searched, what was picked, and what that costs."""
        front, one, default = self.front, self.picked, self.trials[0]
        called = [call(goal) for goal in self.goals]
        names = " and ".join(f"{name} {goal.arrow}" for name, goal in zip(called, self.goals, strict=True))
        there = f"{len(front)} of them are on the front, where better in one is worse in the other"
        if len(front) == 1:
            there = "one of them beats or equals all others"
        searched = f"{count(len(self.trials), 'trial')} of {self.chosen.label}"
        values = (f"{name} {value:.4f}" for name, value in zip(called, one.verdict.values, strict=True))
        said = [
            f"{searched}, measured on validation by {names}: {there}.",
            f"Picked ({self.pick}): trial {one.number}, with {' and '.join(values)}.",
        ]
        end, place = (front[0], "most accurate") if one is not front[0] else (front[-1], "least biased")
        if end is not one:
            said.append(f"Against the {place}, trial {end.number}, it is {self._costs(one, end, called)}.")
        if default is one:
            said.append("These are the defaults.")
        elif default is not end and not default.problem:
            said.append(f"Against the defaults, trial 1, it is {self._costs(one, default, called)}.")
        return said

    def _costs(self, one: Trial, other: Trial, called: Sequence[str]) -> str:
        """By how much one trial is better and worse than another."""
        parts: dict[str, list[str]] = {"better": [], "worse": [], "the same": []}
        pairs = zip(one.verdict.values, other.verdict.values, strict=True)
        for name, goal, (mine, theirs) in zip(called, self.goals, pairs, strict=True):
            won = goal.gain(mine) - goal.gain(theirs)
            word = "better" if won > 0 else "worse" if won < 0 else "the same"
            parts[word].append(f"by {abs(won):.4f} in {name}" if won else f"in {name}")
        return " and ".join(f"{word} {' and '.join(found)}" for word, found in parts.items() if found)

    def table(self) -> pa.Table:
        """One row a trial: its number, the values, the parameters, seconds, and why it failed.

        For two metrics there is a column for each, empty where a trial failed, one for how far its interval
        over users reaches to either side, and two that mark the front and what was picked.
        """
        trials, columns = self.trials, {"trial": pa.array([t.number for t in self.trials], pa.int64())}
        if len(self.goals) == 1:
            columns["value"] = pa.array([t.value for t in trials], pa.float64())
        else:
            for name, margins in (("", False), (" margin", True)):
                found = [trial.by_metric(self.goals, margins) for trial in trials]
                for goal in self.goals:
                    columns[goal.text + name] = pa.array([one[goal.text] for one in found], pa.float64())
            columns["front"] = pa.array([trial in self.front for trial in trials])
            columns["picked"] = pa.array([trial is self.picked for trial in trials])
        columns |= {name: _column([t.parameters[name] for t in trials]) for name in self.space}
        columns["seconds"] = pa.array([t.seconds for t in trials], pa.float64())
        columns["problem"] = pa.array([t.problem for t in trials], pa.string())
        return pa.table(columns)

    def to_json(self) -> dict[str, Any]:
        outcome: dict[str, Any] = {"value": self.value, "default_value": self.trials[0].value}
        if len(self.goals) > 1:
            outcome = {
                "values": self.picked.by_metric(self.goals),
                "default_values": self.trials[0].by_metric(self.goals),
                "pick": self.pick,
                "picked": self.picked.number,
                "front": [trial.to_json(self.goals) for trial in self.front],
            }
        return {
            "method": self.method,
            "flags": self.flags,
            "parameters": dict(self.parameters),
            "metric": self.metric,
            **outcome,
            "trials": len(self.trials),
            "space": {name: str(span) for name, span in self.space.items()},
            "encoder": self.chosen.description().get("encoder"),
            "settings": self.chosen.description().get("settings"),
            "notes": list(self.notes),
        }


def front_trials(trials: Iterable[Trial], goals: Sequence[Goal]) -> tuple[Trial, ...]:
    """The trials that no other beats, the most accurate first; a failed one is never among them."""
    if len(goals) == 1:
        return ()
    succeeded = [trial for trial in trials if not trial.problem]
    return tuple(succeeded[place] for place in front_of([_point(one, goals) for one in succeeded]))


def picked_trial(trials: Sequence[Trial], goals: Sequence[Goal], pick: Pick | None) -> Trial:
    """The best trial by the first metric or, with a pick, the one of the front; some must have succeeded."""
    if pick is None:
        succeeded = [trial for trial in trials if not trial.problem]
        return max(succeeded or trials, key=lambda trial: goals[0].gain(trial.value))
    front = front_trials(trials, goals)
    return front[picked_of([_point(one, goals) for one in front], pick)]


def _point(trial: Trial, goals: Sequence[Goal]) -> Point:
    gains = [goal.gain(value) for goal, value in zip(goals, trial.verdict.values, strict=True)]
    first, second = accurate_first(goals)
    return gains[first], gains[second]


def _column(values: Sequence[Any]) -> pa.Array:
    """Numbers as numbers; a choice between different kinds of values as text."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return pa.array(values) if numbers else pa.array([str(v) for v in values])
