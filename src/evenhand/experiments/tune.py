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

import pyarrow as pa

import evenhand
from evenhand.data.fingerprint import fingerprint
from evenhand.data.splits import Split
from evenhand.encoders import Encoder
from evenhand.errors import InputError, RunError, StoppedError
from evenhand.experiments.entrants import Entrant
from evenhand.experiments.judge import Judge, tuning_split
from evenhand.experiments.search_space import Space, search_space
from evenhand.experiments.setup import Setup
from evenhand.experiments.side_by_side import SideBySide, group_size, replicas_that_fit, together
from evenhand.experiments.study import Study, Trial, open_study
from evenhand.rivals import Rival
from evenhand.training.progress import OnEpoch
from evenhand.training.run import describe_encoder, seed_numbers
from evenhand.training.settings import ProtocolName, Settings, resolve_device


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
    """In the order in which they were asked for; the first one has the defaults."""
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
    side_by_side: SideBySide = "auto",
    on_trial: OnEpoch | None = None,
) -> TuneResult:
    """Search until `trials` have finished in total, those of an earlier, interrupted call included.

    `ranges` replace or add to those of the table, `fixed` values are not searched. Trials are kept in
    `storage`: a file (Path), the URL of a database that Optuna knows, or only in memory. Where the split has
    no validation part (as under the paper protocol) a tenth of train is held out for the search.
    `side_by_side` trials are asked for at once, and those that agree in shape train as replicas of one run;
    each has the value that it has alone. `on_trial` is told, before each run and at the end, how many have
    finished and the best value.
    """
    if not isinstance(trials, int) or trials < 1:
        raise InputError(f"a search takes a number of trials from 1 on, not {trials}.")
    fixed = fixed or {}
    asked = Setup.of(method, encoder, settings, protocol)
    space = search_space(asked, fixed, ranges)
    if not space:
        raise InputError(f"'{asked.entrant.label}' has no parameter left to tune.")
    setup = asked.having(fixed)
    size = group_size(side_by_side, setup, resolve_device(device))
    judge = Judge(tuning_split(split), seed_numbers(seeds), metric, device)
    present = setup.parameters()
    start = {name: span.nearest(present[name]) for name, span in space.items()}
    identity = {
        "data": " ".join(fingerprint(part) for part in judge.split.parts().values()),
        # A grouping has a number for every item, so the text of a setup may be long.
        "method or settings": hashlib.sha256(repr(setup.parts()).encode()).hexdigest(),
        "ranges": ", ".join(f"{name}={span}" for name, span in space.items()),
        "seeds": str(list(judge.seeds)),
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
                _try_next(opened, setup, judge, size, trials)
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


def _try_next(study: Study, setup: Setup, judge: Judge, size: int, trials: int) -> None:
    """A few trials that agree in shape, from the question to the answer."""
    asked = study.asked(size, trials)
    setups = [setup.having(one.parameters) for one in asked]
    where = resolve_device(judge.device)
    most = min(replicas_that_fit(one, judge.split, where) for one in setups) // len(judge.seeds)
    chosen = together(setups, min(size, max(1, most)))[0]
    began = time.perf_counter()
    try:
        verdicts = judge.verdicts([setups[place] for place in chosen])
    except BaseException:
        study.give_up()
        raise
    seconds = (time.perf_counter() - began) / len(chosen)
    for place, (value, problem) in zip(chosen, verdicts, strict=True):
        study.tell(asked[place], value, seconds, problem)


def _news(done: Sequence[Trial], metric: str) -> dict[str, Any]:
    """The state of a search, in the form of an epoch's record."""
    return {"metrics": {f"best {metric}": [max(trial.value for trial in done)]} if done else {}}


def _column(values: Sequence[Any]) -> pa.Array:
    """Numbers as numbers; a choice between different kinds of values as text."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    return pa.array(values) if numbers else pa.array([str(v) for v in values])
