"""The trials of a search: the values that were tried, and how good each was on validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.data.splits import Split, held_out_share
from evenhand.experiments.goals import Goal, parse_goals
from evenhand.metrics.statistics import CONFIDENCE
from evenhand.metrics.student_t import t_quantile
from evenhand.metrics.users import UserMetrics
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions, Method
from evenhand.utils.errors import RunError, StoppedError

HELD_OUT = 0.1
"""Share of train that a search holds out where the split has no validation part."""


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
    """What it came to on validation."""
    seconds: float
    """Its share of the time of its run."""

    @property
    def value(self) -> float:
        """That of the first metric; where the trial failed, the worst there is."""
        return self.verdict.values[0]

    @property
    def problem(self) -> str | None:
        """Why it failed."""
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


class TrialEvaluator:
    """Fits methods and says how good they are on validation."""

    def __init__(self, split: Split, seeds: int | Sequence[int], metric: str | Sequence[str], device: str) -> None:
        self.goals = parse_goals(metric, split.n_items)
        lengths = sorted({goal.k for goal in self.goals})
        self.conditions = Conditions.of(split, seeds, "honest", lengths, None, device)

    def verdicts(self, methods: Sequence[Method]) -> list[Verdict]:
        """Each method's worth, trained side by side.

        One that cannot be trained, such as by a loss that became infinite, stops the others of its run. They
        are then tried in halves, until everyone has the values that it has alone.
        """
        try:
            return self.evaluated(methods)
        except StoppedError:
            raise
        except RunError as failure:
            if len(methods) == 1:
                return [self._failed(str(failure))]
        middle = len(methods) // 2
        return [*self.verdicts(methods[:middle]), *self.verdicts(methods[middle:])]

    def evaluated(self, methods: Sequence[Method]) -> list[Verdict]:
        """The mean over the seeds of each method, all of which must agree in shape."""
        fits, split = methods[0].fit_together(methods, self.conditions), self.conditions.split
        stopping = ("ndcg", min(STOPPING_K, split.n_items))
        if [(goal.name, goal.k) for goal in self.goals] == [stopping]:
            return [Verdict((float(np.mean(fit.validation or ())),)) for fit in fits]
        assert split.validation is not None
        sample = users_within_reach(split.validation)
        evaluator = Evaluator(split.validation, split.train, self.conditions.hot_items, self.conditions.k, sample)
        return [self._verdict(evaluator.evaluate(fit.scorers)) for fit in fits]

    def _verdict(self, seeds: Sequence[dict[int, UserMetrics]]) -> Verdict:
        values = tuple(float(np.mean([one[goal.k].mean(goal.name) for one in seeds])) for goal in self.goals)
        for goal, value in zip(self.goals, values, strict=True):
            if np.isnan(value):
                return self._failed(f"{goal.text} is undefined: there is no user to measure it on")
        if len(self.goals) == 1:
            return Verdict(values)
        return Verdict(values, tuple(_margin([one[goal.k] for one in seeds], goal) for goal in self.goals))

    def _failed(self, problem: str) -> Verdict:
        return Verdict(tuple(goal.worst for goal in self.goals), problem=problem)


def tuning_split(split: Split) -> Split:
    """Train and validation alone; where there is no validation part, a tenth of train becomes one."""
    train, validation, notes = split.train, split.validation, split.notes
    if validation is None or not len(validation):
        train, validation = held_out_share(train, HELD_OUT)
        notes = (*notes, "The search held out 10 % of train, which the final fit has again.")
    nothing = train.take(np.zeros(len(train), dtype=bool))
    return Split(train, validation, nothing, split.description, notes)


def _margin(seeds: Sequence[UserMetrics], goal: Goal) -> float | None:
    """Half of the 95 % interval over users, their values averaged over seeds; None where users are too few.

    A metric is a ratio of sums over users, of which a mean is the case where all denominators are 1.
    """
    if goal.name.endswith("_pooled"):
        rates = [one.rates[goal.name.removesuffix("_pooled")] for one in seeds]
        above = np.mean([rate.numerators for rate in rates], axis=0)
        below = np.mean([rate.denominators for rate in rates], axis=0)
    else:
        users = np.array([one.per_user(goal.name) for one in seeds])
        above, below = np.nan_to_num(users).mean(axis=0), (~np.isnan(users)).mean(axis=0)
    counted = int(np.count_nonzero(below))
    if counted < 2:
        return None
    rest = above - below * (above.sum() / below.sum())
    error = np.sqrt((rest**2).sum() * counted / (counted - 1)) / below.sum()
    return float(t_quantile(0.5 + CONFIDENCE / 2, counted - 1) * error)
