"""A log spread over processes: each rank holds the pairs of its own users, and knows what all of them add up to.

Users lie in blocks on ranks (`utils.world.Blocks`), numbered as in one process by the order of their sorted ids. The
items are known everywhere. Whatever is drawn or counted here is the same for any number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.utils.spread_arrays import exchange_arrays, exchange_ids, total, total_count
from evenhand.utils.text import count
from evenhand.utils.world import Blocks, World


@dataclass(frozen=True, eq=False)
class SpreadLog:
    """One rank's part of a log, beside what every rank knows of the whole."""

    world: World
    users: Blocks
    """Which rank holds which of all users."""
    mine: Interactions
    """The pairs of this rank's users, who are numbered 0, 1, … in the order of their ids; items as in the whole."""

    @staticmethod
    def of(data: Interactions, world: World) -> SpreadLog:
        """This rank's part of a log that every rank has whole; in a world of one that is all of it."""
        users = Blocks.of_users(data.n_users, world.size)
        if world.size == 1:
            return SpreadLog(world, users, data)
        mine = users.mine(world.rank)
        part = data.take(users.owner(data.users) == world.rank)
        indptr = np.concatenate([[0], np.cumsum(part.activity[mine])])
        return SpreadLog(world, users, replace(part, user_ids=data.user_ids.take(pa.array(mine)), indptr=indptr))

    def __repr__(self) -> str:
        size = f"{count(self.n_users, 'user')} × {count(self.n_items, 'item')}"
        return f"SpreadLog({size}, {count(len(self), 'pair')}; rank {self.world.rank} of {self.world.size})"

    def __len__(self) -> int:
        return self._of_blocks[1]

    @property
    def n_users(self) -> int:
        """Of all ranks."""
        return self.users.n

    @property
    def n_items(self) -> int:
        return self.mine.n_items

    @property
    def notes(self) -> tuple[str, ...]:
        return self.mine.notes

    @cached_property
    def popularity(self) -> np.ndarray:
        """int64 [n_items]: how many users of all ranks interacted with each item."""
        return total(self.world, self.mine.popularity)

    @cached_property
    def user_numbers(self) -> np.ndarray:
        """int64 [mine.n_users]: the index of each of this rank's users among all."""
        return self.users.mine(self.world.rank)

    @cached_property
    def _of_blocks(self) -> tuple[np.ndarray, int]:
        """(int64 [n_blocks]: how many pairs all blocks before each one hold; how many pairs there are)."""
        n_blocks = -(-self.users.n // self.users.block)
        counts = np.zeros(n_blocks, dtype=np.int64)
        np.add.at(counts, self.user_numbers // self.users.block, self.mine.activity)
        ends = np.cumsum(total(self.world, counts))
        return np.concatenate([[0], ends[:-1]]).astype(np.int64), int(ends[-1]) if n_blocks else 0

    @cached_property
    def first_numbers(self) -> np.ndarray:
        """int64 [mine.n_users]: the number of each user's first pair, where the pairs of all users are counted."""
        block = self.user_numbers // self.users.block
        within = self.mine.indptr[:-1] - self.mine.indptr[:-1][np.searchsorted(block, block)]
        return self._of_blocks[0][block] + within

    @cached_property
    def pair_numbers(self) -> np.ndarray:
        """int64 [pairs of this rank], ascending: the number of each pair among those of all ranks."""
        shift = np.repeat(self.first_numbers - self.mine.indptr[:-1], self.mine.activity)
        return shift + np.arange(len(self.mine))

    def random_keys(self, seed: int) -> np.ndarray:
        """uint64 [pairs of this rank]: the same for a pair, wherever it lies."""
        keys, first, activity = np.empty(len(self.mine), dtype=np.uint64), self.first_numbers, self.mine.activity
        if not len(keys):
            return keys
        # A run of users whose pairs follow one another is a piece of the stream; in one process all of it.
        runs = np.flatnonzero(np.append(True, first[1:] != first[:-1] + activity[:-1]))
        ends = [*self.mine.indptr[runs[1:]].tolist(), len(keys)]
        for user, end in zip(runs.tolist(), ends, strict=True):
            begin = int(self.mine.indptr[user])
            keys[begin:end] = np.random.PCG64(seed).advance(int(first[user])).random_raw(end - begin)
        return keys

    def take(self, mask: np.ndarray) -> SpreadLog:
        """The pairs of this rank where `mask` is true, and those that the other ranks take."""
        return SpreadLog(self.world, self.users, self.mine.take(mask))

    def union(self, other: SpreadLog) -> SpreadLog:
        """All pairs of both, over one vocabulary."""
        return SpreadLog(self.world, self.users, self.mine.union(other.mine))

    @property
    def item_ids(self) -> pa.Array:
        return self.mine.item_ids

    @cached_property
    def active_users(self) -> int:
        """How many users of all ranks have a pair."""
        return total_count(self.world, self.mine.active_users)

    def gathered(self) -> Interactions:
        """All of it, on every rank: for logs of moderate size."""
        if self.world.size == 1:
            return self.mine
        whose = np.repeat(self.user_numbers, self.mine.activity)

        def of_all(values: np.ndarray) -> np.ndarray:
            return np.concatenate(exchange_arrays(self.world, [values] * self.world.size))

        ids = pa.concat_arrays(exchange_ids(self.world, [self.mine.user_ids] * self.world.size))
        order = np.argsort(of_all(self.user_numbers))
        ratings, times = self.mine.ratings, self.mine.timestamps
        return Interactions.from_pairs(
            of_all(whose),
            of_all(self.mine.items),
            ratings=None if ratings is None else of_all(ratings),
            timestamps=None if times is None else of_all(times),
            user_ids=ids.take(pa.array(order)),
            item_ids=self.mine.item_ids,
            notes=self.notes,
        )
