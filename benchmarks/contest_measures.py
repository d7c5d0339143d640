"""What the contest records of a finished fit."""

from __future__ import annotations

import fcntl
import math
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.experiments.results import DIGITS
from evenhand.metrics.catalogue import METRICS
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Fit
from evenhand.utils.text import count

KS = (5, 10, 20)


def on_test(fitted: Fit) -> dict[str, list[float | None]]:
    """Every metric at every k on test."""
    return {
        f"{name}@{k}": short([one.metrics[name] for one in each])
        for k, each in fitted.results.items()
        for name in METRICS
    }


def on_validation(fitted: Fit, split: Split) -> list[float | None]:
    """NDCG@10 of all validation users, whoever was looked at while training."""
    assert split.validation is not None
    hot = HotRule.parse("honest").mask(split)
    scored = Evaluator(split.validation, split.train, hot, (STOPPING_K,)).evaluate(fitted.scorers)
    return short([one[STOPPING_K].mean("ndcg") for one in scored])


def short(values: Sequence[float]) -> list[float | None]:
    """One value per seed; None where it is undefined."""
    return [None if math.isnan(value) else round(float(value), DIGITS) for value in values]


def peak_mb() -> float:
    """The most main memory that this process has held."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def forget_gpu_peak(where: torch.device) -> None:
    """What was allocated there so far does not count."""
    if where.type == "cuda":
        torch.cuda.init()  # which resetting alone does not do for every way to name a device
        torch.cuda.reset_peak_memory_stats(where)


def memory(where: torch.device) -> dict[str, float]:
    """The most that was held: by this process in main memory, and by torch on a GPU."""
    found = {"peak_mb": peak_mb()}
    if where.type == "cuda":
        found["gpu_peak_mb"] = round(torch.cuda.max_memory_allocated(where) / 2**20, 1)
    return found


def hardware(used: Mapping[str, str]) -> str:
    return f"{used['device']}, {os.cpu_count()} cores, {count(int(used['threads']), 'thread')}"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process writes to the results of this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
