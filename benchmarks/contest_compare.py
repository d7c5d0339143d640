"""How sure the differences of the contest are: intervals over users and over seeds, kept with the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evenhand.experiments.results import DIGITS, WORK, Comparison, Results, Run
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.statistics import Interval, bootstrap_over_users, compare_metric
from evenhand.paper.claims import WANTED, Runs, load

CONTEST = "contest"
AGAINST = ("ease", "als")
"""Whom every method is compared with."""
OURS, RANDOM = "blend", ("random-0", "random-1", "random-2")
"""What is compared over several splits of the same people at once."""
KS = (5, 10)
DRAWS = 4000
"""Of the bootstrap: enough that the least p, times the number of methods, is well below the level."""


def label(run: Run | Comparison) -> str:
    """mf/auc-ns, ease"""
    return "/".join(filter(None, (run.encoder, run.method)))


def involves(one: Comparison, run: Run) -> bool:
    """Whether a comparison rests on this run, alone or together with other splits."""
    here = (one.experiment, one.dataset) == (run.experiment, run.dataset) and run.split in one.split.split(", ")
    return here and label(run) in (label(one), one.against)


def compare(results: Results) -> None:
    """Add all comparisons that are missing and whose users are stored beside the results."""
    runs = [run for run in results.runs.values() if run.experiment == CONTEST]
    known = {(one.dataset, one.split, label(one), one.against) for one in results.comparisons}
    users = _Users(results.folder / WORK)
    for run in runs:
        for against in (None, *AGAINST):
            if (run.dataset, run.split, label(run), against) not in known and label(run) != against:
                results.comparisons += _compared(run, against, users)
    for first in (run for run in runs if run.method == OURS and run.split == RANDOM[0]):
        pooled = replace(first, split=", ".join(RANDOM))
        for against in AGAINST:
            if (pooled.dataset, pooled.split, OURS, against) not in known:
                results.comparisons += _pooled(pooled, against, users)
    results.write()


def _compared(run: Run, against: str | None, users: _Users) -> Iterator[Comparison]:
    mine = users.of(run.dataset, run.split, label(run))
    theirs = None if against is None else users.of(run.dataset, run.split, against)
    if mine is None or (against is not None and theirs is None):
        return
    for k in KS:
        for metric in WANTED:
            if theirs is None:
                values = np.mean([one.per_user(metric) for one in mine[k]], axis=0)
                yield from _kept(run, against, metric, k, users=_own(values))
            else:
                found = compare_metric(*paired(mine[k], theirs[k]), metric, draws=DRAWS)
                if found.users is not None:
                    yield from _kept(run, against, metric, k, users=found.users, seeds=found.seeds)


def _pooled(run: Run, against: str, users: _Users) -> Iterator[Comparison]:
    """A user's value is the mean over seeds and splits, so that nobody counts as several."""
    sides = [[users.of(run.dataset, split, name) for split in RANDOM] for name in (OURS, against)]
    if any(one is None for side in sides for one in side):
        return
    for k in KS:
        for metric in WANTED:
            mine, theirs = (_over_splits([one for one in side if one is not None], metric, k) for side in sides)
            yield from _kept(run, against, metric, k, users=bootstrap_over_users(mine, theirs, draws=DRAWS))


def _kept(run: Run, against: str | None, metric: str, k: int, **found: Interval | None) -> Iterator[Comparison]:
    where = (run.experiment, run.dataset, run.split, run.encoder, run.method)
    for over, one in found.items():
        if one is not None:
            numbers = (round(value, DIGITS) for value in (one.difference, one.low, one.high, one.p))
            yield Comparison(*where, against, over, metric, k, *numbers)


def _own(values: np.ndarray) -> Interval | None:
    return bootstrap_over_users(values, np.zeros_like(values), draws=DRAWS)


def _over_splits(runs: Sequence[Runs], metric: str, k: int) -> np.ndarray:
    """One value per user who is evaluated on every split."""
    each: list[dict[int, float]] = []
    for one in runs:
        values = np.mean([seed.per_user(metric) for seed in one[k]], axis=0)
        each.append(dict(zip(one[k][0].users.tolist(), values.tolist(), strict=True)))
    everyone = sorted(set.intersection(*map(set, each)))
    return np.array([np.mean([found[user] for found in each]) for user in everyone])


def paired(a: Sequence[UserMetrics], b: Sequence[UserMetrics]) -> tuple[Sequence[UserMetrics], Sequence[UserMetrics]]:
    """Seeds that both have; what does not depend on the seed has one result, which stands for every seed."""
    seeds = max(len(a), len(b)) if 1 in (len(a), len(b)) else min(len(a), len(b))
    return [*a][:seeds] * (seeds // len(a) or 1), [*b][:seeds] * (seeds // len(b) or 1)


class _Users:
    """The values of single users, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, dict[tuple[str, str, str], Runs | None]()

    def of(self, dataset: str, split: str, name: str) -> Runs | None:
        key = (dataset, split, name)
        if key not in self.found:
            self.found[key] = load(self.folder / f"{dataset}-{split}", name)
        return self.found[key]
