"""One setup that a search tried, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.experiments.goals import Goal


@dataclass(frozen=True)
class Verdict:
    """What a setup is worth on validation."""

    values: tuple[float, ...]
    """One a goal, the mean over seeds; the worst there is where the setup could not be judged."""
    margins: tuple[float | None, ...] = ()
    """How far the 95 % intervals over users reach to either side, where they were asked for."""
    problem: str | None = None
    """Why it could not be trained or judged."""


@dataclass(frozen=True)
class Trial:
    """One setup that was tried."""

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
