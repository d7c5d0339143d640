"""Who is best where the test is not biased: simulated worlds whose users were also shown items at random.

    python benchmarks/uniform_exposure.py --worlds 6 --out results

Each method is fitted once a world to the biased log and evaluated three ways: on held-out pairs of the log,
on liked items among some shown uniformly at random, and by asking the world which listed items are liked.
"""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path

import numpy as np
from contest_measures import alone_in, hardware

import evenhand as eh
from evenhand.data.popularity import HotRule
from evenhand.data.simulate import Simulation
from evenhand.experiments.results import DIGITS, Results, Run
from evenhand.methods import parse
from evenhand.models.topk import top_by
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Fit
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device

METHODS = (
    *("rns", "pns", "dns", "fairstatic", "ips-cn", "macr", "auc-ns"),
    *("ease", "als", "popular", "blend"),
)
MEASURES = ("ndcg@10", "precision@5", "ohr@5")
TRUTH = "truth liked@5"
"""The share of a list that its user likes, which only a simulation knows."""
KS = (5, 10)


def fit(name: str, world: Simulation, device: str) -> Fit:
    """With defaults, on the biased log alone."""
    return parse(name).fit(world.split, seeds=[world.seed], k=KS, device=device)


def evaluated(world: Simulation, fitted: Fit) -> dict[str, float]:
    """The same model by both tests; what is in the log is not recommended when the truth is asked."""
    split, score = world.split, fitted.scorers[0]
    hot = HotRule.parse("honest").mask(split)
    found = {}
    for which, test, known in (
        ("biased", split.test, split.consumed),
        ("uniform", world.uniform_test, world.log),
    ):
        scored = Evaluator(test, known, hot, KS).evaluate([score])[0]
        for measure in MEASURES:
            name, _, k = measure.partition("@")
            found[f"{which} {measure}"] = scored[int(k)].mean(name)
    users = np.arange(split.n_users)
    top = top_by(score, split.n_items, users, 5, exclude=world.log)[0]
    found[TRUTH] = float(world.truth(users[:, None], top).mean())
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--worlds", type=int, default=6)
    options.add_argument("--methods", default=",".join(METHODS))
    options.add_argument("--device", default="cpu")
    options.add_argument("--out", type=Path, default=Path("results"))
    asked = options.parse_args()
    began = time.perf_counter()
    values: dict[str, dict[str, list[float]]] = {}
    for seed in range(asked.worlds):
        world = eh.simulate(seed=seed)
        for name in asked.methods.split(","):
            started = time.perf_counter()
            for measure, value in evaluated(world, fit(name, world, asked.device)).items():
                values.setdefault(name, {}).setdefault(measure, []).append(round(value, DIGITS))
            message = ", ".join(f"{measure} {each[-1]:.4f}" for measure, each in values[name].items())
            print(f"world {seed}, {name}: {message} ({time.perf_counter() - started:.0f} s)", flush=True)
    used = versions(resolve_device(asked.device))
    details = {"date": datetime.date.today().isoformat(), "worlds": asked.worlds, "log_pairs": len(world.log)}
    command = f"python benchmarks/uniform_exposure.py --worlds {asked.worlds}"
    seconds = round(time.perf_counter() - began)
    with alone_in(asked.out):
        results = Results(asked.out)
        for name, measured in values.items():
            where = ("uniform-exposure", "simulated", "world", None, name)
            results.add(Run(*where, seconds, command, hardware(used), used, details, measured))
    print(f"written: {asked.out}")


if __name__ == "__main__":
    main()
