"""Validation NDCG@20 of methods over a grid of hyperparameters; test parts are not looked at.

    python benchmarks/grid.py DATA_DIR --tests gowalla:iid,ml-100k:shift --methods rns,softmax:temperature=0.1
                              --grid lr=0.001,0.002 l2=0.001,0.01 [--having batch=2048,seconds=90] [--workers 1]

Points of one method on one test that differ in rates and L2 alone are trained side by side, with one seed. Each is
printed with its share of the best of its group; `--out` keeps them, one JSON document a line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Hashable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from defaults import K, number, tests_named, values

from evenhand.experiments.benchmark import method_named
from evenhand.experiments.suite import Test
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions

Values = dict[str, Any]


def measure(test: Test, method: str, points: list[Values], having: Values, device: str, data_dir: str) -> Values:
    """Every point's validation NDCG@20 and epoch."""
    began = time.perf_counter()
    split = test.split(data_dir)
    held = split.validation
    assert held is not None
    split = replace(split, test=split.test.take(np.zeros(len(split.test), dtype=bool)))
    conditions = Conditions.of(split, 1, k=(K,), device=device)
    one = method_named(method).having(having).under(conditions).closed()
    several = [one.having(point) for point in points]
    fits = several[0].fit_together(several, conditions)
    seen = Evaluator(held, split.train, conditions.hot_items, (K,), users_within_reach(held))
    ndcg = [seen.evaluate(fit.scorers)[0][K].mean("ndcg") for fit in fits]
    found = [
        p | {"ndcg": each, "epoch": (fit.epochs or (0,))[0]} for p, each, fit in zip(points, ndcg, fits, strict=True)
    ]
    what = {"test": f"{test.set}, {test.test}", "method": method, **having}
    return what | {"points": found, "seconds": round(time.perf_counter() - began, 1)}


def alike(method: str, points: list[Values]) -> list[list[Values]]:
    """The points, those together that can be trained side by side."""
    groups: dict[Hashable, list[Values]] = {}
    for point in points:
        shape = method_named(method).having(point).shape()
        groups.setdefault(len(groups) if shape is None else shape, []).append(point)
    return list(groups.values())


def show(done: Values) -> None:
    best = max(point["ndcg"] for point in done["points"])
    print(f"{done['test']}: {done['method']} in {done['seconds']} s, best {best:.4f}", flush=True)
    for point in done["points"]:
        print(
            "  "
            + ", ".join(
                f"{name} {value if isinstance(value, tuple) else format(value, 'g')}" for name, value in point.items()
            )
            + f": {point['ndcg'] / best:.2f}"
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder")
    asked.add_argument("--tests", help="data:test, …; all of the suite that are here")
    asked.add_argument("--methods", default="rns,dns,auc-ns,softmax")
    asked.add_argument("--grid", nargs="*", default=["lr=0.0005,0.001,0.002", "l2=0.001,0.01,0.08"])
    asked.add_argument("--having", default="", help="batch=2048,seconds=90: the same for every point")
    asked.add_argument("--workers", type=int, default=1, help="groups at once")
    asked.add_argument("--device", default="auto")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    parts = (axis.partition("=") for axis in given.grid)
    axes = {name: [number(one) for one in several.split(",")] for name, _, several in parts}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    having = values(given.having)
    jobs = [
        (test, method, group)
        for test in tests_named(given.tests, given.folder)
        for method in given.methods.split(",")
        for group in alike(method, points)
    ]
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(measure, *job, having, given.device, given.folder) for job in jobs]
        for one in as_completed(running):
            show(one.result())
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(one.result()) + "\n")


if __name__ == "__main__":
    main()
