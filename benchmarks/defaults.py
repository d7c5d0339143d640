"""Defaults and searched hyperparameters of trained methods, beside each other on every test at hand.

    python benchmarks/defaults.py DATA_DIR [--tests gowalla:iid,ml-100k:shift] [--methods rns,lightgcn/softmax]
                                  [--trials 30 | --having lr=0.001,l2=0.01] [--workers 1] [--results FOLDER]

The default of a method is what `evenhand compare` trains without options: what it leaves open (L2, temperature) is
settled on validation inside the fit. The search has `--trials` trials of one seed over lr, L2 and the method's own
parameters, by NDCG@20 on the same validation part, and begins with the usual values; `--having` takes the values that
an earlier search found in its place. What each chose is trained with all seeds, fitted again to train + validation,
and test is looked at once. Every finished run is kept in `--results` (experiments `defaults` and `tuned`, unless
`--experiment` names another), and is not run again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evenhand
from evenhand.experiments.benchmark import method_named
from evenhand.experiments.results import DIGITS, Results, Run
from evenhand.experiments.suite import Test, known_suite
from evenhand.experiments.tune import ON_GPU, tune
from evenhand.metrics.catalogue import MEASURED
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions, refitted_fit
from evenhand.training.settings import resolve_device
from evenhand.utils.errors import InputError, RunError

K = 20
METHODS = "rns,pns,dns,auc-ns,softmax"
FOLDER = Path("runs/defaults")
Value = float | int | str | tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """One method on one test, with its defaults (no trials) or searched."""

    test: Test
    method: str
    trials: int
    seeds: int
    batch: int | None
    seconds: float | None
    device: str
    data_dir: str
    having: tuple[tuple[str, Value], ...] = ()
    """Hyperparameters that an earlier search found, in place of one."""
    experiment: str = ""

    def run(self, seconds: float = 0.0, **values: Any) -> Run:
        one = method_named(self.method)
        options = ["--tests", f"{self.test.set}:{self.test.test}", "--methods", self.method, "--trials", self.trials]
        if self.having:
            options += ["--having", ",".join(f"{name}={spelled(value)}" for name, value in self.having)]
        if self.experiment:
            options += ["--seeds", self.seeds, "--experiment", self.experiment]
        command = shlex.join(["python", "benchmarks/defaults.py", "data", *map(str, options)])
        used = {"versions": {"evenhand": evenhand.__version__}, "hardware": "", "details": {}} | values
        experiment = self.experiment or ("tuned" if self.trials else "defaults")
        return Run(experiment, *self.test.key, one.encoder_name, one.label, seconds, command, **used)

    def measure(self) -> Run:
        began = time.perf_counter()
        split = self.test.split(self.data_dir)
        conditions = Conditions.of(split, self.seeds, k=(10, K), device=self.device)
        asked = {"batch": self.batch, "seconds": self.seconds}
        one = method_named(self.method)
        one = one.having({name: value for name, value in asked.items() if value is not None}).under(conditions)
        details: dict[str, Any] = {"trials": self.trials, **asked}
        try:
            if self.having:
                one = one.having(dict(self.having))
                details |= {"parameters": dict(self.having)}
            elif self.trials:
                together = ON_GPU if conditions.device.type == "cuda" else "auto"
                found = tune(
                    split, one, trials=self.trials, metric=f"ndcg@{K}", device=self.device, side_by_side=together
                )
                one = found.chosen
                details |= {"parameters": dict(found.parameters), "searched": found.value}
            fit = one.fit_under(conditions)
            held = split.validation
            assert held is not None
            seen = Evaluator(held, split.train, conditions.hot_items, (K,), users_within_reach(held))
            validation = [each[K].mean("ndcg") for each in seen.evaluate(fit.scorers)]
            details |= {"epochs": list(fit.epochs), "notes": [note for note in fit.notes if "was chosen by" in note]}
            results = refitted_fit(one, fit, conditions).results[K]
        except (InputError, RunError) as problem:
            return self.run(time.perf_counter() - began, details=details | {"problem": str(problem)})
        measured = {f"{name}@{K}": [round(each.metrics[name], DIGITS) for each in results] for name in MEASURED}
        return self.run(
            round(time.perf_counter() - began, 1),
            details=details,
            hardware=f"{conditions.device.type}, {os.cpu_count()} cores",
            measured={f"validation ndcg@{K}": [round(value, DIGITS) for value in validation], **measured},
        )


def tests_named(text: str | None, data_dir: str) -> list[Test]:
    """`gowalla:shift,ml-1m` as tests of the suite that are on this machine."""
    known = [one for one in known_suite().tests if one.missing(data_dir) is None]
    if text is None:
        return known
    wanted = [part.lower().partition(":") for part in text.split(",")]
    return [
        one
        for name, _, kind in wanted
        for one in known
        if name in {one.set.lower(), one.dataset, one.folder} and kind in ("", one.test)
    ]


def number(text: str) -> Value:
    """`0.1` and `3` as numbers, `12+40+` as epochs, `sparse` as it is."""
    if "+" in text:
        return tuple(int(one) for one in text.split("+") if one)
    if text.isalpha():
        return text
    return float(text) if "." in text or "e" in text else int(text)


def spelled(value: Value) -> str:
    return "".join(f"{one}+" for one in value) if isinstance(value, tuple) else str(value)


def values(text: str) -> dict[str, Value]:
    """`lr=0.001,batch=2048` as numbers by name; epochs of milestones are `12+40+`."""
    return {name: number(value) for name, _, value in (part.partition("=") for part in text.split(",") if part)}


def show(results: Results, tests: list[Test], methods: list[str]) -> None:
    """One line per method and test that has both."""
    for test in tests:
        for text in methods:
            pair = [results.runs.get(Task(test, text, n, 1, None, None, "cpu", "").run().id) for n in (0, 1)]
            if any(one is None or not one.measured for one in pair):
                continue
            (default, best), (before, after) = (
                [one.summary(key)["mean"] for one in pair if one] for key in (f"validation ndcg@{K}", f"ndcg@{K}")
            )
            recall = [one.summary(f"recall@{K}")["mean"] for one in pair if one]
            print(
                f"{test.set + ', ' + test.test:32} {text:22} validation {default:.4f} of {best:.4f} "
                f"({default / max(best, default):.0%}); test {recall[0]:.4f} / {before:.4f}, "
                f"searched {recall[1]:.4f} / {after:.4f}"
            )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder")
    asked.add_argument("--tests", help="data:test, …; all of the suite that are here")
    asked.add_argument("--methods", default=METHODS)
    asked.add_argument("--trials", type=int, default=30)
    asked.add_argument("--having", default="", help="lr=0.001,l2=0.01: what a search found before")
    asked.add_argument("--experiment", default="", help="what to keep the runs of --having under")
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--batch", type=int)
    asked.add_argument("--seconds", type=float, help="of one training, at most")
    asked.add_argument("--workers", type=int, default=1, help="runs at once")
    asked.add_argument("--stop-after", type=float, default=float("inf"), help="seconds; unfinished runs are lost")
    asked.add_argument("--device", default="auto")
    asked.add_argument("--results", type=Path, default=FOLDER)
    given = asked.parse_args()
    began, device = time.monotonic(), str(resolve_device(given.device))
    tests, methods, having = tests_named(given.tests, given.folder), given.methods.split(","), values(given.having)
    given.results.mkdir(parents=True, exist_ok=True)
    kept = Results(given.results)
    tasks = [
        Task(
            test,
            text,
            trials,
            given.seeds,
            given.batch,
            given.seconds,
            device,
            given.folder,
            tuple(having.items()),
            given.experiment,
        )
        for test in tests
        for text in methods
        for trials in ([given.trials] if having else sorted({0, given.trials}))
    ]
    tasks = [one for one in tasks if not (known := kept.runs.get(one.run().id)) or not known.measured]
    pool = ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn"))
    waiting: set[Future[Run]] = {pool.submit(one.measure) for one in tasks}
    while waiting and (left := given.stop_after - (time.monotonic() - began)) > 0:
        done, waiting = wait(waiting, None if left == float("inf") else left, FIRST_COMPLETED)
        for one in done:
            run = one.result()
            kept.runs[run.id] = run
            what = run.details.get("problem") or f"NDCG@{K} {run.summary(f'ndcg@{K}')['mean']:.4f}"
            print(f"{time.monotonic() - began:6.0f} s: {run.id} took {run.seconds:.0f} s: {what}", flush=True)
        if done:
            kept.write()
    for process in (pool._processes or {}).values() if waiting else ():
        process.kill()
    pool.shutdown(wait=not waiting, cancel_futures=True)
    show(kept, tests, methods)


if __name__ == "__main__":
    main()
