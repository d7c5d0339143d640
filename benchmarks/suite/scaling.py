"""What a positive costs as the catalogue grows: AUC-NS with ranks from 64 draws, Adam on touched rows."""

from __future__ import annotations

from collections.abc import Callable

import torch

import evenhand as eh
from evenhand.data.popularity import hot_items
from evenhand.data.simulate import simulate_log
from evenhand.training.trainer import Trainer
from suite.report import Section
from suite.turns import filled, in_turns, ratio

SIZES = (10_000, 100_000, 1_000_000)
BATCH, DIM = 4096, 64


def measure(rounds: int, at_least: float, users: int = 100_000, pairs: int = 1_000_000) -> Section:
    section = Section(
        "scaling",
        "A positive as the catalogue grows",
        f"{users:,} users, {pairs:,} simulated long-tailed pairs before repeats collapse; MF d {DIM}, "
        f"batch {BATCH:,}, auc-ns ecdf=64, sparse updates, one replica",
        unit="ns",
        scale=1e9,
    )

    def positive(n_items: int) -> Callable[[], float]:
        train = simulate_log(users, n_items, pairs)
        settings = eh.Settings(batch=BATCH, updates="sparse")
        sampler, where = eh.AUCSampler(ecdf=64), torch.device("cpu")
        hot = hot_items(train.popularity)
        loop = Trainer(train, eh.MF(dim=DIM), [sampler], [0], settings, where, hot=hot)
        epochs = iter(range(10**9))
        return lambda: filled(lambda: loop.run_epoch(next(epochs)), at_least) / len(train)

    names = {size: f"{size:,} items" for size in SIZES}
    section.times = in_turns({name: positive(size) for size, name in names.items()}, rounds)
    smallest = names[SIZES[0]]
    section.ratios = [
        ratio(f"{name} ÷ {smallest}", section.times[name], section.times[smallest]) for name in list(names.values())[1:]
    ]
    section.notes = ["the work of a positive stays the same; what grows is the tables, which leave the caches"]
    return section
