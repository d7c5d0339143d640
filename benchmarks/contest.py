"""One method on one split, tuned on validation and evaluated once on test; see docs/beyond.md.

    python benchmarks/contest.py ml-100k-random-0 mf/auc-ns --data-dir FOLDER --trials 16 --seeds 5

A method is trained on an encoder (`mf/auc-ns`, `lightgcn/dns`) or needs none (`ease`, `blend`). Every search has
the same number of trials; it runs in a process of its own, so that the peak memory on record is that of the
final fit. What is finished is not done again, and a search that was cut off goes on.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import contest_splits
from contest_compare import CONTEST, compare, involves
from contest_measures import KS, alone_in, forget_gpu_peak, hardware, memory, on_test, on_validation, peak_mb

from evenhand.data.describe import fingerprint
from evenhand.data.splits import Split
from evenhand.encoders import ENCODERS
from evenhand.experiments.results import Results, Run, check_writable, work_folder
from evenhand.experiments.search_space import search_space
from evenhand.experiments.tune import tune
from evenhand.methods import parse
from evenhand.paper.claims import store
from evenhand.training.method import Fit, Method
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device
from evenhand.utils.errors import InputError, RunError, unknown
from evenhand.utils.text import one_line

HELD = ("batch", "epochs", "eval_users", "layers", "dim")
"""Options that hold a trained method's parameter at a value; baselines have none of them."""


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("split", help=", ".join(contest_splits.SPLITS))
    parser.add_argument("method", help="mf/auc-ns, lightgcn/dns, ease, blend:parts=ease+als, …")
    parser.add_argument("--data-dir", help="folder that holds ml-100k/ and ml-1m/")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=5)
    for name in HELD:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    parser.add_argument("--side-by-side", type=int, help="trials of a trained method that run at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--search-seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="replace what is recorded of this method")
    return parser


def safe_name(method: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[/:=+]", "_", method)


def asked_setup(name: str) -> Method:
    """`encoder/method` is trained; what has no encoder is a baseline."""
    encoder, slash, method = name.partition("/")
    if slash and encoder not in ENCODERS:
        raise unknown("encoder", encoder, ENCODERS)
    setup = parse(method, encoder) if slash else parse(name)
    if (setup.encoder_name is None) == bool(slash):
        raise InputError(f"'{name}': a method is written encoder/method, and a baseline by its name alone.")
    return setup


def held_values(setup: Method, asked: argparse.Namespace) -> dict[str, Any]:
    known = () if setup.encoder_name is None else setup.parameters()
    return {name: getattr(asked, name) for name in HELD if name in known and getattr(asked, name) is not None}


def search(asked: argparse.Namespace, storage: Path) -> dict[str, Any]:
    """What tuning found, as plain values; runs in a process of its own."""
    setup = asked_setup(asked.method)
    began = time.perf_counter()
    found = tune(
        contest_splits.load(asked.split, asked.data_dir),
        setup,
        trials=asked.trials,
        fixed=held_values(setup, asked),
        storage=storage,
        seed=asked.search_seed,
        device=asked.device,
        side_by_side=(asked.side_by_side or "auto") if setup.side_by_side else "auto",
    )
    return {
        "trials": len(found.trials),
        "seed": asked.search_seed,
        "metric": f"{found.metric} on validation",
        "space": {name: str(span) for name, span in found.space.items()},
        "best": dict(found.parameters),
        "best_value": found.value,
        "default_value": None if found.trials[0].problem else found.trials[0].value,
        "seconds": round(sum(trial.seconds for trial in found.trials), 1),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "tried": [
            [None if trial.problem else trial.value, *(trial.parameters.get(name) for name in found.space)]
            for trial in found.trials
        ],
    }


def end_with_parent(parent: int) -> None:
    """A search whose contest was killed must not go on and keep the machine busy."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def tuned(asked: argparse.Namespace, storage: Path) -> dict[str, Any]:
    """The search of a method that has something to search for, and else why there is none."""
    setup = asked_setup(asked.method)
    if not search_space(setup, held_values(setup, asked)):
        settles = setup.name == "blend"
        why = "it settles its numbers itself, inside each fit" if settles else "it has no parameters"
        return {"trials": 0, "why": why, "best": {}, "seconds": 0.0}
    with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent, (os.getpid(),)) as child:
        try:
            return child.submit(search, asked, storage).result()
        except BrokenProcessPool:
            raise RunError("the search was killed, most likely for want of memory.") from None


def fit(split: Split, setup: Method, asked: argparse.Namespace) -> Fit:
    return setup.fit(split, seeds=asked.seeds, k=KS, device=asked.device)


def run(asked: argparse.Namespace) -> bool:
    """False where the method was finished already."""
    check_writable(asked.out)
    setup, where = asked_setup(asked.method), resolve_device(asked.device)
    dataset, split_name = contest_splits.dataset_and_split(asked.split)
    encoder, slash, method = asked.method.partition("/")
    name = Run(CONTEST, dataset, split_name, *((encoder, method) if slash else (None, asked.method)), 0, "", "", {}, {})
    if name.id in Results(asked.out).runs and not asked.again:
        return False
    split = contest_splits.load(asked.split, asked.data_dir)
    work = work_folder(asked.out) / asked.split
    work.mkdir(exist_ok=True)
    storage = work / f"{safe_name(asked.method)}.trials"
    found = tuned(asked, storage)
    held = held_values(setup, asked)
    setup = setup.having({**held, **found["best"]})
    before = peak_mb()
    forget_gpu_peak(where)
    fitted = fit(split, setup, asked)
    used = versions(where)
    sizes = {"users": split.n_users, "items": split.n_items}
    finished = replace(
        name,
        seconds=round(fitted.seconds, 2),
        command=command(asked),
        hardware=hardware(used),
        versions=used,
        details={
            "method": setup.text({**found["best"], **held}),
            "flags": setup.flags({**found["best"], **held}),
            "data": {part: fingerprint(pairs) for part, pairs in split.parts().items()},
            "held": held,
            "settled": [one.info["settled"] for one in (fitted.per_seed or [fitted.model]) if "settled" in one.info],
            "notes": list(dict.fromkeys(fitted.notes)),
            "split": {"description": split.description, **sizes, **{n: len(p) for n, p in split.parts().items()}},
            "search": found,
        },
        measured={
            "validation ndcg@10": on_validation(fitted, split),
            **({"epoch": list(fitted.epochs)} if fitted.epochs else {}),
            **on_test(fitted),
            **{name: [value] for name, value in ({**memory(where), "before_fit_mb": before}).items()},
        },
    )
    store(work, asked.method, {k: [one.users for one in each] for k, each in fitted.results.items()})
    with alone_in(asked.out):
        results = Results(asked.out)
        results.comparisons = [one for one in results.comparisons if not involves(one, name)]
        results.add(finished)
        compare(results)
    storage.unlink(missing_ok=True)
    return True


def command(asked: argparse.Namespace) -> str:
    """What to type to have this again, with the reader's own folder."""
    usual = options().parse_args([asked.split, asked.method])
    words = [f"python benchmarks/contest.py {asked.split} {asked.method} --data-dir FOLDER"]
    for name, value in vars(asked).items():
        always = name in ("trials", "seeds")
        if name not in ("data_dir", "out", "again") and (always or value != getattr(usual, name)):
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(words)


def main(words: list[str] | None = None) -> int:
    asked = options().parse_args(words)
    what = f"{asked.method} on {asked.split}"
    try:
        began = time.perf_counter()
        done = run(asked)
    except (InputError, RuntimeError, MemoryError, OSError) as problem:
        print(f"{what}: {one_line(str(problem) or 'not enough memory.', 300)}", file=sys.stderr)
        return 1
    took = f"done in {time.perf_counter() - began:.0f} s" if done else "is there already"
    print(f"{what}: {took}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
