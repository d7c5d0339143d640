"""Runs on record with MLflow, beside what a command writes itself: parameters, metrics by epoch, results, files.

Where they go is MLflow's own affair: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. What cannot be recorded at the end is
said and costs nothing else.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenhand.experiments.compare import CompareResult, Row
from evenhand.experiments.tune import TuneResult
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import one_line
from evenhand.utils.world import World

TRACKERS = ("mlflow",)
EXPERIMENT = "evenhand"
_BATCH, _LONGEST = 1000, 500
"""Metrics that MLflow takes at once, and characters of a parameter that every version of it takes."""

Report = Callable[["Run"], None]


@contextmanager
def tracking(name: str | None, title: str) -> Iterator[Callable[[Report], None]]:
    """A run that is open for the length of the block, started before any work; yields what puts things on record.

    >>> with tracking(None, "a run") as record:
    ...     record(lambda run: run.parameters({"dim": 64}))  # without a tracker nothing happens
    """
    if name is None or not World.current().speaks:
        yield lambda tell: None
        return
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    if find_spec("mlflow") is None:
        raise InputError("mlflow is not installed; install it with: pip install 'evenhand[mlflow]'.")
    mlflow: Any = import_module("mlflow")
    try:
        active = mlflow.start_run(run_name=title, experiment_id=_experiment(mlflow))
    except Exception as problem:
        raise InputError(f"mlflow cannot record the run: {_said(problem)}.") from None

    def record(tell: Report) -> None:
        try:
            tell(Run(mlflow, active))
        except Exception as problem:
            print(f"note: mlflow has not recorded all of it: {_said(problem)}.", file=sys.stderr)

    with active:
        yield record


class Run:
    """One run of MLflow."""

    def __init__(self, mlflow: Any, active: Any) -> None:
        self._mlflow, self._number, self._experiment = mlflow, active.info.run_id, active.info.experiment_id

    @contextmanager
    def child(self, title: str) -> Iterator[Run]:
        with self._mlflow.start_run(run_name=title, nested=True, experiment_id=self._experiment) as active:
            yield Run(self._mlflow, active)

    def parameters(self, values: Mapping[str, Any]) -> None:
        plain = {_key(name): one_line(value, _LONGEST) for name, value in _flat(values)}
        self._mlflow.log_params(plain, run_id=self._number)

    def metrics(self, values: Iterable[tuple[str, float | None, int]]) -> None:
        """Names, values and steps; what is undefined is left out."""
        entities, now = self._mlflow.entities, int(time.time() * 1000)
        found = [
            entities.Metric(_key(name), float(value), now, step)
            for name, value, step in values
            if value is not None and math.isfinite(value)
        ]
        for first in range(0, len(found), _BATCH):
            self._mlflow.MlflowClient().log_batch(self._number, metrics=found[first : first + _BATCH])

    def epochs(self, history: Iterable[Mapping[str, Any]]) -> None:
        """The means over seeds of every epoch; those of validation are called so."""
        found = []
        for record in history:
            named = {name: value for name, value in record.items() if name not in ("epoch", "metrics")}
            named |= {f"validation/{name}": value for name, value in (record.get("metrics") or {}).items()}
            for name, value in named.items():
                each = value if isinstance(value, (list, tuple)) else [value]
                values = [one for one in each if isinstance(one, (int, float)) and math.isfinite(one)]
                found.append((name, sum(values) / len(values) if values else None, int(record.get("epoch", 0))))
        self.metrics(found)

    def results(self, rows: Iterable[Row]) -> None:
        """On test: the mean over seeds, and the spread where there are several."""
        found = []
        for row in rows:
            for name, summary in row.metrics.items():
                found += [(f"{name}@{row.k}", summary.mean, 0), (f"{name}@{row.k}_std", summary.std, 0)]
        self.metrics(found)

    def files(self, folder: str | Path | None) -> None:
        """All files of a folder, hidden ones left out."""
        for path in sorted(Path(folder).iterdir()) if folder is not None else ():
            if path.is_file() and not path.name.startswith("."):
                self._mlflow.log_artifact(str(path), run_id=self._number)

    def comparison(self, result: CompareResult, folder: Path | None) -> None:
        """What was compared, and a run within this one for every method, by test where there are several."""
        for test, one in (result.by_test or {"": result}).items():
            shared = one.configuration()
            methods = shared.pop("methods")
            self.parameters({f"{test}/{name}" if test else name: value for name, value in shared.items()})
            for label, fit in one.fits.items():
                with self.child(f"{test}: {label}" if test else label) as run:
                    run.parameters(methods[label])
                    run.epochs(fit.model.history)
                    run.results(row for row in one.rows if row.name == label)
        self.files(folder)

    def search(self, result: TuneResult, folder: Path) -> None:
        """What was chosen, and a run within this one for every trial."""
        self.parameters({"method": result.method, "metric": result.metric, "trials": len(result.trials)})
        self.parameters({"fixed": result.fixed, "chosen": result.parameters})
        for trial in result.trials:
            with self.child(f"trial {trial.number}") as run:
                run.parameters(trial.parameters)
                run.metrics((name, value, 0) for name, value in trial.by_metric(result.goals).items())
        self.metrics((name, value, 0) for name, value in result.picked.by_metric(result.goals).items())
        self.files(folder)


def _experiment(mlflow: Any) -> str | None:
    """The experiment called evenhand, made where there is none; None where the environment names another."""
    if os.environ.get("MLFLOW_EXPERIMENT_NAME") or os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return None
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(EXPERIMENT)
    return str(client.create_experiment(EXPERIMENT) if found is None else found.experiment_id)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            yield f"{before}{name}", value


def _key(name: str) -> str:
    """A name that MLflow takes.

    >>> _key("ndcg@10")
    'ndcg_at_10'
    """
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))[:250]


def _said(problem: Exception) -> str:
    return one_line(str(problem) or type(problem).__name__, 300).rstrip(". ")
