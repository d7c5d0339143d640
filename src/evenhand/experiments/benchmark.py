"""`benchmark`: methods over a suite of tests, and the scoreboard that comes of it, as one JSON document.

Each cell, one method on one test, is a `compare` in a process of its own: so its memory can be measured, and running
out of it costs one cell.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import multiprocessing
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

import evenhand
from evenhand.data.describe import fingerprint
from evenhand.encoders import ENCODERS
from evenhand.experiments.compare import compare
from evenhand.experiments.results import Results, Run, as_written, rounded, work_folder
from evenhand.experiments.search_space import search_space
from evenhand.experiments.suite import QUESTIONS, Published, Suite, Test
from evenhand.methods import parse
from evenhand.metrics.catalogue import MEASURED, SCOREBOARD
from evenhand.metrics.statistics import estimate_metric
from evenhand.training.checkpoints import discard
from evenhand.training.method import Method
from evenhand.utils import progress, stopping
from evenhand.utils.atomic import one_process
from evenhand.utils.errors import InputError, RunError, StoppedError
from evenhand.utils.memory import is_shortage, peak_bytes
from evenhand.utils.text import one_line

EXPERIMENT = "scoreboard"
K, KS = 20, (5, 10, 20)
METHODS = ("popular", "itemknn", "ease", "als", "gfcf", "softmax", "dns", "auc-ns", "lightgcn/dns", "recipe")
KEPT = (*MEASURED, "precision")


@dataclass(frozen=True)
class Cell:
    """A method on a test."""

    test: Test
    method: str
    """Its text; `lightgcn/dns` names the encoder too."""
    seeds: int
    trials: int
    device: str
    """cpu or cuda"""
    data_dir: str | None = None

    @property
    def label(self) -> str:
        return f"{self.test.set}, {self.test.test}: {self.method}"

    def asked(self) -> dict[str, Any]:
        """What a recorded run must agree on to count as this cell."""
        one = method_named(self.method)
        trials = self.trials if search_space(one, {}) else 0
        return {"test": self.test.identity(), "seeds": self.seeds if one.seeded else 1, "trials": trials}

    def run(self, seconds: float = 0.0, details: Mapping[str, Any] | None = None, **measured: Any) -> Run:
        one = method_named(self.method)
        experiment = EXPERIMENT if self.device == "cpu" else f"{EXPERIMENT}-{self.device}"
        options = ["--tests", self.test.test, "--methods", self.method, "--seeds", self.seeds, "--tune", self.trials]
        words = ["evenhand", "benchmark", self.test.dataset or self.test.folder or self.test.set, *map(str, options)]
        versions = {"evenhand": evenhand.__version__, "torch": str(torch.__version__)}
        made = {"asked": self.asked(), "date": datetime.date.today().isoformat(), **(details or {})}
        given = {"hardware": "", "versions": versions, **measured, "details": made, "command": shlex.join(words)}
        where = (experiment, self.test.set, self.test.test, one.encoder_name, one.label)
        return Run(*where, round(seconds, 2), **given)

    def failed(self, began: float, why: str) -> Run:
        return self.run(time.perf_counter() - began, {"problem": why})


def method_named(text: str) -> Method:
    """A method's text, which may begin with an encoder.

    >>> method_named("lightgcn/dns:candidates=3").encoder_name, method_named("ease").encoder_name
    ('lightgcn', None)
    """
    encoder, slash, rest = text.strip().partition("/")
    if not slash or encoder not in ENCODERS:
        return parse(text)
    found = parse(rest, encoder)
    if found.encoder_name is None:
        raise InputError(f"'{text}': {found.label} is not trained, so it has no encoder.")
    return found


def cells_of(
    tests: Iterable[Test], methods: Sequence[str], seeds: int, trials: int, device: str, data_dir: str | None
) -> list[Cell]:
    """Every method on every test; what is wrong with a method is said here."""
    names = [text.strip() for text in methods if text.strip()]
    if not names or len(set(names)) != len(names):
        raise InputError("name one or more methods, each once.")
    for name in names:
        method_named(name)
    if trials < 0:
        raise InputError(f"--tune takes a number of trials, not {trials}.")
    return [Cell(test, name, seeds, trials, device, data_dir) for test in tests for name in names]


def is_finished(cell: Cell, recorded: Results) -> bool:
    """Whether the results hold this cell, measured as it is asked for now."""
    known = recorded.runs.get(cell.run().id)
    return known is not None and bool(known.measured) and known.details.get("asked") == cell.asked()


def run_benchmark(
    cells: Sequence[Cell],
    folder: Path,
    *,
    force: bool = False,
    isolated: bool = True,
    on_cell: Callable[[str], None] = lambda line: None,
) -> tuple[int, dict[str, str]]:
    """Run the cells that are not finished, and keep each in `folder` when it is: (how many were, what failed and why).

    An interrupted cell goes on where it stopped. `on_cell` is called with a line before and after each cell.
    """
    recorded = Results(folder)
    open_cells = [cell for cell in cells if force or not is_finished(cell, recorded)]
    on_cell(f"{len(cells)} cells, {len(cells) - len(open_cells)} of them finished before")
    failed: dict[str, str] = {}
    for place, cell in enumerate(open_cells):
        on_cell(f"[{place + 1} of {len(open_cells)}] {cell.label} …")
        identity = json.dumps([cell.label, cell.device, cell.asked(), evenhand.__version__], sort_keys=True)
        work = work_folder(folder) / EXPERIMENT / hashlib.sha256(identity.encode()).hexdigest()[:16]
        try:
            run = (_in_a_process if isolated else _measured)(cell, work)
        except KeyboardInterrupt:
            raise StoppedError(
                "stopped", f"{place} of {len(open_cells)} cells are finished and kept: run the same command to go on"
            ) from None
        with one_process(folder, wait=True):
            recorded = Results(folder)  # as it is now
            known = recorded.runs.get(run.id)
            if run.measured or known is None or not known.measured:  # a failure replaces no result
                recorded.add(run)
        discard(work)
        if "problem" in run.details:
            failed[cell.label] = run.details["problem"]
            on_cell(f"    failed: {run.details['problem']}")
        else:
            found = ", ".join(f"{name} {run.summary(f'{name}@{K}')['mean']:.4f}" for name in ("recall", "ndcg"))
            on_cell(f"    {found} in {run.seconds:.0f} s")
    return len(open_cells) - len(failed), failed


def measure(cell: Cell, work: Path | None = None) -> Run:
    split = cell.test.split(cell.data_dir)
    resumed = work is not None and work.exists()
    worked, began = time.process_time(), time.perf_counter()
    if cell.device == "cuda":
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()
    one = method_named(cell.method)
    result = compare(
        split, [one], seeds=cell.seeds, k=KS, device=cell.device, refit=True, tune=cell.trials,
        progress=True, checkpoints=work, resume=True,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    fit = result[result.methods[0].label]
    users = [each.users for each in fit.results[K]]
    estimates = {f"{name}@{K}": estimate_metric(users, name) for name in SCOREBOARD}
    tuned = next(iter(result.tuned.values()), None)
    used = result.versions
    memory = {"memory_mb": round(peak_bytes() / 2**20)}
    if cell.device == "cuda":
        memory["gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return cell.run(
        seconds,
        versions=used,
        hardware=f"{used['device']}, {os.cpu_count()} cores, {used['threads']} threads",
        details={
            "split": split.description,
            "pairs": {name: len(part) for name, part in split.parts().items()},
            "fingerprint": {name: fingerprint(part) for name, part in split.parts().items()},
            "notes": list(result.notes),
            "cpu_seconds": round(time.process_time() - worked, 1),
            "fit_seconds": round(fit.seconds, 2),
            "resumed": resumed,
            **memory,
            "intervals": {key: rounded((found.low, found.high)) for key, found in estimates.items()},
            "parameters": {} if tuned is None else dict(tuned.parameters),
            "tried": fit.model.info.get("tried", []),
        },
        measured={
            **{f"{name}@{k}": rounded([each.metrics[name] for each in fit.results[k]]) for k in KS for name in KEPT},
            **({} if fit.validation is None else {"validation ndcg@10": rounded(fit.validation)}),
        },
    )


def _measured(cell: Cell, work: Path | None) -> Run:
    """The cell's record, also where something goes wrong."""
    began = time.perf_counter()
    try:
        return measure(cell, work)
    except StoppedError:
        raise KeyboardInterrupt from None
    except (InputError, RunError) as problem:
        why = one_line(problem, 300)
    except Exception as problem:
        why = one_line(f"{type(problem).__name__}: {problem}", 300)
        why = "there is not enough memory for it." if is_shortage(problem) else why
    return cell.failed(began, why)


