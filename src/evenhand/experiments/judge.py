"""How good setups are on validation: what a search is told of its trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.baselines.run import Challenger, fit_baseline
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, held_out_share
from evenhand.experiments.goals import Goal, parse_goals
from evenhand.experiments.setup import Setup
from evenhand.experiments.trial import Verdict
from evenhand.metrics.statistics import CONFIDENCE
from evenhand.metrics.student_t import t_quantile
from evenhand.metrics.users import UserMetrics
from evenhand.models.topk import Score
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator
from evenhand.training.run import train
from evenhand.training.settings import resolve_device
from evenhand.utils.errors import RunError, StoppedError

HELD_OUT = 0.1
"""Share of train that a search holds out where the split has no validation part."""


class Judge:
    """Trains setups and says how good they are on validation."""

    def __init__(self, split: Split, seeds: tuple[int, ...], metric: str | Sequence[str], device: str) -> None:
        self.split, self.seeds, self.device = split, seeds, device
        self.goals = parse_goals(metric, split.n_items)
        self.ks = tuple(sorted({goal.k for goal in self.goals}))
        self.hot = HotRule().mask(split)

    def verdicts(self, setups: Sequence[Setup]) -> list[Verdict]:
        """Each setup's worth, trained side by side.

        One that cannot be trained, such as by a loss that became infinite, stops the others of its run. They
        are then tried in halves, until everyone has the values that it has alone.
        """
        try:
            return self.judged(setups)
        except StoppedError:
            raise
        except RunError as failure:
            if len(setups) == 1:
                return [self._failed(str(failure))]
        middle = len(setups) // 2
        return [*self.verdicts(setups[:middle]), *self.verdicts(setups[middle:])]

    def judged(self, setups: Sequence[Setup]) -> list[Verdict]:
        """The mean over the seeds of each setup, all of which must agree in shape."""
        validation, scorers = self._fit(setups)
        each = len(validation) // len(setups)
        own = [slice(start, start + each) for start in range(0, len(validation), each)]
        stopping = ("ndcg", min(STOPPING_K, self.split.n_items))
        if [(goal.name, goal.k) for goal in self.goals] == [stopping]:
            return [Verdict((float(np.mean(validation[seeds])),)) for seeds in own]
        assert self.split.validation is not None
        scored = Evaluator(self.split.validation, self.split.train, self.hot, self.ks).judged(scorers)
        return [self._verdict(scored[seeds]) for seeds in own]

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

    def _fit(self, setups: Sequence[Setup]) -> tuple[Sequence[float], Sequence[Score]]:
        """NDCG@10 on validation and what scores, for every seed of the first setup, then of the second…"""
        first, each = setups[0].entrant, len(self.seeds)
        if isinstance(first, Challenger):
            assert len(setups) == 1
            where = resolve_device(self.device)
            fitted = fit_baseline(self.split, first.baseline, self.seeds, "honest", where, self.hot, self.ks)
            assert fitted.validation is not None
            return fitted.validation, fitted.scorers
        trained = train(
            self.split,
            setups[0].encoder,
            [setup.entrant.sampler for setup in setups for _ in range(each)],  # type: ignore[union-attr]
            self.seeds * len(setups),
            [setup.settings for setup in setups for _ in range(each)],
            device=self.device,
            ks=self.ks,
            objective=first.objective,
        )
        assert trained.validation is not None
        return trained.validation, trained.scorers


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
