"""What one model of every contender costs: the results of the contest fitted again on one machine.

    python benchmarks/contest_cost.py ml-1m-paper --data-dir FOLDER

The contest ran in pieces, on several machines and beside other work, so its seconds do not compare. Here each
contender is fitted with the values its search found and one seed, alone, in a process of its own; compiling
is not counted. The result is `cost.json` beside the split's results; what it has is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import contest_splits
from contest import asked_setup, end_with_parent, fit
from contest_measures import as_text, forget_gpu_peak, hardware, memory

from evenhand.baselines.run import Challenger
from evenhand.data.splits import Split
from evenhand.experiments.setup import Setup
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device
from evenhand.utils.atomic import write_whole
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

COST = "cost.json"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("split", help=", ".join(contest_splits.SPLITS))
    parser.add_argument("--data-dir", help="folder that holds ml-100k/ and ml-1m/")
    parser.add_argument("--results", type=Path, default=Path("results/contest"))
    parser.add_argument("--device", default="auto")
    parser.set_defaults(seeds=1)
    return parser


def run(asked: argparse.Namespace) -> int:
    """How many contenders could not be measured."""
    contest_splits.load(asked.split, asked.data_dir)  # what is wrong with them is told once
    folder = asked.results / asked.split
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    found: dict[str, Any] = {}
    if (folder / COST).exists():
        found = json.loads((folder / COST).read_text(encoding="utf-8"))["contenders"]
    contenders = [document for document in documents if "contender" in document]
    if not contenders:
        raise InputError(f"{folder} holds no results of benchmarks/contest.py.")
    failed = 0
    for one in contenders:
        name, values = one["contender"], {**one["held"], **one["search"]["best"]}
        if name in found and found[name]["values"] == values:
            continue
        with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),)) as child:
            try:
                found[name] = child.submit(measured, asked, name, values).result()
            except (RuntimeError, MemoryError, BrokenProcessPool) as problem:
                failed += 1
                print(f"{name}: {one_line(str(problem) or 'not enough memory.', 300)}", file=sys.stderr)
                continue
        print(f"{name}: {found[name]['seconds']} s", flush=True)
        command = f"python benchmarks/contest_cost.py {asked.split} --data-dir FOLDER"
        document = {"format": 1, "command": command, "contenders": dict(sorted(found.items()))}
        write_whole(folder / COST, as_text(document).encode())
    return failed


def measured(asked: argparse.Namespace, contender: str, values: dict[str, Any]) -> dict[str, Any]:
    """Seconds and peak memory of one fit; runs in a process of its own."""
    split, where = contest_splits.load(asked.split, asked.data_dir), resolve_device(asked.device)
    setup = asked_setup(contender).having(values)
    compile_first(asked, setup, split)
    forget_gpu_peak(where)
    fitted = fit(split, setup, asked)
    used = versions(where)
    return {
        "values": values,
        "seconds": round(fitted.seconds, 2),
        "epochs": max((line["epoch"] for line in fitted.history), default=0),
        "memory": memory(where),
        "hardware": hardware(used),
        "torch": used["torch"],
    }


def compile_first(asked: argparse.Namespace, setup: Setup, split: Split) -> None:
    """One epoch, or for what knows no epochs a fit of the small demo data."""
    if isinstance(setup.entrant, Challenger):
        fit(contest_splits.load("demo", None), setup, asked)
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
