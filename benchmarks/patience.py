"""When to stop: long validation curves of the defaults, and what each rule of early stopping would have kept of them.

    python benchmarks/patience.py DATA_DIR --tests coat,ml-100k:iid --methods rns,dns [--epochs 200] [--out FILE]
    python benchmarks/patience.py --out FILE         # the table of what is in the file alone

Every form of a default (L2, temperature) is trained with one seed to the end. A rule is a patience and the first epoch
after which it may stop; of the forms, the best where it stopped counts, as a share of the best of all epochs. Test
parts are not looked at.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from defaults import K, tests_named

from evenhand.experiments.benchmark import method_named
from evenhand.experiments.suite import Test
from evenhand.training.method import Conditions

RULES = ((10, 0), (20, 0), (30, 0), (40, 0), (10, 30), (15, 45), (20, 60), (30, 90))
USERS = 4000
"""Validation users of each epoch."""


def curves(test: Test, name: str, epochs: int, data_dir: str) -> list[list[float]]:
    """Validation NDCG@10 of each epoch, of each form."""
    split = test.split(data_dir)
    split = replace(split, test=split.test.take(np.zeros(len(split.test), dtype=bool)))
    conditions = Conditions.of(split, 1, k=(K,))
    method: Any = method_named(name).having({"epochs": epochs, "patience": None, "eval_users": USERS}).under(conditions)
    fits = [form.fit_together([form], conditions)[0] for form in method.forms(conditions)]
    return [[record["metrics"]["ndcg@10"][0] for record in fit.model.history] for fit in fits]


def stopped(curve: list[float], patience: int, first: int) -> tuple[float, int]:
    """The best value until the rule stops, and the epochs until then."""
    best = 0
    for epoch, value in enumerate(curve):
        best = epoch if value > curve[best] else best
        if epoch + 1 >= first and epoch - best >= patience:
            return curve[best], epoch + 1
    return curve[best], len(curve)


def show(several: dict[str, list[list[float]]]) -> None:
    """A line for each test and method: share of the best, and epochs, by rule."""
    print(f"{'patience / first stop':36}", *(f"{patience} / {first}".rjust(11) for patience, first in RULES))
    shares = defaultdict(list)
    for name, each in several.items():
        top = max(max(curve) for curve in each)
        for rule in RULES:
            kept = [stopped(curve, *rule) for curve in each]
            shares[rule].append((max(value for value, _ in kept) / top, max(epochs for _, epochs in kept)))
        print(f"{name:36}", *(f"{shares[rule][-1][0]:.2f} ({shares[rule][-1][1]:3})".rjust(11) for rule in RULES))
    means = {rule: np.mean(shares[rule], axis=0) for rule in RULES}
    print(f"{'mean':36}", *(f"{means[rule][0]:.2f} ({means[rule][1]:3.0f})".rjust(11) for rule in RULES))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", nargs="?")
    asked.add_argument("--tests")
    asked.add_argument("--methods", default="rns,dns,pns,softmax")
    asked.add_argument("--epochs", type=int, default=200)
    asked.add_argument("--out", type=Path, default=Path("runs/patience.json"))
    given = asked.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for test in tests_named(given.tests, given.folder) if given.folder else ():
        for method in given.methods.split(","):
            name = f"{test.set}, {test.test}: {method}"
            if name not in found:
                found[name] = curves(test, method, given.epochs, given.folder)
                given.out.write_text(json.dumps(found))
                print(name, flush=True)
    show(found)


if __name__ == "__main__":
    main()
