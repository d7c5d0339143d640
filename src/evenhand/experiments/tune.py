"""`tune`: search the parameters of one method on validation, the defaults first.

The test part is taken away before the search begins, so nothing of it can reach the choice; and as the
defaults are the first trial, what is chosen is never worse than they are on validation.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import evenhand
from evenhand.data.fingerprint import fingerprint
from evenhand.data.hot import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder
from evenhand.errors import InputError, RunError, StoppedError, unknown
from evenhand.experiments.entrants import Entrant, Outcome
from evenhand.experiments.search_space import Space, search_space
from evenhand.experiments.setup import Setup
from evenhand.experiments.study import Study, Trial, open_study
from evenhand.metrics.users import ACCURACY
from evenhand.rivals import Rival
from evenhand.rivals.run import Challenger, fit_rival
from evenhand.training.progress import OnEpoch
from evenhand.training.run import describe_encoder, seed_numbers, train
from evenhand.training.selection import STOPPING_K, Evaluator
from evenhand.training.settings import ProtocolName, Settings, resolve_device

HELD_OUT = 0.1
"""Share of train that a search holds out where the split has no validation part."""


@dataclass(frozen=True, eq=False)
class TuneResult:
    """What a search found, and every trial it rests on."""

    setup: Setup
    """The best setup, ready to be trained."""
    parameters: Mapping[str, Any]
    """The values that were searched, in the best setup."""
    value: float
    """The metric of the best trial on validation."""
    metric: str
    trials: tuple[Trial, ...]
    """In the order in which they were tried; the first one has the defaults."""
    space: Space
    fixed: Mapping[str, Any]
    """What was held at a value."""
    notes: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The method as one would ask for it: `auc-ns:alpha=0.8:beta=0.02`."""
        return self.setup.method_text({**self.parameters, **self.fixed})

    @property
    def flags(self) -> dict[str, Any]:
        """Options for the rest: `{"--lr": 0.003}`."""
        return self.setup.flags({**self.parameters, **self.fixed})

    def best(self, count: int) -> list[Trial]:
        """The best trials; of equals, the earliest comes first."""
        return sorted(self.trials, key=lambda trial: -trial.value)[:count]

    def table(self) -> pa.Table:
        """One row a trial: number, value, the parameters, seconds, and why it failed."""
        columns: dict[str, Any] = {
            "trial": pa.array([t.number for t in self.trials], pa.int64()),
            "value": pa.array([t.value for t in self.trials], pa.float64()),
        }
        for name in self.space:
            columns[name] = _column([t.parameters[name] for t in self.trials])
        columns["seconds"] = pa.array([t.seconds for t in self.trials], pa.float64())
        columns["problem"] = pa.array([t.problem for t in self.trials], pa.string())
        return pa.table(columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "flags": self.flags,
            "parameters": dict(self.parameters),
            "metric": self.metric,
            "value": self.value,
            "default_value": self.trials[0].value,
            "trials": len(self.trials),
            "space": {name: str(span) for name, span in self.space.items()},
            "encoder": describe_encoder(self.setup.encoder) if "encoder" in self.setup.parts() else None,
            "settings": asdict(self.setup.settings) if "settings" in self.setup.parts() else None,
            "notes": list(self.notes),
        }


