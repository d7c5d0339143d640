"""The recipe on a published split: what was tried, what it scored, and the one look at test.

    python benchmarks/recipe.py FOLDER --budget 180 [--aim items] [--out FILE.json]

FOLDER holds train.txt and test.txt (lines `user item item …`) or paper_train.csv and paper_test.csv. Validation is
drawn out of train by the rule of the aim, the chosen parts are fitted again to train and validation, and test is
looked at once.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from evenhand.baselines.recipe import AIMS, Recipe
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import given_split
from evenhand.training.method import Conditions

NAMES = (("train.txt", "test.txt"), ("paper_train.csv", "paper_test.csv"))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--budget", type=float, default=180)
    asked.add_argument("--aim", choices=AIMS, default="log")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    files = next([given.folder / name for name in pair] for pair in NAMES if (given.folder / pair[0]).exists())
    train, test = (read_interactions(file, allow_small=True) for file in files)
    rule = None if given.aim == "log" else AIMS[given.aim]
    split = given_split(train, test, validation=0.1, validation_how=rule)
    conditions = Conditions.of(split, 1)
    recipe, began = Recipe(budget=given.budget, aim=given.aim), time.perf_counter()
    fit = recipe.fit_under(conditions)
    searched = time.perf_counter() - began
    final = recipe.for_production(fit, conditions)
    seconds = time.perf_counter() - began
    for one in sorted(fit.model.info["tried"], key=lambda one: -one["ndcg"]):
        print(f"{one['ndcg']:.4f} {one['seconds']:8.1f} s  weight {one['share']:6.3f}  {one['part']}")
    found = {k: {name: final.at(k)[name].mean for name in ("recall", "ndcg", "top_tenth_ratio")} for k in (5, 20)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    print(f"{given.folder.name}, {device}: searched {searched:.0f} s, all {seconds:.0f} s, {memory:.1f} GiB")
    for k, metrics in found.items():
        print(f"@{k}: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    if given.out:
        record = {"seconds": seconds, "metrics": found, "tried": fit.model.info["tried"], "device": device}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
