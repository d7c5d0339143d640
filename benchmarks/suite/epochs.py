"""Seconds of an epoch on ML-100K with the paper's numbers: our engine, our plain path, other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

import evenhand as eh
from evenhand.samplers import AUCSampler, Sampler, UniformSampler
from evenhand.training.evaluation import Evaluator
from evenhand.training.trainer import Trainer
from suite.data import Data
from suite.peers import started
from suite.report import Section
from suite.turns import filled, in_turns, ratio

EngineName = Literal["auto", "torch"]
DIM, BATCH, CANDIDATES, PROBES = 32, 128, 5, 10
SETTINGS = eh.Settings(batch=BATCH, lr=0.1, weight_decay=1e-4, milestones=(20, 60, 80), updates="dense", drop_last=True)
EXACT = AUCSampler(candidates=CANDIDATES, probes=PROBES, ecdf="exact")
DRAWS = replace(EXACT, ecdf=64)
OURS: dict[str, tuple[Sampler, EngineName]] = {
    "auc-ns exact, engine": (EXACT, "auto"),
    "auc-ns exact, torch path": (EXACT, "torch"),
    "auc-ns ecdf=64, engine": (DRAWS, "auto"),
    "auc-ns ecdf=64, torch path": (DRAWS, "torch"),
    "rns, engine": (UniformSampler(), "auto"),
    "dns, engine": (eh.DynamicSampler(candidates=CANDIDATES), "auto"),
}
OUR_ALS = "evenhand als, an iteration"
PEERS = {
    "RecBole bpr, uniform": ("recbole_bpr.py", "uniform"),
    "RecBole bpr, dynamic": ("recbole_bpr.py", "dynamic"),
    "implicit bpr": ("implicit_mf.py", "bpr"),
    "implicit als, an iteration": ("implicit_mf.py", "als"),
}
RATIOS = (
    ("torch path ÷ engine, exact ranks", "auc-ns exact, torch path", "auc-ns exact, engine"),
    ("torch path ÷ engine, ecdf=64", "auc-ns ecdf=64, torch path", "auc-ns ecdf=64, engine"),
    ("RecBole uniform ÷ auc-ns ecdf=64", "RecBole bpr, uniform", "auc-ns ecdf=64, engine"),
    ("RecBole uniform ÷ rns", "RecBole bpr, uniform", "rns, engine"),
    ("RecBole dynamic ÷ auc-ns ecdf=64", "RecBole bpr, dynamic", "auc-ns ecdf=64, engine"),
    ("RecBole dynamic ÷ dns", "RecBole bpr, dynamic", "dns, engine"),
    ("auc-ns ecdf=64 ÷ rns", "auc-ns ecdf=64, engine", "rns, engine"),
    ("auc-ns exact ÷ rns", "auc-ns exact, engine", "rns, engine"),
    ("auc-ns ecdf=64 ÷ implicit bpr", "auc-ns ecdf=64, engine", "implicit bpr"),
    ("rns ÷ implicit bpr", "rns, engine", "implicit bpr"),
    ("implicit als ÷ evenhand als", "implicit als, an iteration", OUR_ALS),
)


@dataclass(frozen=True)
class Effort:
    """How much is done: rounds, the least seconds of a round, and epochs until precision is compared."""

    rounds: int = 3
    at_least: float = 0.5
    epochs: int = 30


def loop(data: Data, sampler: Sampler, engine: EngineName) -> Trainer:
    settings = replace(SETTINGS, engine=engine)
    return Trainer(
        data.split.train, eh.MF(dim=DIM), [sampler], [0], settings, torch.device("cpu"), hot=data.hot("paper")
    )


def epoch_of(running: Trainer, at_least: float) -> Callable[[], float]:
    """A round of this loop: mean seconds of an epoch."""
    epochs = iter(range(10**9))
    return lambda: filled(lambda: running.run_epoch(next(epochs)), at_least)


def als_iteration(data: Data, at_least: float) -> Callable[[], float]:
    baseline = eh.ALS(factors=DIM, iterations=15)
    return lambda: filled(lambda: baseline.fit_pairs(data.split.train), at_least) / baseline.iterations


def precision(data: Data, sampler: Sampler, engine: EngineName, epochs: int) -> float:
    """precision@5 on test after so many epochs; no epoch is picked."""
    running = loop(data, sampler, engine)
    for epoch in range(epochs):
        running.run_epoch(epoch)
    evaluator = Evaluator(data.split.test, data.split.train, data.hot("paper"), (5,))
    return float(evaluator(running.finals()[0])[0][5].mean("precision"))


def asked_of_peers(threads: int, at_least: float) -> dict[str, tuple[str, dict[str, Any]]]:
    """name → script and its values."""
    same = {"dim": DIM, "batch": BATCH, "candidates": CANDIDATES, "threads": threads, "at_least": at_least}
    same |= {"alpha": eh.ALS.alpha, "l2": eh.ALS.l2}
    return {name: (script, {**same, "kind": kind}) for name, (script, kind) in PEERS.items()}


def measure(data: Data, python: Path, threads: int, effort: Effort) -> Section:
    section = Section(
        "epochs",
        f"An epoch of {data.words}",
        f"{data.split.train!r}; MF d {DIM}, batch {BATCH}, {CANDIDATES} candidates, {PROBES} probes, "
        "Adam on every row, one replica",
    )
    methods: dict[str, Callable[[], float]] = {
        name: epoch_of(loop(data, *how), effort.at_least) for name, how in OURS.items()
    }
    with started(python, asked_of_peers(threads, effort.at_least), data.split) as (peers, failed):
        methods |= {**peers, OUR_ALS: als_iteration(data, effort.at_least)}
        section.times = in_turns(methods, effort.rounds)
    section.facts |= {f"versions of {name}": peer.versions for name, peer in peers.items()} | failed
    section.ratios = [
        ratio(text, section.times[slow], section.times[fast])
        for text, slow, fast in RATIOS
        if slow in section.times and fast in section.times
    ]
    for name in list(OURS)[:4]:
        section.facts[f"precision@5, {name}"] = precision(data, *OURS[name], effort.epochs)
    section.notes = [
        f"precision@5 on test after {effort.epochs} epochs, seed 0: the paths differ in rounding alone",
        "implicit's bpr is another algorithm: plain SGD, one pair at a time, without batches, Adam or locks",
        "an iteration of als visits all cells, not only pairs; it compares with als alone",
    ]
    return section
