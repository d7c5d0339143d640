"""What one model of every method costs: the results of the contest fitted again on one machine.

    python benchmarks/contest_cost.py ml-1m-paper --data-dir FOLDER

The contest ran in pieces, on several machines and beside other work, so its seconds do not compare. Here each
method is fitted with the values its search found and one seed, alone, in a process of its own; compiling
is not counted. What is there with the same values is not measured again.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import contest_splits
from contest import asked_setup, end_with_parent, fit
from contest_compare import CONTEST, label
from contest_measures import alone_in, forget_gpu_peak, hardware, memory

from evenhand.data.splits import Split
from evenhand.experiments.results import Results, Run
from evenhand.training.method import Method
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

COST = "contest-cost"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("split", help=", ".join(contest_splits.SPLITS))
    parser.add_argument("--data-dir", help="folder that holds ml-100k/ and ml-1m/")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--device", default="auto")
    parser.set_defaults(seeds=1)
    return parser


def run(asked: argparse.Namespace) -> int:
    """How many methods could not be measured."""
    contest_splits.load(asked.split, asked.data_dir)  # what is wrong with them is told once
    dataset, split = contest_splits.dataset_and_split(asked.split)
    runs = Results(asked.results).runs.values()
    here = [run for run in runs if (run.dataset, run.split) == (dataset, split)]
    found = {label(run): run.details["values"] for run in here if run.experiment == COST}
    entered = [run for run in here if run.experiment == CONTEST]
    if not entered:
        raise InputError(f"{asked.results} holds no results of benchmarks/contest.py for {asked.split}.")
    failed = 0
    for run in entered:
        name, values = label(run), {**run.details["held"], **run.details["search"]["best"]}
        if found.get(name) == values:
            continue
        with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),)) as child:
            try:
                cost: dict[str, Any] = child.submit(measured, asked, name, values).result()
            except (RuntimeError, MemoryError, BrokenProcessPool) as problem:
                failed += 1
                print(f"{name}: {one_line(str(problem) or 'not enough memory.', 300)}", file=sys.stderr)
                continue
        print(f"{name}: {cost['seconds']} s", flush=True)
        command = f"python benchmarks/contest_cost.py {asked.split} --data-dir FOLDER"
        where = (COST, dataset, split, run.encoder, run.method)
        with alone_in(asked.results):
            Results(asked.results).add(Run(*where, command=command, details={"values": values}, **cost))
    return failed


def measured(asked: argparse.Namespace, method: str, values: dict[str, Any]) -> dict[str, Any]:
    """Seconds and peak memory of one fit; runs in a process of its own."""
    split, where = contest_splits.load(asked.split, asked.data_dir), resolve_device(asked.device)
    setup = asked_setup(method).having(values)
    compile_first(asked, setup, split)
    forget_gpu_peak(where)
    fitted = fit(split, setup, asked)
    used = versions(where)
    epochs = max((line["epoch"] for line in fitted.history), default=0)
    return {
        "seconds": round(fitted.seconds, 2),
        "hardware": hardware(used),
        "versions": used,
        "measured": {name: [value] for name, value in {**memory(where), "epoch": epochs}.items()},
    }


def compile_first(asked: argparse.Namespace, setup: Method, split: Split) -> None:
    """One epoch, or for what knows no epochs a fit of the small demo data."""
    if setup.encoder_name is None:
        fit(contest_splits.load("demo-random", None), setup, asked)
    else:
        fit(split, setup.having({"epochs": 1}), asked)


def main(words: list[str] | None = None) -> int:
    try:
        return min(run(options().parse_args(words)), 1)
    except (InputError, OSError) as problem:
        print(one_line(str(problem), 300), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
