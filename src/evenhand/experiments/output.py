"""What a run or a search leaves behind: its folder, never written over, and its record in MLflow.

Where records go is MLflow's own affair: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME. What cannot be recorded at the end
is said and costs nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand.data.write import write_table
from evenhand.experiments.compare import CompareResult, Row
from evenhand.experiments.results import check_writable, writing
from evenhand.experiments.tune import TuneResult
from evenhand.models.folder import check_ours
from evenhand.training.checkpoints import discard
from evenhand.utils.atomic import atomic_file, one_process, remove_abandoned
from evenhand.utils.errors import InputError, StoppedError, unknown
from evenhand.utils.text import one_line
from evenhand.utils.world import World

CHECKPOINTS = ".checkpoints"
"""Where an unfinished run keeps its checkpoints, in its own folder."""
JOURNAL, BEST, TRIALS, FRONT = SEARCH = ("trials.log", "best.json", "trials.parquet", "front.html")
"""The files of a search."""
TRACKERS = ("mlflow",)
EXPERIMENT = "evenhand"
_BATCH, _LONGEST = 1000, 500
"""Metrics that MLflow takes at once, and characters of a parameter that every version of it takes."""

Report = Callable[["Run"], None]


def check_folder(folder: str | Path, force: bool, resume: bool = False) -> Path:
    """Refuse a folder that a run could not be written to, before any work is done; nothing is made yet."""
    folder = Path(folder)
    if not World.current().speaks:
        return folder
    if folder.is_dir():
        unfinished = (folder / CHECKPOINTS).is_dir()
        if unfinished and not force and not resume:
            raise InputError(f"{folder} holds an unfinished run; go on with --resume, or start over with --force.")
        if resume and any(folder.iterdir()) and not unfinished:
            raise InputError(f"{folder} holds no unfinished run, so there is nothing to resume.")
        if any(folder.iterdir()) and not force and not unfinished:
            raise InputError(f"{folder} already holds files; choose another folder or use --force.")
    check_writable(folder)
    return folder


@contextmanager
def run_folder(folder: Path | None, force: bool, resume: bool) -> Iterator[Path | None]:
    """Work in a folder as its only process; yields where checkpoints go, which are removed at the end."""
    if folder is None:
        yield None
        return
    checkpoints = folder / CHECKPOINTS
    world = World.current()
    if not world.speaks:  # rank 0 answers for the folder
        world.barrier()
        yield checkpoints
        world.barrier()
        return
    with one_process(folder):
        check_folder(folder, force, resume)  # again: another process may have finished here meanwhile
        if not resume:
            discard(checkpoints)
        world.barrier()
        with stops_explained(checkpoints, "go on with --resume"):
            yield checkpoints
        world.barrier()
        discard(checkpoints)


def checkpoints_beside(model: str | Path) -> Path:
    """Where the training of a model keeps its checkpoints: beside the folder, which is replaced at one stroke."""
    folder = Path(model)
    return folder.with_name(f".{folder.name}.checkpoints")


@contextmanager
def search_folder(out: str, force: bool, local: bool) -> Iterator[Path]:
    """Yields the file for the trials. A search that is in the folder goes on, or with force begins again."""
    folder = Path(out)
    remove_abandoned(folder / JOURNAL)
    own = any((folder / name).exists() for name in SEARCH)
    check_folder(folder, force or own)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if force and local:
            with one_process(folder):
                for name in SEARCH:
                    (folder / name).unlink(missing_ok=True)
            folder.mkdir(exist_ok=True)
    try:
        yield folder / JOURNAL
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise


def check_model_folder(model: str | None, out: str, refit: bool, force: bool) -> None:
    """Refuse a place for the model that could not be written to after the search, before it begins."""
    if model is None:
        if refit:
            raise InputError("--refit is for the model that --model writes; name a folder for it.")
        return
    folder, search = Path(model).resolve(), Path(out).resolve()
    if folder == search or folder in search.parents:
        raise InputError(f"--model {model} holds the folder of the search; name another one for the model.")
    unfinished = checkpoints_beside(model).is_dir()
    if folder.is_dir() and any(folder.iterdir()) and not force and not unfinished:
        # Not a word of --force, which would begin the search again.
        raise InputError(f"{model} already holds files; name another folder for the model.")
    check_folder(model, force=True)
    check_ours(folder)


@contextmanager
def stops_explained(checkpoints: Path | None, how: str) -> Iterator[None]:
    """Whoever stops the work in the block reads in one line that it is kept, and how to go on.

    Without `checkpoints` something is kept in any case, as the trials of a search are.
    """
    try:
        yield
    except (StoppedError, KeyboardInterrupt) as stop:
        if checkpoints is not None and not checkpoints.is_dir():
            raise
        if isinstance(stop, StoppedError):
            raise StoppedError(stop.done, f"everything is saved: {how}") from stop
        raise StoppedError("stopped", f"what is finished is saved: {how}") from stop


def write_comparison(result: CompareResult, folder: Path, origin: dict[str, Any]) -> dict[str, pa.Table]:
    """`results.json`, `recommendations.parquet` (the best seed of every method) and `config.json`.

    `origin` says in `config.json` where the data came from. Returns the lists by method.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        history = {label: list(fit.history) for label, fit in result.fits.items()}
        _write_json(folder / "results.json", result.to_json() | {"history": history})
        _write_json(folder / "config.json", origin | result.configuration())
    lists = {label: fit.lists(max(result.ks)) for label, fit in result.fits.items()}
    named = (table.append_column("name", pa.repeat(label, len(table))) for label, table in lists.items())
    write_table(pa.concat_tables(named), folder / "recommendations.parquet")
    return lists


