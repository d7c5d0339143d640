"""Results made up so that the answer is known, in the shape of `evenhand reproduce --json` and as a folder."""

from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.experiments.results import Comparison, Document, Results, Run
from evenhand.metrics.statistics import summarise
from evenhand.paper.experiment import Experiment
from evenhand.paper.reproduce import METRICS

SPREAD = np.array([-0.001, 0.0, 0.0, 0.001])


def entry(**means: float) -> Any:
    """A row with four seeds around these means; `precision_at_5=0.4`. Metrics not given are 0.5."""
    given = {name.replace("_at_", "@"): mean for name, mean in means.items()}
    keys = [*(f"{name}@{k}" for k in (5, 10, 20) for name in METRICS), "mse", "hot_share", "false_share"]
    metrics = {key: summarise(given.get(key, 0.5) + SPREAD).to_json() for key in keys}
    return {
        "metrics": metrics,
        "training": {"batch": 128, "lr": 0.1, "milestones": [20], "weight_decay": 1e-4, "epochs": 9},
        "source": "made up",
        "command": "evenhand reproduce overall --dataset made-up --methods one --seeds 4",
        "chosen_epochs": [1, 7],
        "seconds": 1.5,
        "hardware": "none",
        "versions": {"evenhand": eh.__version__},
    }


def document(
    part: str, entries: dict[str, Any], over_users: list[dict[str, Any]] | None = None, **how: Any
) -> Document:
    identity = Experiment(part, seeds=4, **how).identity() | {"split": "made up", "data": {}}
    return {
        "format": 1,
        "evenhand": eh.__version__,
        "identity": identity,
        "entries": entries,
        "over_users": over_users or [],
    }


def interval(name: str, metric: str, low: float, high: float) -> dict[str, Any]:
    difference = (low + high) / 2
    return {"name": name, "k": 5, "metric": metric, "difference": difference, "low": low, "high": high}


def write_document(folder: Path, made: Document) -> None:
    """The tables that `evenhand reproduce` would have written."""
    what = made["identity"]
    name = "-".join(what[key] for key in ("part", "dataset", "encoder", "protocol", "settings"))
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder)
    columns = ("seconds", "command", "hardware", "versions")
    for label, entry in made["entries"].items():
        details = {key: value for key, value in entry.items() if key not in (*columns, "metrics", "chosen_epochs")}
        measured = {key: found["values"] for key, found in entry["metrics"].items()}
        where = (name, what["dataset"], "paper", what["encoder"] if "training" in entry else None, label)
        found = {key: entry[key] for key in columns} | {"details": {"identity": what, **details}}
        run = Run(*where, **found, measured={"epoch": entry["chosen_epochs"], **measured})
        results.runs[run.id] = run
    for line in made["over_users"]:
        where = (name, what["dataset"], "paper", what["encoder"], "auc-ns", line["name"], "users", line["metric"])
        results.comparisons.append(
            Comparison(*where, line["k"], line["difference"], line["low"], line["high"], line.get("p", 0.5))
        )
    results.write()
