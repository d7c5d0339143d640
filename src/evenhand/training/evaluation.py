"""Evaluation during training: every replica's lists against one held-out part, in one process or over ranks.

Over ranks the vectors of a few thousand users go to all of them. Each scores its own items, keeps the best of them for
each user and sends them to the user's rank, which makes the list of what all ranks found and compares it with what was
held out. Products are taken in blocks of one shape, so that a score does not depend on how many ranks there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders.base import Vectors
from evenhand.metrics.evaluate import UserMetrics, score_sheet
from evenhand.metrics.formulas import NO_ITEM
from evenhand.metrics.slots import AnswerSheet, ItemPopularity
from evenhand.models.topk import Score, by_product, top_by, top_of
from evenhand.utils.spread_arrays import exchange_arrays, total
from evenhand.utils.world import Blocks

_SAMPLE_SEED = 0
"""Draws the users of a sample, where only some are evaluated."""
MOST_SCORES = 2 * 10**10
"""Users × items that one evaluation of a finished model scores at most: about half a minute of one CPU core."""
SCORES_EACH_EPOCH, FEWEST_USERS, MOST_USERS = 2 * 10**8, 2000, 20_000
"""Users × items that one epoch scores at most, about a third of a second of two cores, and users in any case."""
_ROWS, _COLUMNS = 64, 4096
"""Users and items of one product."""
_WIDEST = 2**18
"""Items whose scores are held at once."""
_AT_ONCE = 2**14
"""Users whose vectors are on all ranks at once."""
Log = TypeVar("Log", Interactions, SpreadLog)


@dataclass(frozen=True)
class Result:
    """One replica at one k: the metrics as reported, and the users behind them."""

    metrics: dict[str, float]
    users: UserMetrics


Results = dict[int, list[Result]]
"""k → one result per replica."""


def reported(scored: Sequence[dict[int, UserMetrics]]) -> Results:
    """The metrics of a finished model's replicas."""
    return {k: [Result(one[k].means(), one[k]) for one in scored] for k in scored[0]}


