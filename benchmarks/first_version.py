"""Test NDCG@10 with today's defaults and with those of version 0.1, over seeds, nothing refitted.

    python benchmarks/first_version.py DATA_DIR [--tests ml-100k:iid,ml-1m:iid] [--methods rns,macr] [--seeds 3]

Version 0.1 had a learning rate of .002, the coupled weight decay of the paper, a patience of 10 and no mean over
epochs; losses on cosines had no decay, and temperatures were as published. How patience counts the first epochs has
changed since, and is not undone.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from defaults import tests_named

from evenhand.experiments.benchmark import method_named
from evenhand.experiments.suite import Test
from evenhand.training.method import Conditions
from evenhand.training.settings import USUAL_LR, usual_decay
from evenhand.training.trained import Trained

METHODS = "rns,pns,dns,auc-ns,fairstatic,ips-cn,samreg,macr,cause,bc-loss,lightgcn/rns,lightgcn/auc-ns"
K = 10


def measure(
    test: Test, text: str, first: bool, seeds: int, device: str, data_dir: str
) -> tuple[str, str, bool, float, float, Any]:
    conditions = Conditions.of(test.split(data_dir), seeds, k=(K,), device=device)
    one = method_named(text)
    assert isinstance(one, Trained)
    if first:
        decay = usual_decay(one.encoder, "auto", conditions.split.train) if one.objective.lengths_matter else 0.0
        one = one.closed().having({"lr": USUAL_LR, "l2": 0.0, "weight_decay": decay, "patience": 10, "average": False})
    fit = one.under(conditions).fit_under(conditions)
    found = fit.at(K)["ndcg"]
    return f"{test.set}, {test.test}", text, first, found.mean or 0.0, found.std or 0.0, fit.epochs


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder")
    asked.add_argument("--tests", default="ml-100k:iid,ml-1m:iid")
    asked.add_argument("--methods", default=METHODS)
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--workers", type=int, default=1)
    asked.add_argument("--device", default="auto")
    given = asked.parse_args()
    found: dict[tuple[str, str], dict[bool, str]] = {}
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        running = [
            pool.submit(measure, test, text, first, given.seeds, given.device, given.folder)
            for test in tests_named(given.tests, given.folder)
            for text in given.methods.split(",")
            for first in (True, False)
        ]
        for one in as_completed(running):
            test, text, first, mean, std, epochs = one.result()
            both = found.setdefault((test, text), {})
            both[first] = f"{mean:.4f} ± {std:.4f} (epochs {', '.join(map(str, epochs))})"
            if len(both) == 2:
                print(f"{test:24} {text:18} version 0.1 {both[True]}, now {both[False]}", flush=True)


if __name__ == "__main__":
    main()
