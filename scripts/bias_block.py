"""The block of docs/claims.md on AUC-NS and popularity bias, from the recorded cells of `evenhand benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_text import short, spread, table

from evenhand.experiments.benchmark import EXPERIMENT
from evenhand.experiments.results import Results, Run

TESTS = {
    ("Coat", "exposure"): "Coat, random exposure",
    ("demo", "exposure"): "`demo`, random exposure",
    ("MovieLens-100K", "shift"): "ML-100K, popularity shift",
    ("MovieLens-1M", "shift"): "ML-1M, popularity shift",
    ("Amazon-Electronic", "shift"): "Amazon-Electronic, popularity shift",
}
METHODS = ("rns", "pns", "dns", "auc-ns", "ease", "gfcf", "itemknn", "popular")
"""Trained with MF, then those that are not trained."""


def blocks(results: Path) -> dict[str, dict[str, str]]:
    """A page → the name of a block → its text."""
    found = [run for run in Results(results).runs.values() if run.experiment == EXPERIMENT]
    runs = {(run.dataset, run.split, run.method): run for run in found if run.encoder in (None, "mf")}
    rows = [
        [title, f"`{method}`", *_cells(run)]
        for (data, test), title in TESTS.items()
        for method in METHODS
        if (run := runs.get((data, test, method))) is not None and run.measured
    ]
    heads = ["data", "method", "trials", "NDCG@20", "exposure gap@20", "coverage@20"]
    return {"docs/claims.md": {"bias": table(heads, rows)}}


def _cells(run: Run) -> list[str]:
    intervals: dict[str, Any] = run.details["intervals"]

    def measured(key: str) -> str:
        low, high = intervals[key]
        return f"{spread(run.summary(key))} [{short(low)}, {short(high)}]"

    trials = str(run.details["asked"]["trials"] or "–")
    return [trials, measured("ndcg@20"), measured("exposure_gap@20"), short(run.summary("coverage@20")["mean"])]
