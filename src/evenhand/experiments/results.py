"""The results of a folder: three tidy Parquet tables that grow with every finished run.

A run counts once it is in `runs.parquet`, which is written last: a killed process loses no finished run and leaves no
half of one.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.metrics.statistics import summarise
from evenhand.utils.atomic import write_atomically
from evenhand.utils.errors import InputError, written_by_us

RUNS, MEASUREMENTS, COMPARISONS = "runs.parquet", "measurements.parquet", "comparisons.parquet"
WORK = ".work"
"""Beside the tables: checkpoints, and the values of single users. Not to be kept in a repository."""
DIGITS = 6
Document = dict[str, Any]
"""All rows of one experiment, in the shape of `evenhand reproduce --json`."""
_WHERE = ("experiment", "dataset", "split", "encoder", "method")
_NUMBERS = ("difference", "low", "high", "p")
_TEXT = pa.dictionary(pa.int32(), pa.string())
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    RUNS: {
        **dict.fromkeys(("run", *_WHERE), pa.string()),
        "seconds": pa.float64(),
        **dict.fromkeys(("command", "hardware", "versions", "details"), pa.string()),
    },
    MEASUREMENTS: {
        **dict.fromkeys(("run", *_WHERE, "part", "metric"), _TEXT),
        **dict.fromkeys(("k", "seed"), pa.int32()),
        "value": pa.float64(),
    },
    COMPARISONS: {
        **dict.fromkeys((*_WHERE, "against", "over", "metric"), _TEXT),
        "k": pa.int32(),
        **dict.fromkeys(_NUMBERS, pa.float64()),
    },
}


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: what it was, and every value it gave."""

    experiment: str
    """overall-ml-100k-mf-paper-paper, contest, …"""
    dataset: str
    split: str
    encoder: str | None
    """None for a method without one."""
    method: str
    """As it was asked for."""
    seconds: float
    command: str
    hardware: str
    versions: Mapping[str, str]
    details: Mapping[str, Any]
    """Hyperparameters, data fingerprints, notes: all that has no column of its own."""
    measured: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """`ndcg@10`, `mse` or `validation ndcg@10` → one value per seed; None where it is undefined."""

    @property
    def id(self) -> str:
        return "/".join(filter(None, (self.experiment, f"{self.dataset}-{self.split}", self.encoder, self.method)))

    def summary(self, key: str) -> dict[str, Any]:
        """Mean, standard deviation and the values of one metric, as the JSON documents have them."""
        values = [float("nan") if value is None else value for value in self.measured[key]]
        return summarise(values).to_json(DIGITS)

    def entry(self) -> dict[str, Any]:
        """A row of an experiment as `evenhand reproduce --json` prints it."""
        return {
            **{name: value for name, value in self.details.items() if name != "identity"},
            **{name: getattr(self, name) for name in ("command", "hardware", "versions", "seconds")},
            "chosen_epochs": [int(epoch) for epoch in self.measured.get("epoch", ()) if epoch is not None],
            "metrics": {key: self.summary(key) for key in self.measured if key != "epoch"},
        }


@dataclass(frozen=True)
class Comparison:
    """A method minus another on one metric, with a 95 % interval over users or over seeds."""

    experiment: str
    dataset: str
    split: str
    encoder: str | None
    method: str
    against: str | None
    """None: the mean of the method alone."""
    over: str
    metric: str
    k: int
    difference: float
    low: float
    high: float
    p: float


