"""Validation NDCG@20 of methods over a grid of hyperparameters; test parts are not looked at.

    python benchmarks/grid.py DATA_DIR --tests gowalla:iid,ml-100k:shift --methods rns,softmax:temperature=0.1
                              --grid lr=0.001,0.002 l2=0.001,0.01 [--having batch=2048,seconds=90] [--workers 1]
    python benchmarks/grid.py DATA_DIR --random 30      # how far the defaults are from the best of a search
    python benchmarks/grid.py DATA_DIR --random 0 --having lr=0.003       # the defaults alone, with another rate

`pull=3,5,10` in a grid is a weight decay of 3, 5 and 10 over twice the pairs (`Encoder.pulls_tried`). Points of one
method on one test that differ in rates and L2 alone are trained side by side, with one seed or `--seeds`. Each is
printed with its share of the best of its test and method; `--out` keeps them, one JSON document a line. `--random`
draws the points from the ranges of `evenhand tune`, what cannot differ side by side once for every four of them (the
first four have the method's own values there), and trains the default as well, which settles what it leaves open.
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
from evenhand.experiments.search_space import Choice, Range, search_space
from evenhand.experiments.suite import Test
from evenhand.metrics.statistics import summarise
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions

Values = dict[str, Any]
TOGETHER = 4
"""Points of a random search that are trained side by side."""


def measure(
    test: Test, method: str, points: list[Values], having: Values, seeds: int, device: str, data_dir: str
) -> Values:
    """Every point's validation NDCG@20 and epoch; without any, those of the default."""
    began = time.perf_counter()
    split = test.split(data_dir)
    held = split.validation
    assert held is not None
    split = replace(split, test=split.test.take(np.zeros(len(split.test), dtype=bool)))
    conditions = Conditions.of(split, seeds, k=(K,), device=device)
    one = method_named(method).having(having).under(conditions)
    several = [one.closed().having(decayed(point, len(split.train))) for point in points]
    fits = several[0].fit_together(several, conditions) if several else [one.fit_under(conditions)]
    seen = Evaluator(held, split.train, conditions.hot_items, (K,), users_within_reach(held))
    ndcg = [summarise([each[K].mean("ndcg") for each in seen.evaluate(fit.scorers)]) for fit in fits]
    found = [
        p | {"ndcg": each.mean, "epoch": (fit.epochs or (0,))[0]} | ({"std": each.std} if seeds > 1 else {})
        for p, each, fit in zip(points or [{}], ndcg, fits, strict=True)
    ]
    what = {"test": f"{test.set}, {test.test}", "method": method, **having}
    return what | {"points": found, "seconds": round(time.perf_counter() - began, 1)}


def decayed(point: Values, pairs: int) -> Values:
    """A pull as the weight decay that it stands for."""
    others = {name: value for name, value in point.items() if name != "pull"}
    return others | ({"weight_decay": point["pull"] / (2 * pairs)} if "pull" in point else {})


def drawn(method: str, n: int) -> list[Values]:
    """Points of the space that a search of the method looks at: every four share what cannot differ side by side,
    and the first four have the method's own values there."""
    one, chance = method_named(method).closed(), np.random.default_rng(0)
    space = search_space(one)
    apart = {name for name, span in space.items() if len({one.having({name: end}).shape() for end in span.ends}) > 1}
    points, shared = [], Values()
    for place in range(n):
        point = {name: at(span, chance.random()) for name, span in space.items()}
        if place % TOGETHER == 0:
            shared = {name: value for name, value in point.items() if name in apart and place}
        points.append({name: value for name, value in point.items() if name not in apart} | shared)
    return points


def at(span: Range | Choice, share: float) -> Any:
    """The value of a range where so much of it lies below."""
    if isinstance(span, Choice):
        return span.ends[int(share * len(span.ends))]
    low, high = np.log(span.ends) if span.log else span.ends
    value = low + share * (high - low)
    return span.tidy(float(np.exp(value)) if span.log else value)


def alike(method: str, points: list[Values]) -> list[list[Values]]:
    """The points, those together that can be trained side by side."""
    groups: dict[Hashable, list[Values]] = {}
    for point in points:
        shape = method_named(method).having(decayed(point, 1)).shape()
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


def distances(found: list[Values]) -> None:
    """Of each test and method, what the default has of the best."""
    points: dict[tuple[str, str], list[Values]] = {}
    for one in found:
        points.setdefault((one["test"], one["method"]), []).extend(one["points"])
    for (test, method), several in sorted(points.items()):
        best = max(several, key=lambda point: point["ndcg"])
        default = next((point for point in several if set(point) <= {"ndcg", "epoch", "std"}), None)
        if default is not None:
            print(
                f"{test:28} {method:16} default {default['ndcg']:.4f} after {default['epoch']} epochs, "
                f"{default['ndcg'] / best['ndcg']:.2f} of the best of {len(several) - 1}: {best}"
            )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder")
    asked.add_argument("--tests", help="data:test, …; all of the suite that are here")
    asked.add_argument("--methods", default="rns,dns,auc-ns,softmax")
    asked.add_argument("--grid", nargs="*", default=["lr=0.0005,0.001,0.002", "l2=0.001,0.01,0.08"])
    asked.add_argument("--having", default="", help="batch=2048,seconds=90: the same for every point")
    asked.add_argument("--seeds", type=int, default=1)
    asked.add_argument("--workers", type=int, default=1, help="groups at once")
    asked.add_argument("--device", default="auto")
    asked.add_argument("--out", type=Path)
    asked.add_argument("--random", type=int, help="that many points of the method's own space, in place of a grid")
    given = asked.parse_args()
    parts = (axis.partition("=") for axis in given.grid)
    axes = {name: [number(one) for one in several.split(",")] for name, _, several in parts}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    having = values(given.having)
    jobs = [
        (test, method, group)
        for test in tests_named(given.tests, given.folder)
        for method in given.methods.split(",")
        for group in (
            alike(method, points) if given.random is None else [[], *alike(method, drawn(method, given.random))]
        )
    ]
    found: list[Values] = []
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        running = [pool.submit(measure, *job, having, given.seeds, given.device, given.folder) for job in jobs]
        for one in as_completed(running):
            show(one.result())
            found.append(one.result())
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(one.result()) + "\n")
    if given.random is not None:
        distances(found)


if __name__ == "__main__":
    main()
