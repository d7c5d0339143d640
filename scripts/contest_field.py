"""The contest's results as values: who took part on a split, and how sure the differences between them are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evenhand.experiments.results import Comparison, Results, Run
from evenhand.metrics.statistics import holm

AGAINST = ("ease", "als")
"""Whom every method is compared with."""
LEVEL = 0.05
TITLES = {
    "ml-100k-paper": "ML-100K, the authors' split",
    "ml-1m-paper": "ML-1M, the authors' split",
    "ml-100k-random-0": "ML-100K, random split 0",
    "ml-100k-random-1": "ML-100K, random split 1",
    "ml-100k-random-2": "ML-100K, random split 2",
    "ml-100k-time": "ML-100K, split by time",
}
POOLED = "ml-100k-random-0, random-1, random-2"


@dataclass(frozen=True)
class Gap:
    """A method minus one it is compared with, on one metric."""

    difference: float
    low: float
    high: float
    """95 % over users"""
    holm_p: float
    """The larger p of both tests, adjusted over the methods of the split."""
    beyond: bool
    """Whether zero lies outside of both intervals, over users and over seeds, on the same side."""

    @property
    def side(self) -> int:
        """1 or −1: which way the difference goes beyond chance; 0 if it does not."""
        return 0 if not self.beyond or self.holm_p > LEVEL else 1 if self.difference > 0 else -1


@dataclass(frozen=True, eq=False)
class Field:
    """All methods of one split."""

    name: str
    runs: Mapping[str, Run]
    """By method (`mf/auc-ns`, `ease`), the best on validation first."""
    comparisons: tuple[Comparison, ...]
    costs: Mapping[str, Run]
    """What one model took alone on one machine, with the same values (benchmarks/contest_cost.py)."""

    def summary(self, method: str, key: str) -> dict[str, Any]:
        return self.runs[method].summary(key)

    def own(self, method: str, key: str) -> Comparison | None:
        """Mean and 95 % interval over users of one method."""
        mine = (one for one in self.comparisons if one.against is None and label(one) == method)
        return next((one for one in mine if f"{one.metric}@{one.k}" == key), None)

    @cached_property
    def gaps(self) -> dict[tuple[str, str, str], Gap]:
        """(method, against, `ndcg@5`) → how they differ."""
        tests: dict[tuple[str, str], dict[str, dict[str, Comparison]]] = {}
        for one in self.comparisons:
            if one.against is not None:
                family = tests.setdefault((one.against, f"{one.metric}@{one.k}"), {})
                family.setdefault(label(one), {})[one.over] = one
        found = {}
        for (against, key), family in tests.items():
            adjusted = holm([max(one.p for one in both.values()) for both in family.values()])
            for (method, both), p in zip(family.items(), adjusted, strict=True):
                users, sides = both["users"], {(one.low > 0) - (one.high < 0) for one in both.values()}
                beyond = len(sides) == 1 and sides != {0}
                found[method, against, key] = Gap(users.difference, users.low, users.high, float(p), beyond)
        return found


def label(run: Run | Comparison) -> str:
    """mf/auc-ns, ease"""
    return "/".join(filter(None, (run.encoder, run.method)))


def title(name: str) -> str:
    return TITLES.get(name, name)


def fields(folder: Path) -> dict[str, Field]:
    """Every split of the contest by name, and under `POOLED` the three random ones, a user's mean."""
    results = Results(folder)
    found = {}
    names = dict.fromkeys(_where(run) for run in results.runs.values() if run.experiment == "contest")
    for name in (*sorted(names, key=lambda one: ([*TITLES, one].index(one), one)), POOLED):
        runs = [run for run in results.runs.values() if run.experiment == "contest" and _where(run) == name]
        runs.sort(key=lambda run: -run.summary("validation ndcg@10")["mean"])
        values = {label(run): {**run.details["held"], **run.details["search"]["best"]} for run in runs}
        costs = {
            label(run): run
            for run in results.runs.values()
            if run.experiment == "contest-cost" and _where(run) == name and run.details["values"] == values[label(run)]
        }
        mine = tuple(one for one in results.comparisons if one.experiment == "contest" and _where(one) == name)
        found[name] = Field(name, {label(run): run for run in runs}, mine, costs)
    return found


def pooled_gaps(field: Field) -> dict[tuple[str, str], Gap]:
    """(against, `ndcg@5`) → the recipe minus another over several splits; adjusted over all lines."""
    lines = [one for one in field.comparisons if one.against is not None]
    adjusted = holm([one.p for one in lines])
    return {
        (one.against or "", f"{one.metric}@{one.k}"): Gap(
            one.difference, one.low, one.high, float(p), one.low > 0 or one.high < 0
        )
        for one, p in zip(lines, adjusted, strict=True)
    }


def _where(one: Run | Comparison) -> str:
    return f"{one.dataset}-{one.split}"
