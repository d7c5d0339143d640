"""How good setups are on validation: what a search is told of its trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.data.hot import HotRule
from evenhand.data.splits import Split
from evenhand.errors import InputError, RunError, StoppedError, unknown
from evenhand.experiments.setup import Setup
from evenhand.metrics.users import ACCURACY
from evenhand.ranking.topk import Score
from evenhand.rivals.run import Challenger, fit_rival
from evenhand.training.run import train
from evenhand.training.selection import STOPPING_K, Evaluator
from evenhand.training.settings import resolve_device

HELD_OUT = 0.1
"""Share of train that a search holds out where the split has no validation part."""

Verdict = tuple[float, str | None]
"""The value of a setup, and why it could not be trained where that is so."""


class Judge:
    """Trains setups and says how good they are on validation."""

    def __init__(self, split: Split, seeds: tuple[int, ...], metric: str, device: str) -> None:
        self.split, self.seeds, self.device = split, seeds, device
        self.name, self.k = _parse_metric(metric, split.n_items)
        self.hot = HotRule().mask(split)

    def verdicts(self, setups: Sequence[Setup]) -> list[Verdict]:
        """Each setup's value, trained side by side.

        One that cannot be trained, such as by a loss that became infinite, stops the others of its run. They
        are then tried in halves, until everyone has the value that it has alone.
        """
        try:
            return [(value, None) for value in self.values(setups)]
        except StoppedError:
            raise
        except RunError as failure:
            if len(setups) == 1:
                return [(0.0, str(failure))]
        middle = len(setups) // 2
        return [*self.verdicts(setups[:middle]), *self.verdicts(setups[middle:])]

    def values(self, setups: Sequence[Setup]) -> list[float]:
        """The mean over the seeds of each setup, all of which must agree in shape."""
        validation, scorers = self._fit(setups)
        if (self.name, self.k) != ("ndcg", min(STOPPING_K, self.split.n_items)):
            assert self.split.validation is not None
            judged = Evaluator(self.split.validation, self.split.train, self.hot, (self.k,))
            validation = [one.metrics[self.name] for one in judged.results_by(scorers)[self.k]]
        return [float(np.mean(own)) for own in np.reshape(validation, (len(setups), -1))]

    def _fit(self, setups: Sequence[Setup]) -> tuple[Sequence[float], Sequence[Score]]:
        """NDCG@10 on validation and what scores, for every seed of the first setup, then of the second…"""
        first, each = setups[0].entrant, len(self.seeds)
        if isinstance(first, Challenger):
            assert len(setups) == 1
            where = resolve_device(self.device)
            fitted = fit_rival(self.split, first.rival, self.seeds, "honest", where, self.hot, (self.k,))
            assert fitted.validation is not None
            return fitted.validation, fitted.scorers
        trained = train(
            self.split,
            setups[0].encoder,
            [setup.entrant.sampler for setup in setups for _ in range(each)],  # type: ignore[union-attr]
            self.seeds * len(setups),
            [setup.settings for setup in setups for _ in range(each)],
            device=self.device,
            ks=(self.k,),
            objective=first.objective,
        )
        assert trained.validation is not None
        return trained.validation, trained.scorers


def tuning_split(split: Split) -> Split:
    """Train and validation alone; where there is no validation part, a tenth of train becomes one."""
    train, validation, notes = split.train, split.validation, split.notes
    if validation is None or not len(validation):
        held_out = np.zeros(len(train), dtype=bool)
        drawn = np.argsort(np.random.PCG64(0).random_raw(len(train)), kind="stable")
        held_out[drawn[: round(HELD_OUT * len(train))]] = True
        if not held_out.any():
            raise InputError(f"{len(train):,} training pairs are too few to hold some out for a search.")
        validation, train = train.take(held_out), train.take(~held_out)
        notes = (*notes, "The search held out 10 % of train, which the final fit has again.")
    nothing = train.take(np.zeros(len(train), dtype=bool))
    return Split(train, validation, nothing, split.description, notes)


def _parse_metric(text: str, n_items: int) -> tuple[str, int]:
    name, _, k = text.partition("@")
    if name not in ACCURACY:
        raise unknown("metric of a search", name, ACCURACY)
    if not k.isdecimal() or int(k) < 1:
        raise InputError(f"a metric is written name@k, as in ndcg@10, not '{text}'.")
    return name, min(int(k), n_items)