def users_within_reach(held: Interactions | SpreadLog) -> int:
    """How many users a finished model is evaluated on: all of them, unless users × items are beyond MOST_SCORES."""
    return max(1000, MOST_SCORES // max(1, held.n_items))


def users_each_epoch(held: Interactions | SpreadLog) -> int:
    """How many users each epoch is evaluated on, unless the settings say otherwise."""
    return min(MOST_USERS, max(FEWEST_USERS, SCORES_EACH_EPOCH // max(1, held.n_items)))


@dataclass(frozen=True, eq=False)
class HeldOutEvaluator(ABC, Generic[Log]):
    """Scores every replica's lists against one held-out part, with what users already know left out."""

    truth: Log
    """What was held out."""
    exclude: Log
    """What users interacted with before, which is not recommended."""
    hot: np.ndarray
    """bool [n_items]"""
    ks: tuple[int, ...]
    sample: int | None = None
    """How many users are evaluated; None means all that have held-out items."""

    @abstractmethod
    def __call__(self, vectors: tuple[Tensor, Tensor]) -> list[dict[int, UserMetrics]]:
        """The metrics of each replica by k."""

    @cached_property
    @abstractmethod
    def _there(self) -> np.ndarray:
        """int64, ascending: users with held-out items."""

    @cached_property
    def users(self) -> np.ndarray:
        """Who is evaluated, ascending: a sample depends on the held-out part alone, never on a training seed."""
        return sampled(self._there, self.sample)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about who was evaluated."""
        there = len(self._there)
        if len(self.users) == there:
            return ()
        return (f"Each epoch was evaluated on a sample of {len(self.users):,} of {there:,} users; test on all.",)


class Evaluator(HeldOutEvaluator[Interactions]):
    """In one process."""

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
    def _there(self) -> np.ndarray:
        return np.flatnonzero(self.truth.activity > 0)

    @cached_property
    def _sheet(self) -> AnswerSheet:
        return AnswerSheet(self.users, self.truth, np.asarray(self.hot, dtype=bool), self.exclude, shown_again=False)


class SpreadEvaluator(HeldOutEvaluator[SpreadLog]):
    """Over ranks: called with this rank's vectors, it gives the metrics of all users on every rank."""

    @cached_property
    def _there(self) -> np.ndarray:
        has = np.zeros(self.truth.n_users, dtype=np.int64)
        has[self.truth.user_numbers] = self.truth.mine.activity > 0
        return np.flatnonzero(total(self.truth.world, has))

    def __call__(self, vectors: tuple[Tensor, Tensor]) -> list[dict[int, UserMetrics]]:
        return [self._evaluated(*replica) for replica in zip(*vectors, strict=True)]

    def _evaluated(self, users: Tensor, items: Tensor) -> dict[int, UserMetrics]:
        world, k = self.truth.world, max(self.ks)
        lists = [self._lists(block, users, items, k) for block in self._blocks()]
        mine = np.concatenate([block.mine for block in self._blocks()])
        sheet = AnswerSheet(
            self.truth.users.local(mine),
            self.truth.mine,
            np.asarray(self.hot, dtype=bool),
            self.exclude.mine,
            shown_again=False,
            all_users=ItemPopularity.of(self.exclude, self.exclude.n_items),
        )
        scored = score_sheet(np.concatenate(lists), sheet, self.ks)
        order = np.argsort(np.concatenate(exchange_arrays(world, [mine] * world.size)))
        return {k: replace(one.gathered(world, order), users=self.users) for k, one in scored.items()}

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """What evaluated users know among this rank's items: (place of the user in `users`, the item), ascending."""
        came = np.concatenate(exchange_arrays(self.truth.world, self._known_by_rank()))
        order = np.argsort(came[:, 0], kind="stable")
        return came[order, 0], came[order, 1]

    def _known_by_rank(self) -> list[np.ndarray]:
        """int32 [pairs, 2]: what this rank's evaluated users know among the items of each."""
        world, own = self.truth.world, self.exclude.mine
        items = Blocks.of_items(self.truth.n_items, world.size)
        place = np.full(own.n_users, -1, dtype=np.int32)
        mine = self.users[self.truth.users.owner(self.users) == world.rank]
        place[self.truth.users.local(mine)] = np.searchsorted(self.users, mine)
        asked, owner, local = place[own.users] >= 0, items.owner(own.items), items.local(own.items)
        to = (asked & (owner == rank) for rank in range(world.size))
        return [np.stack([place[own.users[one]], local[one]], axis=1) for one in to]

    def _blocks(self) -> Iterator[_Block]:
        for first in range(0, len(self.users), _AT_ONCE):
            users = self.users[first : first + _AT_ONCE]
            owner = self.truth.users.owner(users)
            yield _Block(first, users, owner, users[owner == self.truth.world.rank])

    def _lists(self, block: _Block, users: Tensor, items: Tensor, k: int) -> np.ndarray:
        """int64 [this rank's users of the block, k]: their best items."""
        world = self.truth.world
        mine = users[torch.from_numpy(self.truth.users.local(block.mine)).to(users.device)]
        came = torch.cat(world.exchange([mine] * world.size))
        vectors = came.new_zeros(-(-len(block.users) // _ROWS) * _ROWS, users.shape[1])
        vectors[torch.from_numpy(np.argsort(block.owner, kind="stable")).to(came.device)] = came
        found = [
            self._best(block.first + row, vectors[row : row + _ROWS], items, k) for row in range(0, len(vectors), _ROWS)
        ]
        scores, best = (np.concatenate(parts)[: len(block.users)] for parts in zip(*found, strict=True))
        to = [block.owner == rank for rank in range(world.size)]
        scores, best = (
            np.concatenate(exchange_arrays(world, [part[one] for one in to])).reshape(world.size, len(block.mine), k)
            for part in (scores, best)
        )
        return _merged(list(scores), list(best), k)[1]

    def _best(self, first: int, vectors: Tensor, items: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of this rank's items for a few users from place `first` on: scores and items [n, k]."""
        names = Blocks.of_items(self.truth.n_items, self.truth.world.size).mine(self.truth.world.rank)
        whose, known = self._known
        here = slice(*np.searchsorted(whose, [first, first + len(vectors)]))
        scores, found = [], []
        for begin in range(0, max(len(items), 1), _WIDEST):
            some = items[begin : begin + _WIDEST]
            columns = items.new_zeros(-(-len(some) // _COLUMNS) * _COLUMNS, items.shape[1])
            columns[: len(some)] = some
            score = torch.cat([vectors @ part.T for part in columns.split(_COLUMNS)], dim=1)[:, : len(some)]
            inside = (known[here] >= begin) & (known[here] < begin + len(some))
            score[whose[here][inside] - first, known[here][inside] - begin] = -torch.inf
            items_of, values = top_of(score.nan_to_num_(-torch.inf), min(k, len(some)))
            scores.append(values.cpu().numpy())
            found.append(names[begin : begin + len(some)][items_of.cpu().numpy()])
        return _merged(scores, found, k)


@dataclass(frozen=True, eq=False)
class _Block:
    """Users who are evaluated together."""

    first: int
    """Where in all evaluated users they begin."""
    users: np.ndarray
    owner: np.ndarray
    mine: np.ndarray
    """Those of this rank."""


def _merged(scores: Sequence[np.ndarray], items: Sequence[np.ndarray], k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of several lists [n, …] each, of equal ones the lowest item first; -inf and -1 where few are left."""
    n = len(scores[0])
    score = np.concatenate([*scores, np.full((n, k), -np.inf, dtype=np.float32)], axis=1)
    item = np.concatenate([*items, np.full((n, k), -1)], axis=1)
    order = np.lexsort((item, -score), axis=1)[:, :k]
    score, item = (np.take_along_axis(part, order, axis=1) for part in (score, item))
    return score, np.where(np.isneginf(score), NO_ITEM, item)


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