def tune(
    split: Split,
    method: str | Entrant | Rival = "auc-ns",
    encoder: str | Encoder = "mf",
    *,
    trials: int = 20,
    seeds: int | Sequence[int] = 1,
    metric: str = "ndcg@10",
    settings: Settings | None = None,
    protocol: ProtocolName = "honest",
    fixed: Mapping[str, Any] | None = None,
    ranges: Space | None = None,
    storage: str | Path | None = None,
    study: str | None = None,
    seed: int = 0,
    device: str = "auto",
    on_trial: OnEpoch | None = None,
) -> TuneResult:
    """Search until `trials` have finished in total, those of an earlier, interrupted call included.

    `ranges` replace or add to those of the table, `fixed` values are not searched. Trials are kept in
    `storage`: a file (Path), the URL of a database that Optuna knows, or only in memory. Where the split has
    no validation part (as under the paper protocol) a tenth of train is held out for the search.
    `on_trial` is told, before each trial and at the end, how many have finished and the best value.
    """
    if not isinstance(trials, int) or trials < 1:
        raise InputError(f"a search takes a number of trials from 1 on, not {trials}.")
    fixed = fixed or {}
    asked = Setup.of(method, encoder, settings, protocol)
    space = search_space(asked, fixed, ranges)
    if not space:
        raise InputError(f"'{asked.entrant.label}' has no parameter left to tune.")
    setup = asked.having(fixed)
    numbers, judge = seed_numbers(seeds), _Judge(tuning_split(split), metric, device)
    present = setup.parameters()
    start = {name: span.nearest(present[name]) for name, span in space.items()}
    identity = {
        "data": " ".join(fingerprint(part) for part in judge.split.parts().values()),
        # A grouping has a number for every item, so the text of a setup may be long.
        "method or settings": hashlib.sha256(repr(setup.parts()).encode()).hexdigest(),
        "ranges": ", ".join(f"{name}={span}" for name, span in space.items()),
        "seeds": str(list(numbers)),
        "metric": metric,
        "search seed": str(seed),
        "version of evenhand": evenhand.__version__,
    }
    name = study or setup.entrant.label
    done: list[Trial] = []
    try:
        with open_study(storage, name, space, start, identity, seed) as opened:
            while len(done := opened.finished()) < trials:
                if on_trial:
                    on_trial(len(done), trials, _news(done, metric))
                _try_next(opened, setup, numbers, judge)
    except (StoppedError, KeyboardInterrupt) as stop:
        rest = (
            "run the same command again to go on (compare: with --resume)" if storage else "nothing was saved"
        )
        raise StoppedError(f"stopped after {len(done)} of {trials} trials; {rest}.") from stop
    if on_trial:
        on_trial(len(done), len(done), _news(done, metric))
    best = max(done, key=lambda trial: trial.value)
    if best.problem:
        raise RunError(f"no trial of '{name}' succeeded; the last one failed because {done[-1].problem}")
    return TuneResult(
        setup.having(best.parameters), best.parameters, best.value, metric, tuple(done), space, dict(fixed),
        notes=judge.split.notes,
    )  # fmt: skip


def _try_next(study: Study, setup: Setup, seeds: tuple[int, ...], judge: _Judge) -> None:
    """One trial, from the question to the answer."""
    values = study.ask()
    began = time.perf_counter()
    value, problem = 0.0, None
    try:
        value = judge(setup.having(values), seeds)
    except BaseException as failure:
        if not isinstance(failure, RunError) or isinstance(failure, StoppedError):
            study.give_up()
            raise
        problem = str(failure)  # such as a loss that became infinite: a bad point, which a search must know
    study.tell(value, time.perf_counter() - began, problem)


class _Judge:
    """Trains a setup and says how good it is on validation."""

    def __init__(self, split: Split, metric: str, device: str) -> None:
        self.split, self.device = split, device
        self.name, self.k = _parse_metric(metric, split.n_items)
        self.hot = HotRule().mask(split)

    def __call__(self, setup: Setup, seeds: tuple[int, ...]) -> float:
        fitted = self._fit(setup, seeds)
        assert fitted.validation is not None
        assert self.split.validation is not None
        if (self.name, self.k) == ("ndcg", min(STOPPING_K, self.split.n_items)):
            return float(np.mean(fitted.validation))
        judged = Evaluator(self.split.validation, self.split.train, self.hot, (self.k,))
        return float(np.mean([one.metrics[self.name] for one in judged.results_by(fitted.scorers)[self.k]]))

    def _fit(self, setup: Setup, seeds: tuple[int, ...]) -> Outcome:
        one = setup.entrant
        if isinstance(one, Challenger):
            where = resolve_device(self.device)
            return fit_rival(self.split, one.rival, seeds, "honest", where, self.hot, (self.k,))
        return train(
            self.split,
            setup.encoder,
            one.sampler,
            seeds,
            setup.settings,
            device=self.device,
            ks=(self.k,),
            objective=one.objective,
        )


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


def _news(done: Sequence[Trial], metric: str) -> dict[str, Any]:
    """The state of a search, in the form of an epoch's record."""
    return {"metrics": {f"best {metric}": [max(trial.value for trial in done)]} if done else {}}


def _column(values: Sequence[Any]) -> pa.Array:
    """Numbers as numbers; a choice between different kinds of values as text."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return pa.array(values) if numbers else pa.array([str(v) for v in values])
