"""The scoreboard: what was measured on each test beside what is published for it, as one JSON document.

`scoreboard.schema.json` describes the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evenhand.experiments.benchmark import EXPERIMENT, WITH_INTERVALS, K
from evenhand.experiments.results import Results, Run, as_written
from evenhand.experiments.suite import QUESTIONS, Suite, Test
from evenhand.metrics.catalogue import MEASURED

SCHEMA = Path(__file__).with_name("scoreboard.schema.json")
FORMAT = 1


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return found


def scoreboard(
    results: Results,
    suite: Suite,
    skipped: Mapping[tuple[str, str], str] | None = None,
    only: Iterable[Test] | None = None,
) -> dict[str, Any]:
    """Everything that is recorded, in the order of the suite, then other logs; `only` keeps these tests alone."""
    with as_written(results.folder):
        runs: dict[tuple[str, str], list[Run]] = {}
        for run in results.runs.values():
            if run.experiment.partition("-")[0] == EXPERIMENT:
                runs.setdefault((run.dataset, run.split), []).append(run)
        known = {test.key: test for test in suite.tests}
        keys = [*known, *(key for key in runs if key not in known)]
        if only is not None:
            wanted = {test.key for test in only}
            keys = [key for key in keys if key in wanted]
        tests = [_test(key, known.get(key), runs.get(key, []), suite, (skipped or {}).get(key)) for key in keys]
    sources = {name: vars(one) for name, one in suite.sources.items()}
    return {"evenhand_scoreboard": FORMAT, "k": K, "tests": tests, "sources": sources}


def _test(
    key: tuple[str, str], test: Test | None, runs: Iterable[Run], suite: Suite, skipped: str | None
) -> dict[str, Any]:
    rows = [_row(run) for run in runs]
    measured = [row for row in rows if row["status"] == "measured"]
    rows.sort(key=lambda row: -row["metrics"]["ndcg"]["mean"] if row["status"] == "measured" else 1.0)
    published = [] if test is None else [_published(one, test, suite) for one in test.published]
    # Chosen as a user would choose: on validation, where everything has it.
    choice = max(measured, key=lambda row: row["validation_ndcg"] or 0.0, default=None)
    best = max((one for one in published if one["ndcg"] is not None), key=lambda one: one["ndcg"], default=None)
    return {
        "set": key[0],
        "test": key[1],
        "question": QUESTIONS.get(key[1], key[1]),
        "note": "" if test is None else test.note,
        "split": next((row["split"] for row in measured), None),
        "skipped": skipped,
        "choice": None if choice is None else choice["name"],
        "best_published": None if best is None else best["method"],
        "rows": rows,
        "published": published,
    }


def _row(run: Run) -> dict[str, Any]:
    details, known = run.details, bool(run.measured)
    on_gpu = run.experiment != EXPERIMENT
    intervals = details.get("intervals", {})
    return {
        "name": "/".join(filter(None, (run.encoder, run.method))) + (" (GPU)" if on_gpu else ""),
        "method": run.method,
        "encoder": run.encoder,
        "status": "measured" if known else "failed",
        "problem": details.get("problem"),
        "metrics": {name: run.summary(f"{name}@{K}") for name in MEASURED if f"{name}@{K}" in run.measured},
        "intervals": {name: intervals[f"{name}@{K}"] for name in WITH_INTERVALS if f"{name}@{K}" in intervals},
        "validation_ndcg": run.summary("validation ndcg@10")["mean"] if "validation ndcg@10" in run.measured else None,
        "seconds": run.seconds,
        "cpu_seconds": details.get("cpu_seconds"),
        "memory_mb": details.get("memory_mb"),
        "gpu_memory_mb": details.get("gpu_memory_mb"),
        "seeds": details["asked"]["seeds"],
        "trials": details["asked"]["trials"],
        "parameters": details.get("parameters", {}),
        "split": details.get("split"),
        "notes": details.get("notes", []),
        "hardware": run.hardware,
        "date": details["date"],
        "command": run.command,
        "versions": dict(run.versions),
    }


def _published(one: Any, test: Test, suite: Suite) -> dict[str, Any]:
    def comparable(value: float | None) -> float | None:
        return None if value is None else round(value / test.divide_by, 4)

    return {
        "method": one.method,
        "recall": comparable(one.recall),
        "ndcg": comparable(one.ndcg),
        "printed": {"recall": one.recall, "ndcg": one.ndcg},
        "source": one.source,
        "chosen_on": suite.sources[one.source].chosen_on,
    }
