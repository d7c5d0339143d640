"""Evaluation where every rank holds some users and some items: the lists and metrics that any number of ranks gives.

The vectors of a few thousand users go to all ranks. Each scores its own items, keeps the best of them for each user and
sends them to the user's rank, which makes the list of what all ranks found and compares it with what was held out.
Products are taken in blocks of one shape, so that a score does not depend on how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evenhand.data.reading.wire import exchange_arrays, total
from evenhand.data.spread_log import SpreadLog
from evenhand.metrics.slots import AnswerSheet, ItemPopularity
from evenhand.metrics.users import UserMetrics, score_sheet
from evenhand.models.topk import top_items_first
from evenhand.training.evaluation import Result, Results, sampled
from evenhand.utils.world import Blocks, World

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
    exclude: SpreadLog
    hot: np.ndarray
    ks: tuple[int, ...]
    sample: int | None = None

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
            all_users=ItemPopularity.of_counts(self.exclude.popularity),
        )
        scored = score_sheet(np.concatenate(lists), sheet, self.ks)
        order = np.argsort(np.concatenate(exchange_arrays(world, [mine] * world.size)))
        return {k: self._gathered(one, order) for k, one in scored.items()}

    def _gathered(self, one: UserMetrics, order: np.ndarray) -> UserMetrics:
        """The metrics of all ranks' users, in the order of the users; what counts items is added up."""
        world, found = self.truth.world, {}
        for name, array in one.arrays().items():
            if name in one.items:
                found[name] = total(world, array)
            else:
                found[name] = np.concatenate(exchange_arrays(world, [array] * world.size))[order]
        found["users"] = self.users
        return UserMetrics.from_arrays(one.k, found)

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """What evaluated users know among this rank's items: (place of the user in `users`, the item), ascending."""
        world, items = self.truth.world, Blocks.of_items(self.truth.n_items, self.truth.world.size)
        own = self.exclude.mine
        place = np.full(own.n_users, -1)
        mine = self.users[self.truth.users.owner(self.users) == world.rank]
        place[self.truth.users.local(mine)] = np.searchsorted(self.users, mine)
        asked = place[own.users] >= 0
        whose, item = place[own.users][asked], own.items[asked].astype(np.int64)
        owner = items.owner(item)
        pairs = [np.stack([whose[owner == rank], items.local(item[owner == rank])], axis=1) for rank in range(world.size)]
        came = np.concatenate(exchange_arrays(world, pairs))
        return tuple(came[np.argsort(came[:, 0], kind="stable")].T.copy())  # type: ignore[return-value]

    def _blocks(self) -> Iterator[_Block]:
        for first in range(0, len(self.users), _AT_ONCE):
            users = self.users[first : first + _AT_ONCE]
            owner = self.truth.users.owner(users)
            yield _Block(first, users, owner, users[owner == self.truth.world.rank])

    def _lists(self, block: _Block, users: Tensor, items: Tensor, k: int) -> np.ndarray:
        """int64 [this rank's users of the block, k]: their best items."""
        world, blocks = self.truth.world, Blocks.of_items(self.truth.n_items, self.truth.world.size)
        own = users[torch.from_numpy(self.truth.users.local(block.mine))]
        came = torch.cat(world.exchange([own] * world.size))
        vectors = torch.zeros(-(-len(block.users) // _ROWS) * _ROWS, users.shape[1])
        vectors[torch.from_numpy(np.argsort(block.owner, kind="stable"))] = came
        names = torch.from_numpy(blocks.mine(world.rank))
        found = [
            self._best(block.first, vectors[row : row + _ROWS], items, names, k)
            for row in range(0, len(vectors), _ROWS)
        ]
        scores, best = (torch.cat(parts)[: len(block.users)] for parts in zip(*found, strict=True))
        to = [torch.from_numpy(np.flatnonzero(block.owner == rank)) for rank in range(world.size)]
        scores, best = (torch.cat(world.exchange([part[one] for one in to])) for part in (scores, best))
        shape = (world.size, len(block.mine), -1)
        return _merged(scores.view(shape).transpose(0, 1), best.view(shape).transpose(0, 1), k)

    def _best(self, first: int, vectors: Tensor, items: Tensor, names: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of this rank's items for a few users: scores and items [_ROWS, k], -inf and -1 where there are fewer."""
