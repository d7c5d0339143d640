"""When to stop: long validation curves of the defaults, and what each rule of early stopping would have kept of them.
Whom to give up: what each rule of a race among the forms of a default would have kept, and saved.

    python benchmarks/patience.py DATA_DIR --tests coat,ml-100k:iid --methods rns,dns [--epochs 200] [--out FILE]
    python benchmarks/patience.py --out FILE         # the table of what is in the file alone

Every form of a default (L2, temperature) is trained with one seed to the end. A rule is a patience and the first epoch
after which it may stop; of the forms, the best where it stopped counts, as a share of the best of all epochs. A race
gives a form up that has less than a share of what the leader had by then, from so many epochs and steps on: what it
keeps and the epochs it trains, over all forms, are shares of what the rule of today's patience does. Test parts are
not looked at.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from defaults import K, tests_named

from evenhand.experiments.benchmark import method_named
from evenhand.experiments.suite import Test
from evenhand.training.method import Conditions

RULES = ((10, 0), (20, 0), (30, 0), (40, 0), (10, 30), (15, 45), (20, 60), (30, 90))
RACES = ((10, 0, 0.9), (10, 3000, 0.9), (10, 10_000, 0.9), (10, 10_000, 0.8), (10, 10_000, 0.75), (10, 10_000, 0.6))
TODAY = (20, 60)
USERS = 4000
"""Validation users of each epoch."""
Curves = list[list[float]]


def curves(test: Test, name: str, epochs: int, data_dir: str) -> tuple[Curves, int]:
    """Validation NDCG@10 of each epoch, of each form; and the steps of an epoch."""
    split = test.split(data_dir)
    split = replace(split, test=split.test.take(np.zeros(len(split.test), dtype=bool)))
    conditions = Conditions.of(split, 1, k=(K,))
    method: Any = method_named(name).having({"epochs": epochs, "patience": None, "eval_users": USERS}).under(conditions)
    forms: dict[Hashable, list[Any]] = defaultdict(list)
    for form in method.forms(conditions):
        forms[form.shape()].append(form)
    fits = [fit for alike in forms.values() for fit in alike[0].fit_together(alike, conditions)]
    found = [[record["metrics"]["ndcg@10"][0] for record in fit.model.history] for fit in fits]
    return found, -(-len(split.train) // method.settings.positives)


def stopped(curve: list[float], patience: int, first: int) -> tuple[float, int]:
    """The best value until the rule stops, and the epochs until then."""
    best = 0
    for epoch, value in enumerate(curve):
        best = epoch if value > curve[best] else best
        if epoch + 1 >= first and epoch - best >= patience:
            return curve[best], epoch + 1
    return curve[best], len(curve)


def raced(several: Curves, steps: int, epochs: int, least: int, share: float) -> tuple[float, int]:
    """The best value of a race of all forms, and how many epochs they train in all."""
    lasts = [stopped(curve, *TODAY)[1] for curve in several]
    best, trained = [0.0] * len(several), 0
    for epoch in range(max(lasts)):
        for place, curve in enumerate(several):
            if epoch < lasts[place]:
                best[place], trained = max(best[place], curve[epoch]), trained + 1
        if epoch + 1 >= max(epochs, least / steps):
            lasts = [last if mine >= share * max(best) else 0 for mine, last in zip(best, lasts, strict=True)]
    return max(best), trained


def show_races(found: dict[str, dict[str, Any]]) -> None:
    """A line for each test and method: what a race keeps, and the share of the epochs that it trains."""
    names = ["from epochs, steps: share", *(f"{epochs}, {steps}: {share}" for epochs, steps, share in RACES)]
    print("\n" + f"{names[0]:36}", *(name.rjust(15) for name in names[1:]))
    shares = []
    for name, one in found.items():
        if len(one["curves"]) > 1:
            top, all_epochs = raced(one["curves"], one["steps"], 0, 0, 0.0)
            each = [raced(one["curves"], one["steps"], *race) for race in RACES]
            shares.append([(value / top, trained / all_epochs) for value, trained in each])
            print(f"{name:36}", *(f"{kept:.3f} ({trained:.2f})".rjust(15) for kept, trained in shares[-1]))
    if shares:
        print(f"{'mean':36}", *(f"{kept:.3f} ({trained:.2f})".rjust(15) for kept, trained in np.mean(shares, axis=0)))


def show(several: dict[str, Curves]) -> None:
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
                several, steps = curves(test, method, given.epochs, given.folder)
                found[name] = {"curves": several, "steps": steps}
                given.out.write_text(json.dumps(found))
                print(name, flush=True)
    show({name: one["curves"] for name, one in found.items()})
    show_races(found)


if __name__ == "__main__":
    main()