def _in_a_process(cell: Cell, work: Path) -> Run:
    """The same in a process of its own, which may be killed."""
    kind = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(kind)
    if kind == "forkserver":
        context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(cell, work, there, progress.is_quiet()))
    began = time.perf_counter()
    process.start()
    there.close()
    try:
        try:
            found = here.recv()
        except EOFError:
            found = None
        process.join()
    except KeyboardInterrupt:
        process.terminate()
        try:
            process.join(60)  # seconds to save its work
        finally:  # asked twice
            process.kill()
        raise
    if found == "stopped":
        raise KeyboardInterrupt
    if found is None:
        why = f"its process ended with {process.exitcode}, as one does that the system kills for want of memory."
        return cell.failed(began, why)
    return Run(**found)


def _work(cell: Cell, work: Path, connection: Connection, quiet: bool) -> None:
    """What the process does; Ctrl-C reaches it through its parent alone, so that it is stopped once."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    stopping.end_on_sigterm()
    progress.quiet(quiet)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        connection.send(vars(_measured(cell, work)))
    except KeyboardInterrupt:
        with suppress(OSError):  # nobody waits for it any more
            connection.send("stopped")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def scoreboard(
    results: Results,
    suite: Suite,
    skipped: Mapping[tuple[str, str], str] | None = None,
    only: Iterable[Test] | None = None,
) -> dict[str, Any]:
    """What was measured on each test beside what is published for it, as `scoreboard.schema.json` describes it.

    That is everything that is recorded, in the order of the suite, then other logs; `only` keeps these tests alone.
    """
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
    return {"evenhand_scoreboard": 1, "k": K, "tests": tests, "sources": sources}


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
        "intervals": {name: intervals[f"{name}@{K}"] for name in SCOREBOARD if f"{name}@{K}" in intervals},
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


def _published(one: Published, test: Test, suite: Suite) -> dict[str, Any]:
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
