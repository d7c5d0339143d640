"""Seconds until AUC-NS is as good on validation as ALS, against the seconds of ALS itself."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import evenhand as eh
from evenhand.encoders import Encoder
from evenhand.methods import parse
from evenhand.training.run import train
from suite.data import Data
from suite.report import Section
from suite.turns import Timing, ratio

SHARES = (0.9, 0.95, 1.0)
"""Of ALS's NDCG@10 on validation."""


class ReachedError(Exception):
    """Nothing more to wait for."""


@dataclass
class Climb:
    """When a run first reached each share of the target, and how far it came."""

    target: float
    best: float = 0
    epochs: int = 0
    seconds: dict[float, float] = field(default_factory=dict)

    def see(self, done: int, most: int, record: Mapping[str, Any]) -> None:
        value = record["metrics"]["ndcg@10"][0]
        self.best, self.epochs = max(self.best, value), done
        for share in SHARES:
            if value >= share * self.target:
                self.seconds.setdefault(share, record["seconds"])
        if value >= self.target:
            raise ReachedError


def climb(data: Data, encoder: Encoder, method: str, target: float, epochs: int) -> Climb:
    """Train with the default settings until the target is met or validation stops to improve."""
    seen = Climb(target)
    with suppress(ReachedError):
        train(
            data.split,
            encoder,
            parse(method).sampler,
            1,
            eh.Settings(epochs=epochs),
            device="cpu",
            on_epoch=seen.see,
        )
    return seen


def measure(data: Data, rounds: int, quick: bool) -> Section:
    section = Section(
        "quality",
        f"Time to the quality of ALS, {data.words}",
        f"{data.split!r}; NDCG@10 on validation, seed 0; defaults, which were tuned on ML-100K for ALS",
    )
    epochs = 3 if quick else eh.Settings().epochs
    ways: dict[str, tuple[Encoder, str]] = {
        "auc-ns, MF": (eh.MF(), "auc-ns"),
        "auc-ns ecdf=64, MF": (eh.MF(), "auc-ns:ecdf=64"),
        "auc-ns ecdf=64, LightGCN": (eh.LightGCN(), "auc-ns:ecdf=64"),
    }
    warm = eh.ALS().fit(data.split, seeds=1, k=10, device="cpu")
    assert warm.validation is not None
    target = warm.validation[0]
    als: list[float] = []
    climbs: dict[str, list[Climb]] = {name: [] for name in ways}
    for encoder, method in ways.values():
        climb(data, encoder, method, target, 1)
    for _ in range(rounds):
        als.append(eh.ALS().fit(data.split, seeds=1, k=10, device="cpu").seconds)
        for name, (encoder, method) in ways.items():
            climbs[name].append(climb(data, encoder, method, target, epochs))
    section.times["als, to the end"] = Timing(tuple(als))
    section.facts["ndcg@10 of als"] = target
    for name, runs in climbs.items():
        section.facts[f"ndcg@10 of {name}"] = f"{runs[0].best:.4f} at best, {runs[0].epochs} epochs"
        for share in SHARES:
            label = f"{name}, to {share:.0%}"
            if all(share in one.seconds for one in runs):
                section.times[label] = Timing(tuple(one.seconds[share] for one in runs))
                section.ratios.append(ratio(f"{label} ÷ als", section.times[label], section.times["als, to the end"]))
            else:
                section.facts[label] = "not reached"
    section.notes = [
        "seconds of auc-ns include an exact evaluation on validation after each epoch, those of als do not",
    ]
    return section
