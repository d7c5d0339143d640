"""What a search found: the trial that was chosen, the front where there are two metrics, and every trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from evenhand.experiments.goals import Goal, Pick, Point, accurate_first, front_of, picked_of
from evenhand.experiments.search_space import Space
from evenhand.training.method import Method
from evenhand.utils.text import count, html_table


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
    """Its place among the finished ones, from 1."""
    parameters: Mapping[str, Any]
    """What was searched; 1 is the starting point."""
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
