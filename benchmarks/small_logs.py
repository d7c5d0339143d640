"""Validation NDCG@20 of defaults on small logs, by the number of positives in a step; test parts are not looked at.

    python benchmarks/small_logs.py DATA_DIR [--methods rns,dns,auc-ns] [--batches 1024,256,64,32] [--device cpu]

Coat as it is, and other logs with a share of their users, split at random; three seeds. Without `--batches`, 1024 and
what the library takes by itself.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from defaults import K, tests_named

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.experiments.benchmark import method_named
from evenhand.metrics.statistics import summarise
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions

LOGS = (
    ("coat:exposure", 1.0),
    ("ml-100k:iid", 0.05),
    ("ml-100k:iid", 0.2),
    ("amazon-electronic:iid", 0.05),
    ("amazon-beauty:time", 0.1),
    ("ml-1m:iid", 0.01),
)


def cut(split: Split, share: float) -> Split:
    """Some of the users' training pairs as a log of their own."""
    log = split.train
    mine = (np.random.default_rng(1).random(log.n_users) < share)[log.users]
    return Interactions.from_pairs(log.users[mine], log.items[mine]).split()


def measure(split: Split, method: str, batch: int | None, device: str) -> str:
    held = split.validation
    assert held is not None
    split = replace(split, test=split.test.take(np.zeros(len(split.test), dtype=bool)))
    conditions = Conditions.of(split, 3, k=(K,), device=device)
    one = method_named(method).having({} if batch is None else {"batch": batch}).under(conditions)
    fit = one.fit_under(conditions)
    seen = Evaluator(held, split.train, conditions.hot_items, (K,), users_within_reach(held))
    found = summarise([each[K].mean("ndcg") for each in seen.evaluate(fit.scorers)])
    return f"{one.parameters()['batch']}: {found.mean:.4f} ± {found.std:.4f} after {fit.epochs[0]} epochs"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder")
    asked.add_argument("--methods", default="rns,dns,auc-ns")
    asked.add_argument("--batches", default="")
    asked.add_argument("--device", default="cpu")
    given = asked.parse_args()
    batches = [int(one) for one in given.batches.split(",") if one] or [1024, None]
    for name, share in LOGS:
        (test,) = tests_named(name, given.folder)
        split = test.split(given.folder)
        split = split if share == 1 else cut(split, share)
        print(f"{name}, {share:.0%} of the users: {len(split.train):,} pairs", flush=True)
        for method in given.methods.split(","):
            print(f"  {method}: " + "; ".join(measure(split, method, b, given.device) for b in batches), flush=True)


if __name__ == "__main__":
    main()
