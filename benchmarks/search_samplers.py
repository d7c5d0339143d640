"""Which of Optuna's samplers finds the better front of two metrics, for as many trials as people spend.

    .venv/bin/python benchmarks/search_samplers.py [--repeats 30] [--trials 20,50,200]

The target is made up and costs nothing: in the six parameters of auc-ns, alpha trades one metric for the
other and every other parameter has a best value off which both suffer. Printed is the share that a front
covers of the area under the best one there is (the hypervolume from the corner 0, 1), the mean over search
seeds with its standard error.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optuna

from evenhand.experiments.search_result import front_of
from evenhand.experiments.search_space import RANGES, search_space
from evenhand.methods import parse
from evenhand.training.settings import Settings

BEST = {"beta": 0.03, "gamma": 0.01, "candidates": 8, "lr": 0.005, "weight_decay": 1e-5}
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "TPE": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
    "TPE, multivariate": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
    "NSGA-II": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
}


def target(values: Mapping[str, float]) -> tuple[float, float]:
    """A metric to raise and one to lower, both in 0…1."""
    off = sum(math.log10(values[name] / best) ** 2 for name, best in BEST.items())
    fine, along = math.exp(-off / 2), 2 * (values["alpha"] - 0.5)
    return fine * (0.4 + 0.6 * math.sqrt(along)), 1 - fine * (1 - 0.8 * along**2)


def area(points: list[tuple[float, float]]) -> float:
    """What the points (both to be raised) cover of the square above 0, 0."""
    covered = below = 0.0
    for x, y in (points[place] for place in front_of(points)):
        covered += x * (y - below)
        below = y
    return covered


def searched(sampler: Any, trials: int) -> float:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    coupled = {"weight_decay": RANGES[Settings]["weight_decay"]}
    space = {name: span.distribution() for name, span in search_space(parse("auc-ns"), ranges=coupled).items()}
    points = []
    for _ in range(trials):
        trial = study.ask(space)
        up, down = target(trial.params)
        study.tell(trial, (up, down))
        points.append((up, 1 - down))
    return area(points)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--trials", default="20,50,200")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    best = area([(up, 1 - down) for up, down in (target({**BEST, "alpha": a}) for a in np.linspace(0.5, 1, 10_001))])
    print(f"optuna {optuna.__version__}, {given.repeats} search seeds")
    for trials in map(int, given.trials.split(",")):
        for name, make in SAMPLERS.items():
            found = np.array([searched(make(seed), trials) for seed in range(given.repeats)]) / best
            error = found.std(ddof=1) / math.sqrt(len(found))
            print(f"{trials:4d} trials  {name:18s} {found.mean():.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    main()
