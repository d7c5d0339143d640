"""Seconds of an epoch with every sampler, as a ratio to random negatives, for one and for three replicas."""

from __future__ import annotations

from collections.abc import Callable

import torch

import evenhand as eh
from evenhand.methods import parse
from evenhand.training.trainer import Trainer
from suite.data import Data
from suite.report import Section
from suite.turns import filled, in_turns, ratio

NAMES = ("rns", "pns", "fairstatic", "dns", "auc-ns:ecdf=64", "auc-ns")


def measure(data: Data, rounds: int, at_least: float) -> Section:
    split, hot = data.split, data.hot("honest")

    def epoch(name: str, replicas: int) -> Callable[[], float]:
        samplers = [parse(name).sampler] * replicas
        where = torch.device("cpu")
        loop = Trainer(split.train, eh.MF(dim=64), samplers, range(replicas), eh.Settings(), where, hot=hot)
        epochs = iter(range(10**9))
        return lambda: filled(lambda: loop.run_epoch(next(epochs)), at_least)

    section = Section(
        "samplers",
        "An epoch with each sampler against random negatives",
        f"{data.words}: {len(split.train):,} pairs, {split.n_items:,} items; MF d 64, batch 1024; "
        "R replicas side by side",
    )
    both = {f"{name}, R = {replicas}": epoch(name, replicas) for replicas in (1, 3) for name in NAMES}
    section.times = in_turns(both, rounds)
    section.ratios = [
        ratio(
            f"{name} ÷ rns, R = {replicas}",
            section.times[f"{name}, R = {replicas}"],
            section.times[f"rns, R = {replicas}"],
        )
        for replicas in (1, 3)
        for name in NAMES[1:]
    ]
    return section
