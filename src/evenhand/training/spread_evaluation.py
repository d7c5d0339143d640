"""Evaluation where every rank holds some users and some items: the lists and metrics that any number of ranks gives.

The vectors of a few thousand users go to all ranks. Each scores its own items, keeps the best of them for each user and
sends them to the user's rank, which makes the list of what all ranks found and compares it with what was held out.
Products are taken in blocks of one shape, so that a score does not depend on how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evenhand.data.reading.wire import exchange_arrays, total
from evenhand.data.spread_log import SpreadLog
from evenhand.metrics.exposure import NO_ITEM
from evenhand.metrics.slots import AnswerSheet, ItemPopularity
from evenhand.metrics.users import UserMetrics, score_sheet
from evenhand.models.topk import top_of
from evenhand.training.evaluation import Result, Results, sampled
from evenhand.utils.world import Blocks

_ROWS, _COLUMNS = 64, 4096
"""Users and items of one product."""
_WIDEST = 2**18
"""Items whose scores are held at once."""
_AT_ONCE = 2**14
"""Users whose vectors are on all ranks at once."""


@dataclass(frozen=True, eq=False)
class SpreadEvaluator:
    """`Evaluator` over ranks: called with this rank's vectors, it gives the metrics of all users on every rank."""

    truth: SpreadLog
    """What was held out."""
    exclude: SpreadLog
    """What users interacted with before, which is not recommended."""
    hot: np.ndarray
    """bool [n_items]"""
    ks: tuple[int, ...]
    sample: int | None = None
    """Evaluate this number of users only."""

    @cached_property
    def _there(self) -> np.ndarray:
        """int64, ascending: users of all ranks with held-out items."""
        has = np.zeros(self.truth.n_users, dtype=np.int64)
        has[self.truth.user_numbers] = self.truth.mine.activity > 0
        return np.flatnonzero(total(self.truth.world, has))

    @cached_property
    def users(self) -> np.ndarray:
        """Who is evaluated, ascending; the same users as in one process."""
        return sampled(self._there, self.sample)

    @property
    def notes(self) -> tuple[str, ...]:
        there = len(self._there)
        if len(self.users) == there:
            return ()
        return (f"Each epoch was evaluated on a sample of {len(self.users):,} of {there:,} users; test on all.",)

    def __call__(self, vectors: tuple[Tensor, Tensor]) -> list[dict[int, UserMetrics]]:
        return [self._evaluated(*replica) for replica in zip(*vectors, strict=True)]

    def results(self, vectors: tuple[Tensor, Tensor]) -> Results:
        """The reported metrics of a finished model."""
        scored = self(vectors)
        return {k: [Result(one[k].means(), one[k]) for one in scored] for k in self.ks}

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
