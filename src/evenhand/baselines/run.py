"""A baseline under the same protocol as a trained method: fitted on train, judged on the same held-out parts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.baselines import BASELINES
from evenhand.baselines.base import Baseline, Fitted
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.methods import assigned, wrong_types_told
from evenhand.models.topk import Score
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator, Results
from evenhand.training.settings import ProtocolName
from evenhand.utils.progress import OnEpoch


@dataclass(frozen=True)
class Challenger:
    """A baseline as asked for: its label, its name in the registry, and all parameters filled in."""

    label: str
    method: str
    baseline: Baseline


def challenger(asked: str | Baseline) -> Challenger:
    """Parse `name:key=value`, or name a baseline that was made by hand.

    >>> challenger("ease:l2=300").baseline, challenger(BASELINES["ease"].baseline(l2=300)).label
    (EASE(l2=300), 'ease:l2=300')
    """
    if isinstance(asked, str):
        name, values = assigned(asked, BASELINES)
        with wrong_types_told(asked, values):
            return Challenger(asked.strip(), name, BASELINES[name].baseline(**values))
    return Challenger(asked.label, asked.name, asked)


@dataclass(frozen=True, eq=False)
class BaselineFit:
    """What `Fit` is for trained methods: the outcome, with what a comparison needs beside it."""

    fitted: tuple[Fitted, ...]
    """One a seed, or a single one where the seed makes no difference."""
    known: Interactions
    """Train and validation pairs, which are not recommended again."""
    best: int
    """Position of the one that did best on validation (without such a part, of the first)."""
    results: Results
    """Metrics on test, one result for each of `fitted`; empty without a test part."""
    validation: tuple[float, ...] | None
    """Validation NDCG@10 of each; None where nothing was held out for that."""
    seconds: float
    notes: tuple[str, ...]

    epochs: ClassVar[tuple[int, ...]] = ()
    history: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    @property
    def scorers(self) -> list[Score]:
        return [one.scores for one in self.fitted]

    @property
    def vectors(self) -> tuple[Tensor, Tensor] | None:
        """[R, n_users, d] and [R, n_items, d], of baselines that are made of vectors."""
        pairs = [one.vectors for one in self.fitted]
        users, items = ([pair[side].cpu() for pair in pairs if pair is not None] for side in (0, 1))
        return (torch.stack(users), torch.stack(items)) if users else None

    def lists(self, k: int) -> pa.Table:
        """The k best items of every user, as a table."""
        return self.fitted[self.best].recommend(k=k, exclude=self.known)


def fit_baseline(
    split: Split,
    baseline: Baseline,
    seeds: Sequence[int],
    protocol: ProtocolName,
    device: torch.device,
    hot: np.ndarray,
    ks: tuple[int, ...],
    on_step: OnEpoch | None = None,
) -> BaselineFit:
    """Fit on train alone; validation chooses and test is looked at once, as for every method.

    `on_step` is told of the steps of those baselines that have several.
    """
    held = None if protocol == "paper" else split.validation
    began = time.perf_counter()
    fitted = tuple(
        baseline.fit_in_steps(split.train, seed, device, on_step, held)
        for seed in (seeds if baseline.seeded else seeds[:1])
    )
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - began
    scorers = [one.scores for one in fitted]
    validation = None
    if protocol == "honest" and split.validation is not None and len(split.validation):
        k = min(STOPPING_K, split.train.n_items)
        scored = Evaluator(split.validation, split.train, hot, (k,)).judged(scorers)
        validation = tuple(one[k].mean("ndcg") for one in scored)
    known = split.train if protocol == "paper" else split.consumed
    return BaselineFit(
        fitted,
        split.consumed,
        best=0 if validation is None else int(np.argmax(validation)),
        results=Evaluator(split.test, known, hot, ks).results_by(scorers) if len(split.test) else {},
        validation=validation,
        seconds=seconds,
        notes=split.notes,
    )
