"""Trains every method with every encoder, and every baseline, in a small run on `demo`, and records the numbers.

    python scripts/drift.py

rewrites tests/drift.json and says what moved. tests/test_drift.py measures the same runs and fails where a
number has left its tolerance: a change that moves accuracy or bias is then either a mistake, or is meant and
comes with the new file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import evenhand as eh
from evenhand.data.splits import Split
from evenhand.encoders import ENCODERS
from evenhand.experiments.compare import compare
from evenhand.methods import BASELINES, METHODS
from evenhand.metrics.statistics import Summary
from evenhand.training.settings import usual_decay

FILE = Path(__file__).parents[1] / "tests" / "drift.json"
K = 10
SEEDS = 2
DIM = 16
SETTINGS = eh.Settings(epochs=8, batch=1024, lr=0.03, average=False)
"""What single epochs learn; a mean over them would hide half of a move."""
SHORT = {
    "auc-ns lightgcn": "auc-ns:ecdf=64",
    "bc-loss mf": "bc-loss:warm_up=2",
    "bc-loss lightgcn": "bc-loss:warm_up=2",
    **{f"psl {encoder}": "psl:temperature=0.25" for encoder in ENCODERS},
    **{f"slatk {encoder}": "slatk:refresh=2:weight_temperature=0.5:k=5" for encoder in ENCODERS},
    **{f"bsl {encoder}": "bsl:negative_weight=1.3" for encoder in ENCODERS},
    **{f"auc-softmax {encoder}": "auc-softmax:beta=0.2:alpha=1" for encoder in ENCODERS},
    "blend": "blend:parts=ease+als:shares=1+1",
}
"""Runs whose method is asked for otherwise than by its name: to save time, to learn in so few epochs, to stand out."""
TOLERANCE = {
    **dict.fromkeys(("precision", "recall", "ndcg"), 0.002),
    **dict.fromkeys(("ohr", "uhr", "ucr"), 0.003),
    "ocr": 0.008,  # few lists hold a cold item, so a single one weighs more
}
"""How far the mean over the seeds may lie from the recorded one."""

Recorded = Mapping[str, tuple[float, float]]
"""Metric → mean and standard deviation over the seeds."""


def names() -> list[str]:
    """Every run: `auc-ns mf`, …, and the baselines, which have no encoder."""
    return [f"{method} {encoder}" for encoder in ENCODERS for method in METHODS] + [
        name
        for name in BASELINES
        if name != "recipe"  # what it fits depends on the time it has
    ]


@cache
def split() -> Split:
    """Every second user of `demo`.

    Without a validation part all epochs are trained, so that no close call decides which one is judged.
    """
    log = eh.load_dataset("demo")
    return log.take(log.users % 2 == 0).split(test=0.2, validation=0.0, seed=0)


def measure(name: str) -> Recorded:
    method, _, encoder = name.partition(" ")
    asked = SHORT.get(name, method)
    few = 8 if method == "bc-loss" else 64 if method in METHODS and METHODS[method].objective.shares_negatives else None
    settings = replace(SETTINGS, negatives=few)
    made = ENCODERS[encoder or "mf"](dim=DIM)
    settings = replace(settings, weight_decay=usual_decay(made, "auto", split().train))
    found = compare(split(), [asked], made, SEEDS, settings, k=K, device="cpu").row(asked, K)
    return {metric: _rounded(found.metrics[metric]) for metric in TOLERANCE}


def _rounded(value: Summary) -> tuple[float, float]:
    return round(value.mean, 5), round(value.std or 0.0, 5)


def recorded() -> dict[str, Recorded]:
    runs = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: {metric: tuple(pair) for metric, pair in run.items()} for name, run in runs.items()}


def moves(before: Recorded, now: Recorded) -> list[str]:
    """A sentence for each metric that has left its tolerance."""
    message = []
    for metric, tolerance in TOLERANCE.items():
        (was, spread), (is_now, _) = before[metric], now[metric]
        if not abs(is_now - was) <= tolerance:
            seeds = f", {abs(is_now - was) / spread:.1f} standard deviations of a seed" if spread else ""
            message.append(f"{metric}@{K} moved from {was:.4f} to {is_now:.4f}{seeds}")
    return message


def main() -> None:
    before = recorded() if FILE.exists() else {}
    now = {}
    for name in names():
        now[name] = measure(name)
        message = moves(before[name], now[name]) if name in before else ["new"]
        print(f"{name}: {'; '.join(message) or 'as before'}", flush=True)
    for name in before.keys() - now.keys():
        print(f"{name}: gone")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(run)}" for name, run in now.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"written: {FILE}")


if __name__ == "__main__":
    main()
