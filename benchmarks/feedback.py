"""The feedback loop on `demo`, round by round, for several methods: does training make the rich richer?

    python benchmarks/feedback.py [--out results]

Prints the rounds, and records them with --out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from contest_measures import alone_in, hardware

import evenhand as eh
from evenhand.data.datasets.load import demo_simulation
from evenhand.experiments.fit import feedback_loop
from evenhand.experiments.results import DIGITS, Results, Run
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device

options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
options.add_argument("--out", type=Path)
asked = options.parse_args()
used = versions(resolve_device("cpu"))
print("method    round    OHR@10  liked@10  exposure Gini  log Gini")
for method in ("rns", "dns", "auc-ns:ecdf=64"):
    began = time.perf_counter()
    measured: dict[str, list[float | None]] = {}
    for seed in (0, 1):
        for turn in feedback_loop(demo_simulation(), method, eh.MF(dim=64), n_rounds=5, seed=seed):
            print(
                f"{method:15} seed {seed}  {turn.number}  {turn.ohr:.4f}    {turn.precision:.4f}"
                f"    {turn.exposure_gini:.4f}     {turn.popularity_gini:.4f}"
            )
            for name, value in (
                ("ohr@10", turn.ohr),
                ("liked@10", turn.precision),
                ("exposure_gini@10", turn.exposure_gini),
                ("log_gini", turn.popularity_gini),
            ):
                measured.setdefault(f"round-{turn.number} {name}", []).append(round(value, DIGITS))
    if asked.out is not None:
        where = ("feedback-loop", "demo", "simulated", "mf", method, round(time.perf_counter() - began, 1))
        with alone_in(asked.out):
            run = Run(*where, "python benchmarks/feedback.py --out results", hardware(used), used, {}, measured)
            Results(asked.out).add(run)
