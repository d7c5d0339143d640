"""`benchmark`: methods over a suite of tests. A cell is one method on one test; finished cells are kept.

Each cell is `compare` with one method: hyperparameters chosen on validation, fitted again to train + validation, one
look at test. It runs in a process of its own, so that its memory can be measured, and running out of it costs one cell.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

import evenhand
from evenhand.data.describe import fingerprint
from evenhand.encoders import ENCODERS
from evenhand.experiments.compare import compare
from evenhand.experiments.results import Results, Run, rounded, work_folder
from evenhand.experiments.search_space import search_space
from evenhand.experiments.suite import Test
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
TRIALS = 8
KEPT = (*MEASURED, "precision")
WITH_INTERVALS = SCOREBOARD
_LAST_WORDS = 60.0
"""Seconds that a cell has to save its work when it is asked to stop."""


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

    def run(self, **values: Any) -> Run:
        """Its record, with these values."""
        one = method_named(self.method)
        experiment = EXPERIMENT if self.device == "cpu" else f"{EXPERIMENT}-{self.device}"
        options = ["--tests", self.test.test, "--methods", self.method, "--seeds", self.seeds, "--tune", self.trials]
        words = ["evenhand", "benchmark", self.test.dataset or self.test.folder or self.test.set, *map(str, options)]
        given: dict[str, Any] = {
            "versions": {"evenhand": evenhand.__version__, "torch": str(torch.__version__)},
            "hardware": "",
            **values,
        }
        details = {"asked": self.asked(), "date": datetime.date.today().isoformat(), **given.pop("details")}
        return Run(
            experiment, self.test.set, self.test.test, one.encoder_name, one.label,
            command=shlex.join(words), details=details, **given,
        )  # fmt: skip


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
    known = recorded.runs.get(cell.run(seconds=0.0, details={}).id)
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
        work = work_folder(folder) / EXPERIMENT / _hash(cell)
        try:
            run = (_in_a_process if isolated else _measured)(cell, work)
        except KeyboardInterrupt:
            raise StoppedError(
                "stopped", f"{place} of {len(open_cells)} cells are finished and kept: run the same command to go on"
            ) from None
        with one_process(folder, wait=True):
            _keep(run, folder)
        discard(work)
        if "problem" in run.details:
            failed[cell.label] = run.details["problem"]
            on_cell(f"    failed: {run.details['problem']}")
        else:
            found = ", ".join(f"{name} {run.summary(f'{name}@{K}')['mean']:.4f}" for name in ("recall", "ndcg"))
            on_cell(f"    {found} in {run.seconds:.0f} s")
    return len(open_cells) - len(failed), failed


def measure(cell: Cell, work: Path | None = None) -> Run:
    """Run one cell here and now."""
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
    estimates = {f"{name}@{K}": estimate_metric(users, name) for name in WITH_INTERVALS}
    tuned = next(iter(result.tuned.values()), None)
    used = result.versions
    memory = {"memory_mb": round(peak_bytes() / 2**20)}
    if cell.device == "cuda":
        memory["gpu_memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return cell.run(
        seconds=round(seconds, 2),
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
        shortage = is_shortage(problem)
        why = (
            "there is not enough memory for it." if shortage else one_line(f"{type(problem).__name__}: {problem}", 300)
        )
    return cell.run(seconds=round(time.perf_counter() - began, 2), details={"problem": why})


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
            process.join(_LAST_WORDS)
        finally:  # asked twice
            process.kill()
        raise
    if found == "stopped":
        raise KeyboardInterrupt
    if found is None:
        why = f"its process ended with {process.exitcode}, as one does that the system kills for want of memory."
        return cell.run(seconds=round(time.perf_counter() - began, 2), details={"problem": why})
    return replace(cell.run(seconds=0.0, details={}), **found)


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


def _keep(run: Run, folder: Path) -> None:
    """Add a run to the tables as they are now; one that failed does not replace one that did not."""
    recorded = Results(folder)
    known = recorded.runs.get(run.id)
    if run.measured or known is None or not known.measured:
        recorded.add(run)


def _hash(cell: Cell) -> str:
    text = json.dumps([cell.label, cell.device, cell.asked(), evenhand.__version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def skipped(tests: Iterable[Test], data_dir: str | None) -> Iterator[tuple[Test, str]]:
    """Tests whose data is not on this machine, and why."""
    for test in tests:
        if (why := test.missing(data_dir)) is not None:
            yield test, why
