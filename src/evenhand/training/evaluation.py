"""Evaluation during training: every replica's lists against one held-out part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders.base import Vectors
from evenhand.metrics.slots import AnswerSheet
from evenhand.metrics.users import UserMetrics, score_sheet
from evenhand.models.topk import Score, by_product, top_by

_SAMPLE_SEED = 0
"""Draws the users of a sample, where only some are evaluated."""
MOST_SCORES = 2 * 10**10
"""Users × items that one evaluation of a finished model scores at most: about half a minute of one CPU core."""


@dataclass(frozen=True)
class Result:
    """One replica at one k: the metrics as reported, and the users behind them."""

    metrics: dict[str, float]
    users: UserMetrics


Results = dict[int, list[Result]]
"""k → one result per replica."""


def users_within_reach(held: Interactions | SpreadLog) -> int:
    """How many users a finished model is evaluated on: all of them, unless users × items are beyond MOST_SCORES."""
    return max(1000, MOST_SCORES // max(1, held.n_items))


@dataclass(frozen=True)
class Evaluator:
    """Scores every replica's lists against one held-out part, with what users already know left out."""

    truth: Interactions
    exclude: Interactions
    hot: np.ndarray
    ks: tuple[int, ...]
    sample: int | None = None
    """How many users are evaluated; None means all that have held-out items."""

    @cached_property
    def users(self) -> np.ndarray:
        """Who is evaluated, ascending: a sample depends on the held-out part alone, never on a training seed."""
        return sampled(np.flatnonzero(self.truth.activity > 0), self.sample)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about who was evaluated."""
        there = int((self.truth.activity > 0).sum())
        if len(self.users) == there:
            return ()
        return (f"Each epoch was evaluated on a sample of {len(self.users):,} of {there:,} users; test on all.",)

    def __call__(self, vectors: tuple[Tensor, Tensor]) -> list[dict[int, UserMetrics]]:
        return self.evaluate([by_product(*replica) for replica in zip(*vectors, strict=True)])

    def evaluate(self, scorers: Sequence[Score]) -> list[dict[int, UserMetrics]]:
        """The same for anything that scores: one result for each."""
        n_items, longest = self.truth.n_items, max(self.ks)
        return [
            score_sheet(top_by(score, n_items, self.users, longest, exclude=self.exclude)[0], self._sheet, self.ks)
            for score in scorers
        ]

    @cached_property
    def _sheet(self) -> AnswerSheet:
        return AnswerSheet(self.users, self.truth, np.asarray(self.hot, dtype=bool), self.exclude, shown_again=False)

    def results(self, vectors: tuple[Tensor, Tensor]) -> Results:
        """The reported metrics of a finished model."""
        return self.results_by([by_product(*replica) for replica in zip(*vectors, strict=True)])

    def results_by(self, scorers: Sequence[Score]) -> Results:
        """The same for anything that scores."""
        scored = self.evaluate(scorers)
        return {k: [Result(one[k].means(), one[k]) for one in scored] for k in self.ks}


def sampled(users: np.ndarray, sample: int | None) -> np.ndarray:
    """`sample` of the users, ascending; None: all."""
    if sample is None or sample >= len(users):
        return users
    # Sorting raw bits keeps the sample the same across numpy versions.
    drawn = np.argsort(np.random.PCG64(_SAMPLE_SEED).random_raw(len(users)), kind="stable")
    return np.sort(users[drawn[:sample]])


def best_final(
    finals: Sequence[Vectors],
    evaluator: Callable[[Vectors], list[dict[int, UserMetrics]]] | None,
    measure: Callable[[Sequence[dict[int, UserMetrics]]], np.ndarray],
) -> tuple[Vectors, list[dict[int, UserMetrics]]]:
    """Where the objective offers several models, the one that each replica does best with, and its metrics."""
    if evaluator is None:
        return finals[0], []
    scored = [evaluator(vectors) for vectors in finals]
    if len(finals) == 1:
        return finals[0], scored[0]
    winner = np.argmax([measure(one) for one in scored], axis=0)
    return (
        Vectors(*(torch.stack([side[w][r] for r, w in enumerate(winner)]) for side in zip(*finals, strict=True))),
        [scored[w][r] for r, w in enumerate(winner)],
    )