class Results:
    """What a folder holds; one without results is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        runs, values, comparisons = (_read(folder / name) for name in (RUNS, MEASUREMENTS, COMPARISONS))
        with as_written(folder):
            measured: dict[str, dict[str, list[float | None]]] = {}
            for row in values:
                of = measured.setdefault(row["run"], {}).setdefault(_key(row), [])
                if row["seed"] != len(of):
                    raise ValueError(f"seed {row['seed']} out of turn")
                if row["value"] is not None and not abs(row["value"]) <= 1e100:  # beyond it, squares overflow
                    raise ValueError(f"a value of {row['value']}")
                of.append(row["value"])
            self.runs: dict[str, Run] = {}
            for row in runs:
                name = row.pop("run")
                row |= {column: _object(row[column]) for column in ("versions", "details")}
                self.runs[name] = Run(**row, measured=measured.get(name, {}))
            self.comparisons = [Comparison(**row) for row in comparisons]

    def of(self, experiment: str) -> dict[str, Run]:
        """The runs of an experiment by method, in the order in which they finished."""
        return {run.method: run for run in self.runs.values() if run.experiment == experiment}

    def add(self, run: Run) -> None:
        self.runs[run.id] = run
        self.write()

    def write(self) -> None:
        """Write all tables, each whole or not at all, the runs last."""
        rows = {
            MEASUREMENTS: list(_measurement_rows(self.runs.values())),
            COMPARISONS: [asdict(one) for one in self.comparisons],
            RUNS: [_run_row(run) for run in self.runs.values()],
        }
        for name, each in rows.items():
            sink = io.BytesIO()
            table = pa.Table.from_pylist(each, pa.schema(_COLUMNS[name]))
            pq.write_table(table, sink, compression="zstd", compression_level=19)
            with writing(self.folder):
                write_atomically(self.folder / name, sink.getvalue())

    def document(self, experiment: str) -> Document:
        """An experiment of `evenhand reproduce` as `--json` prints it."""
        runs = self.of(experiment)
        first = next(iter(runs.values()))
        return {
            "format": 1,
            "evenhand": first.versions["evenhand"],
            "identity": first.details["identity"],
            "entries": {label: run.entry() for label, run in runs.items()},
            "over_users": [
                {"name": one.against, **{name: getattr(one, name) for name in ("k", "metric", *_NUMBERS)}}
                for one in self.comparisons
                if one.experiment == experiment and one.against in runs
            ],
        }


def documents(folder: Path) -> dict[str, Document]:
    """Every experiment of `evenhand reproduce` in a folder by name, the large tables first."""
    results = Results(folder)
    with as_written(folder):
        found = {run.experiment for run in results.runs.values() if "identity" in run.details}
        names = sorted(found, key=lambda name: (not name.startswith("overall-"), name))
        return {name: results.document(name) for name in names}


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What the system has to say about a place that cannot be written to, in one sentence."""
    try:
        yield
    except OSError as problem:
        raise InputError(f"cannot write to {place}: {problem.strerror or problem}.") from problem


def as_written(place: Path) -> AbstractContextManager[None]:
    """Results that somebody changed by hand may lack anything; the error is one sentence."""
    return written_by_us(place, "results", "remove them")


def check_writable(folder: Path) -> None:
    """Refuse a place that could not be written to, before any work is done."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot write to {folder}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {folder}: {nearest} is read-only.")


def rounded(values: Iterable[float | None]) -> list[float | None]:
    """Six digits; None where a value is undefined."""
    return [None if one is None or math.isnan(one) else round(float(one), DIGITS) for one in values]


def work_folder(folder: Path) -> Path:
    """Where unfinished work lies; a repository around it does not see it."""
    place = folder / WORK
    place.mkdir(parents=True, exist_ok=True)
    (place / ".gitignore").write_text("*\n", encoding="utf-8")
    return place


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    columns = _COLUMNS[path.name]
    try:
        table = pq.read_table(path, partitioning=None)
        if set(table.schema.names) != set(columns):
            raise InputError(f"{path} is not a table of `evenhand reproduce`; choose another --out.")
        if path.name == MEASUREMENTS:  # the other columns are there for readers of the table alone
            columns = {name: columns[name] for name in ("run", "part", "metric", "k", "seed", "value")}
        values = [table[name].cast(kind).to_pylist() for name, kind in columns.items()]
    except (OSError, pa.ArrowException, UnicodeDecodeError):
        raise InputError(f"{path} is damaged: it is no such Parquet table; remove it to start over.") from None
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("brackets without end") from None
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found


def _run_row(run: Run) -> dict[str, Any]:
    row = {name: value for name, value in vars(run).items() if name != "measured"}
    texts = {name: json.dumps(row[name], ensure_ascii=False) for name in ("versions", "details")}
    return {"run": run.id, **row, **texts}


def _measurement_rows(runs: Iterable[Run]) -> Iterator[dict[str, Any]]:
    for run in runs:
        where = {"run": run.id} | {name: getattr(run, name) for name in _WHERE}
        for key, values in run.measured.items():
            part, _, name = key.rpartition(" ")
            metric, _, k = name.partition("@")
            what = {"part": part or "test", "metric": metric, "k": int(k) if k else None}
            yield from (where | what | {"seed": seed, "value": value} for seed, value in enumerate(values))


def _key(row: Mapping[str, Any]) -> str:
    metric = row["metric"] if row["k"] is None else f"{row['metric']}@{row['k']}"
    return metric if row["part"] == "test" else f"{row['part']} {metric}"
