"""The engine for several processes: MF with BPR, every user and every item row on one of the ranks.

A step: each rank takes the batch's positives of its own users, draws what their samplers look at, fetches those item
rows from their owners, chooses, and returns the gradients, which owners add up as whole numbers. So any number of ranks
gives the same bits. A batch is that of all ranks together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numba
import numpy as np
import torch
from torch import Tensor

from evenhand.samplers.auc import AVERAGE
from evenhand.training.engines import sharded_steps as steps
from evenhand.training.engines.base import Plan
from evenhand.training.engines.choices import Grouped, Optimal, Pool, Weighted
from evenhand.training.engines.numba_engine import (
    CORRECTIONS,
    alphas_from,
    alphas_into,
    choice_of,
    compiled_code,
    one_side,
    table_of,
)
from evenhand.training.engines.spread_engine import SpreadEngine, SpreadPlan
from evenhand.training.engines.steps import Moves, Table, move_tables
from evenhand.utils.world import Counts

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer

POSITIVES_A_STRIDE = 2**17
"""Positives of all ranks between two agreements on whether to stop."""


@dataclass
class Share:
    """What one rank has of a batch of one replica: n positives. Items are ids at first, then slots."""

    place: np.ndarray
    """int64 [n], ascending: where in the batch they stand."""
    users: np.ndarray
    """int64 [n], among this rank's own."""
    positives: np.ndarray
    """int64 [n]"""
    looked: np.ndarray
    """int64 [n, width]: what the sampler looks at."""
    drawn: np.ndarray
    """int64 [draws]: what all positives of the batch look at."""
    negatives: np.ndarray
    """int64 [1, n]"""
    slopes: np.ndarray
    """float32 [n]"""

    @property
    def ids(self) -> tuple[np.ndarray, ...]:
        return self.positives, self.looked.reshape(-1), self.drawn

    @property
    def contributed(self) -> tuple[np.ndarray, ...]:
        """The slots that each positive has a gradient for."""
        return self.positives, self.negatives[0]


@dataclass
class Asked:
    """The items of a batch, numbered by slots, which its shares have in the place of ids."""

    shares: Sequence[Any]
    row: np.ndarray
    """int [slots]: where each lies at its owner."""
    send: np.ndarray
    """int64 [ranks]: how many of them each rank has."""
    items: np.ndarray
    """int64 [slots]: replica · n_items + item."""
    wanted: list[np.ndarray] = field(default_factory=list)
    """Rows of its own that each rank asks this one for, once the ranks have exchanged them."""
    most: int = 0
    """The most that any rank asks any other for."""