def write_search(result: TuneResult, folder: Path, origin: dict[str, Any]) -> None:
    """`best.json` and `trials.parquet`; `origin` says where the data came from."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / BEST, origin | result.to_json())
    write_table(result.table(), folder / TRIALS)


def data_record(
    data: str, files: Iterable[Path], reading: Any, splitting: Any, *, groups: str | None = None
) -> dict[str, Any]:
    """Which data was read, how, and the fingerprint of every file; `reading`, `splitting` are dataclasses.

    Folders are left out of every name: people publish models, and a path tells on its owner.
    """
    read = [*files, *([Path(groups.rpartition(":")[0])] if groups else [])]
    held_out = asdict(splitting)
    if held_out.get("test"):
        held_out["test"] = Path(held_out["test"]).name
    return {
        "source": data if data == "-" else Path(data).name,
        "files": [_fingerprint(file) for file in read],
        "reading": asdict(reading),
        "splitting": held_out,
        "groups": Path(groups).name if groups else None,
    }


def extended_record(old: Any, data: str, files: Iterable[Path], reading: Any) -> dict[str, Any]:
    """The record of a model that was given more data: both sources and the fingerprints of all files."""
    before: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {"reading": asdict(reading)}
    source = data if data == "-" else Path(data).name
    said = [before["source"]] if isinstance(before.get("source"), str) else []
    known = before["files"] if isinstance(before.get("files"), list) else []
    return {**before, "source": " + ".join([*said, source]), "files": [*known, *map(_fingerprint, files)]}


def _fingerprint(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}.") from problem
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _write_json(path: Path, document: Any) -> None:
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


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
        for record in carried_on(history):
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


def carried_on(history: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A history in which a seed that has stopped keeps its last number, so that every mean is over all seeds.

    >>> [one["loss"] for one in carried_on([{"loss": [0.5, 0.4]}, {"loss": [None, 0.3]}])]
    [[0.5, 0.4], [0.5, 0.3]]
    """

    def kept(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        def last(name: str, values: list[Any]) -> list[Any]:
            olds = before.get(name, values)
            return [old if new is None else new for new, old in zip(values, olds, strict=True)]

        return {name: last(name, value) if isinstance(value, list) else value for name, value in now.items()}

    before: dict[str, Any] = {}
    for record in history:
        metrics = kept(record.get("metrics") or {}, before.get("metrics", {}))
        before = {**kept(record, before), "metrics": metrics}
        yield before


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
