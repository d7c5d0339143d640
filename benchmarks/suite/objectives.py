"""Milliseconds of a step with every objective, as a ratio to BPR with the same encoder and batch.

All go through the plain engine, BPR too: what is compared is the work of a loss, not of an engine that only
one of them has.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import evenhand as eh
from evenhand.encoders import Encoder
from evenhand.objectives import BPR, IPS, MACR, BCLoss, CausE, Objective, Reg
from evenhand.samplers import UniformSampler
from evenhand.training.trainer import Trainer
from suite.data import Data
from suite.report import Section
from suite.turns import filled, in_turns, ratio

OBJECTIVES: dict[str, tuple[Objective, int | None]] = {
    "bpr": (BPR(), None),
    "bpr, 128 negatives": (BPR(), 128),
    "ips": (IPS(), None),
    "reg": (Reg(), None),
    "macr": (MACR(), None),
    "macr, matrix": (MACR(matrix=True), None),
    "cause": (CausE(), None),
    "bc, warm-up": (BCLoss(warm_up=10**6), None),
    "bc": (BCLoss(warm_up=0), None),
    "bc, in-batch": (BCLoss(warm_up=0, in_batch=True), None),
}


def measure(data: Data, rounds: int, at_least: float) -> Section:
    split, hot = data.split, data.hot("honest")
    encoders: dict[str, Encoder] = {"MF": eh.MF(dim=64), "LightGCN": eh.LightGCN(dim=64)}

    def step(objective: Objective, negatives: int | None, encoder: Encoder) -> Callable[[], float]:
        settings = eh.Settings(negatives=negatives, engine="torch")
        where, sampler = torch.device("cpu"), UniformSampler()
        loop = Trainer(
            split.train, encoder, [sampler], [0], settings, where, hot=hot, objective=objective
        )  # fmt: skip
        epochs = iter(range(10**9))
        return lambda: filled(lambda: loop.run_epoch(next(epochs)), at_least) / loop.steps

    section = Section(
        "objectives",
        "A step of each objective against BPR",
        f"{data.words}: {len(split.train):,} pairs, {split.n_items:,} items; d 64, batch 1024, one replica, "
        "uniform negatives, plain engine for all",
        unit="ms",
        scale=1000,
    )
    all_of_them = {
        f"{name}, {where}": step(*how, encoder)
        for where, encoder in encoders.items()
        for name, how in OBJECTIVES.items()
    }
    section.times = in_turns(all_of_them, rounds)
    section.ratios = [
        ratio(f"{name} ÷ bpr, {where}", section.times[f"{name}, {where}"], section.times[f"bpr, {where}"])
        for where in encoders
        for name in list(OBJECTIVES)[1:]
    ]
    section.notes = ["bc and `bpr, 128 negatives` look at 128 negatives a positive; the others at one"]
    return section