class ShardedEngine(SpreadEngine):
    name = "sharded"

    ordered: ClassVar[bool] = False
    """Add gradients in the order of the batch, each by itself, as one process does: for tests, of many more bytes."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        batch, replicas = trainer.settings.positives, len(trainer.seeds)
        self.stride = max(1, POSITIVES_A_STRIDE // (batch * replicas))
        self._sizes = self._items.sizes.numpy()
        self._mine = int(self._sizes[self.world.rank])
        self._sides = [one_side(trainer, number, number * max(batch, trainer.negatives)) for number in (0, 1)]
        self._sums = np.zeros(self._sides[1][1].shape, dtype=np.int64)
        self._used = np.zeros((2, replicas), dtype=np.int64)
        self._slot = np.full(replicas * self._n_items, -1, dtype=np.int32)
        self._row_type = np.int32 if self._items.index == torch.int32 else np.int64
        self._ahead: Asked | None = None
        """The step that comes next."""
        self._prepare()
        held, empty = trainer.held_out, np.zeros(trainer.train.n_users + 1, dtype=np.int64)
        self._held = (empty, trainer.train.items[:0]) if held is None else (held.indptr, held.items)

    def _prepare(self) -> None:
        self._tables: Any = choice_of(self.trainer)[1]
        self._look, self._choose, self._width = _looks(self._tables)

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        assert isinstance(plan, SpreadPlan)
        with compiled_code():
            threads = min(int(numba.config.NUMBA_NUM_THREADS), torch.get_num_threads())  # type: ignore[attr-defined]
            numba.set_num_threads(threads)
            return self._run(plan, first, last)

    def _run(self, plan: SpreadPlan, first: int, last: int) -> Tensor:
        trainer, batch = self.trainer, self.trainer.settings.positives
        adam = trainer.optimisers[0]
        numbers = (trainer.rates(plan.epoch), adam.decay, trainer.l2)
        moves = Moves(*(np.array(values, dtype=np.float64) for values in numbers), *CORRECTIONS)
        users, items = (table_of(adam, side, self._sides[side]) for side in (0, 1))
        alphas_into(self._tables, trainer.samplers)
        # In whole numbers; the last batch of an epoch may be smaller than the others.
        tally = np.zeros((2, 3, len(trainer.seeds)), dtype=np.int64)
        size, done = batch, int(adam.steps[0])
        self._ahead = self._asked(plan, first)
        self._exchanged([[]] * self.world.size)
        for step in range(first, last):
            size = min(batch, trainer.pairs - step * batch)
            now, self._ahead = self._ahead, self._asked(plan, step + 1) if step + 1 < last else None
            assert now is not None
            self._step(now, size, users, items, tally[int(size < batch)])
            move_tables(size, users, items, moves, self._used, done + step - first + 1)
        adam.count(last - first)
        alphas_from(self._tables, trainer.samplers)
        whole, rest = self.world.total(torch.from_numpy(tally)).double()
        scale = torch.tensor([1 / steps.LOSS_UNIT, 1, 1], dtype=torch.float64).unsqueeze(1)
        return scale * (whole / batch + rest / size)

    def _step(self, now: Asked, size: int, users: Table, items: Table, tally: np.ndarray) -> None:
        """Everything up to the gradients of the rows that this rank holds."""
        self._learn(now.shares, self._fetched(now), now.items, size, users, tally)
        self._used[1] = 0
        back = self._return_in_order if self.ordered else self._return_whole
        back(now, users, items)

    def _shares(self, plan: SpreadPlan, step: int) -> Sequence[Share]:
        """This rank's positives of a batch, and what they look at."""
        trainer = self.trainer
        own, shared = (keys.numpy().view(np.uint64) for keys in (plan.own, plan.shared))
        shares = []
        for r in range(len(trainer.seeds)):
            place, of, positives = self._positives(plan, r, step)
            n = len(of)
            share = Share(
                place=place,
                users=of,
                positives=positives,
                looked=np.empty((n, self._width), dtype=np.int64),
                drawn=np.empty(getattr(self._tables, "draws", 0), dtype=np.int64),
                negatives=np.empty((1, n), dtype=np.int64),
                slopes=np.empty(n, dtype=np.float32),
            )
            tables = self._tables
            steps.look_shared(shared[r, step], self._n_items, share.drawn)
            if isinstance(tables, Optimal) and tables.pool.size:
                pool = tables.pool[r : r + 1]
                steps.look_shared(shared[r, step], self._n_items, pool[0])
                tables = tables._replace(pool=pool)
            self._look(tables, own[r, step], share.place, share.users, share.looked)
            shares.append(share)
        return shares

    def _positives(self, plan: SpreadPlan, r: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places in the batch, users and items of this rank's positives."""
        trainer, batch = self.trainer, self.trainer.settings.positives
        begin = step * batch
        first, last = torch.searchsorted(plan.places[r], torch.tensor([begin, begin + batch])).tolist()
        pairs = plan.order[r, first:last]
        return (plan.places[r, first:last] - begin).numpy(), trainer.users[pairs].numpy(), trainer.items[pairs].numpy()

    def _asked(self, plan: SpreadPlan, step: int) -> Asked:
        """Number all items that a step looks at by slots."""
        shares, n_items, used = self._shares(plan, step), self._n_items, 0
        asked = np.empty(sum(len(ids) for share in shares for ids in share.ids), dtype=np.int64)
        for r, share in enumerate(shares):
            for ids in share.ids:
                used = steps.place_ids(ids, r * n_items, self._slot, asked, used)
        asked, row = asked[:used], np.empty(used, dtype=self._row_type)
        send = np.zeros(self.world.size, dtype=np.int64)
        steps.order_slots(n_items, self._items.blocks.block, self.world.size, self._sizes, self._slot, asked, row, send)
        for r, share in enumerate(shares):
            for ids in share.ids:
                steps.into_slots(ids, r * n_items, self._slot)
        steps.forget_slots(asked, self._slot)
        return Asked(shares, row, send, asked)

    def _fetched(self, now: Asked) -> np.ndarray:
        """float32 [1, slots, d]: the rows of all slots, from their owners."""
        table = self.trainer.model.items.detach()
        answer = table.view(-1, table.shape[-1]).index_select(0, torch.from_numpy(np.concatenate(now.wanted)))
        lengths = [len(one) for one in now.wanted]
        return self.world.swap(answer, lengths, Counts(tuple(now.send.tolist()), now.most)).unsqueeze(0).numpy()

    def _learn(
        self, shares: Sequence[Share], rows: np.ndarray, asked: np.ndarray, size: int, users: Table, tally: np.ndarray
    ) -> None:
        """Choose the negatives, and find the slopes and the gradients of the users."""
        won = np.zeros(len(shares), dtype=np.int64)
        for r, share in enumerate(shares):
            of, table, losses = share.users, users.rows[r : r + 1], np.empty(len(share.users))
            tables = self._of_replica(r, share, asked)
            identity = np.arange(len(of))[None]
            self._choose(tables, identity, of, share.looked, table, rows, share.negatives)
            if isinstance(tables, Optimal):
                won[r] = int(2 * tables.won[0, : len(of)].sum())
            steps.slopes_of(of, share.positives, share.negatives, table, rows, size, losses, share.slopes)
            offset, hot = r * self._n_items, self.trainer.hot.numpy()
            steps.counted(of, share.negatives, losses, hot, *self._held, asked, offset, tally[:, r])
            steps.sum_users(
                r, of, share.positives, share.negatives, share.slopes, rows, users.slot, users.touched, users.times,
                users.gradient, self._used,
            )  # fmt: skip
        if isinstance(self._tables, Optimal) and self._tables.auto.any():
            share_won = self.world.total(torch.from_numpy(won)).numpy() / (2 * size * self._tables.probes)
            alpha = self._tables.alpha.astype(np.float64)
            followed = AVERAGE * alpha + (1 - AVERAGE) * share_won
            self._tables.alpha[:] = np.where(self._tables.auto, followed, alpha)

    def _of_replica(self, r: int, share: Share, asked: np.ndarray) -> Any:
        """The sampler's tables for one replica, by slot."""
        tables = self._tables
        if not isinstance(tables, Optimal):
            return tables
        mine = {name: getattr(tables, name)[r : r + 1] for name in ("alpha", "auto", "gamma", "beside", "won", "pool")}
        prior = tables.prior[r, asked % self._n_items][None]
        return tables._replace(**mine, prior=prior, drawn=share.drawn[None])

    def _return_whole(
        self, now: Asked, users: Table, items: Table, beside: Sequence[Sequence[np.ndarray]] = ()
    ) -> list[list[np.ndarray]]:
        """Return the sum of each slot: one contribution as float32, several as int64, which give the same total.

        What is to be sent `beside` to each rank goes in the same message; back comes what the others had to send.
        """
        dim, shares, row = users.rows.shape[2], now.shares, now.row
        times, place = np.zeros(len(row), dtype=np.int32), np.empty(len(row), dtype=np.int64)
        for share in shares:
            for drawn in share.contributed:
                steps.count_items(drawn, times)
        once, often = np.zeros((2, self.world.size), dtype=np.int64)
        steps.number_items(times, now.send, place, once, often)
        ones, more = np.empty((once.sum(), dim), dtype=np.float32), np.zeros((often.sum(), dim), dtype=np.int64)
        for r, share in enumerate(shares):
            self._sum(share, users.rows[r : r + 1], times, place, ones, more)
        cuts = [list(zip(np.cumsum(n) - n, np.cumsum(n), strict=True)) for n in (once, often)]
        singles, several = (row[times == 1], ones), (row[times > 1], times[times > 1], more)
        messages = [
            [*(column[a:b] for column in singles), *(column[c:d] for column in several), *(one[rank] for one in beside)]
            for rank, ((a, b), (c, d)) in enumerate(zip(*cuts, strict=True))
        ]
        at_owner = items.slot, items.touched, items.times, self._sums, self._used
        received = self._exchanged(messages)
        for single, values, many, counts, sums, *_ in received:
            once_each = np.ones(len(single), dtype=np.int32)
            steps.add_rows(single, self._mine, steps.all_in_units(values), once_each, *at_owner)
            steps.add_rows(many, self._mine, sums, counts, *at_owner)
        steps.to_gradients(self._used, self._sums, items.gradient)
        return [message[5:] for message in received]

    def _sum(
        self, share: Share, users: np.ndarray, times: np.ndarray, place: np.ndarray, ones: np.ndarray, more: np.ndarray
    ) -> None:
        """Add up what a share contributes to its slots."""
        for sign, drawn in ((-1, share.positives), (1, share.negatives[0])):
            steps.sum_items(share.users, drawn, share.slopes, np.float32(sign), users, times, place, ones, more)

    def _return_in_order(self, now: Asked, users: Table, items: Table) -> None:
        """Return every contribution by itself, for owners to add them as one process would."""
        owner, shares, row = np.repeat(np.arange(self.world.size), now.send), now.shares, now.row
        slots = np.concatenate([np.concatenate([s.positives, s.negatives[0]]) for s in shares])
        places = np.concatenate([np.concatenate([s.place, s.place]) for s in shares])
        slopes = np.concatenate([np.concatenate([-s.slopes, s.slopes]) for s in shares])
        vectors = np.concatenate([users.rows[r][np.tile(s.users, 2)] for r, s in enumerate(shares)])
        chosen = [np.flatnonzero(owner[slots] == rank) for rank in range(self.world.size)]
        messages = [[row[slots[one]], places[one], slopes[one], vectors[one]] for one in chosen]
        rows, places, slopes, vectors = (np.concatenate(part) for part in zip(*self._exchanged(messages), strict=True))
        order = np.argsort(places, kind="stable")
        steps.add_in_order(
            rows[order], self._mine, slopes[order], vectors[order], items.slot, items.touched, items.times,
            items.gradient, self._used,
        )  # fmt: skip

    def _exchanged(self, messages: Sequence[list[np.ndarray]]) -> list[list[np.ndarray]]:
        """Send arrays to every rank in one message; back come those of each, of the same dtypes and widths.

        What the next step asks for goes along.
        """
        ahead = self._ahead
        if ahead is not None:
            rows = np.split(ahead.row, np.cumsum(ahead.send)[:-1])
            messages = [[*one, np.array([ahead.send.max()]), row] for one, row in zip(messages, rows, strict=True)]
        received = list(messages)
        if not self.world.lone:
            packed = [
                np.concatenate([np.array([len(a) for a in arrays]).view(np.uint8), *map(_bytes, arrays)])
                for arrays in messages
            ]
            came = self.world.exchange([torch.from_numpy(one) for one in packed])
            received = [_unpacked(one.numpy(), messages[0]) for one in came]
        if ahead is not None:
            ahead.wanted = [one.pop() for one in received]
            ahead.most = max(int(one.pop()[0]) for one in received)
        return received


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _unpacked(message: np.ndarray, like: list[np.ndarray]) -> list[np.ndarray]:
    at = 8 * len(like)
    lengths, found = message[:at].copy().view(np.int64).tolist(), []
    for n, one in zip(lengths, like, strict=True):
        shape = (n, *one.shape[1:])
        size = one.itemsize * int(np.prod(shape))
        found.append(message[at : at + size].copy().view(one.dtype).reshape(shape))
        at += size
    return found


def _looks(tables: Weighted | Grouped | Pool | Optimal) -> tuple[Any, Any, int]:
    """How positives look, how they choose, and how many items each looks at."""
    if isinstance(tables, Optimal):
        return steps.look_optimal, steps.choose_optimal, tables.candidates + 2 * tables.probes
    if isinstance(tables, Pool):
        return steps.look_pool, steps.choose_highest, tables.candidates
    return (steps.look_grouped if isinstance(tables, Grouped) else steps.look_weighted), steps.choose_first, 1
