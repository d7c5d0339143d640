"""What the contest writes down of a finished fit."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.experiments.entrants import Outcome
from evenhand.metrics.statistics import summarise
from evenhand.metrics.users import METRICS
from evenhand.models.topk import top_by
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator
from evenhand.utils.text import count

KS = (5, 10, 20)
_DIGITS = 6
_INNERMOST = re.compile(r"\{[^{}]*\}|\[[^\[\]{}]*\]")
"""What has no further brackets inside is easier to read on one line."""


def on_test(fitted: Outcome, split: Split) -> dict[str, Any]:
    """Every metric at every k on test, and the share of the catalogue in somebody's list."""
    found = {
        f"{name}@{k}": summary([one.metrics[name] for one in each])
        for k, each in fitted.results.items()
        for name in METRICS
    }
    users = np.flatnonzero(split.test.activity)
    tops = [top_by(s, split.n_items, users, max(KS), exclude=split.consumed)[0] for s in fitted.scorers]
    for k in KS:
        shown = [np.unique(top[:, :k][top[:, :k] >= 0]).size / split.n_items for top in tops]
        found[f"coverage@{k}"] = summary(shown)
    return found


def on_validation(fitted: Outcome, split: Split) -> dict[str, Any]:
    """NDCG@10 of all validation users, whoever was looked at while training."""
    assert split.validation is not None
    hot = HotRule.parse("honest").mask(split)
    scored = Evaluator(split.validation, split.train, hot, (STOPPING_K,)).judged(fitted.scorers)
    return summary([one[STOPPING_K].mean("ndcg") for one in scored])


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, spread and one value a seed."""
    return summarise(values).to_json(_DIGITS)


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


def as_text(document: dict[str, Any]) -> str:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return _INNERMOST.sub(lambda found: " ".join(found[0].split()), text) + "\n"
