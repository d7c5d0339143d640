"""The sharded engine for losses whose negatives a batch shares: every rank fetches their rows and its positives' once.

Positives go through the objective in blocks of one shape, so that what becomes of one does not depend on its
neighbours. The gradient of a shared negative is a sum over all positives of the batch: both factors of its terms are
rounded to so few bits that float64 adds up a block of them without rounding, and whole numbers add up the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.training.engines import sharded_steps as steps
from evenhand.training.engines.base import Plan
from evenhand.training.engines.rows_engine import CompiledMargins
from evenhand.training.engines.sharded import Asked, ShardedEngine, Share
from evenhand.training.engines.softmax_rows import (
    add_columns,
    add_whole,
    own_scores,
    row_gradients,
    unit_rows,
    whole_factors,
)
from evenhand.training.engines.spread_engine import SpreadPlan
from evenhand.training.engines.steps import Table
from evenhand.utils import keyed
from evenhand.utils.world import Blocks

BLOCK = 352
"""Positives that are multiplied with the negatives together; the sums of up to 512 are exact.

A multiple of 32, as torch takes what is left over from so many numbers one by one, to other bits. A little more than a
third of a power of 2, so that a rank's part of a usual batch does not begin a block for a few positives.
"""
SLOPE, USER = 2.0**20, 2.0**19
"""Parts of 1 that slopes (of one positive) and users' vectors are rounded to before they are multiplied."""


@dataclass(frozen=True)
class Distinct:
    """The items among shared negatives, in the order of the ranks that own them."""

    ids: np.ndarray
    """int64 [m]"""
    which: np.ndarray
    """int64 [negatives]: where each negative stands among them."""
    times: np.ndarray
    """int64 [m]: how often each was drawn."""
    cuts: np.ndarray
    """int64 [ranks + 1]: where those of each rank begin."""

    @staticmethod
    def of(drawn: np.ndarray, blocks: Blocks) -> Distinct:
        ids, which, times = np.unique(drawn, return_inverse=True, return_counts=True)
        owner = blocks.owner(ids)
        order = np.argsort(owner, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        cuts = np.searchsorted(owner[order], np.arange(blocks.size + 1))
        return Distinct(ids[order], place[which], times[order], cuts)


@dataclass
class SharedShare(Share):
    """A share whose positives have gradients of their own, found by the objective."""

    ids_drawn: np.ndarray
    """int64 [negatives]: the shared negatives by id; `drawn` becomes their slots."""
    distinct: Distinct
    of_users: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    """float32 [n, d]: gradients of the users of the positives, and of the positives."""
    of_positives: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    @property
    def contributed(self) -> tuple[np.ndarray, ...]:
        return (self.positives,)


class ShardedSoftmaxEngine(ShardedEngine):
    name = "sharded"

    def _prepare(self) -> None:
        trainer, self._tables = self.trainer, None
        self._n = trainer.negatives
        dim = trainer.model.items.shape[-1]
        self._total = np.zeros((dim, self._n), dtype=np.int64)
        self._scores = torch.empty(BLOCK, self._n)
        self._whole = [torch.empty(BLOCK, n, dtype=torch.float64) for n in (self._n, dim)]
        self._product = torch.empty(dim, self._n, dtype=torch.float64)
        self._size, self._hot = 1, np.zeros(len(trainer.seeds))
        self._margins = CompiledMargins(trainer.train, self._n)

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        loss = self.trainer.loss
        assert isinstance(loss, SoftmaxLoss)
        loss.compiled, self._loss = self._margins, loss
        self._hot[:] = 0
        tally = super().run(plan, first, last)
        tally[1] += torch.from_numpy(self._hot)  # the same on every rank
        return tally

    def _shares(self, plan: SpreadPlan, step: int) -> Sequence[SharedShare]:
        negatives, shares = self.trainer.samplers[0].draw_shared(keyed.uniforms(plan.shared[:, step], self._n)), []
        for r, drawn in enumerate(negatives.numpy()):
            place, of, positives = self._positives(plan, r, step)
            nothing = np.empty((len(of), 0), dtype=np.int64)
            none = np.empty((1, 0), dtype=np.int64), np.empty(0, dtype=np.float32)
            self._hot[r] += self.trainer.hot.numpy()[drawn].mean()
            distinct = Distinct.of(drawn, self._items.blocks)
            shares.append(
                SharedShare(place, of, positives, nothing, drawn.copy(), *none, ids_drawn=drawn, distinct=distinct)
            )
        return shares

    def _step(self, now: Asked, size: int, users: Table, items: Table, tally: np.ndarray) -> None:
        self._size, shares = size, now.shares
        rows, sums = self._fetched(now)[0], []
        self._used[:] = 0
        for r, share in enumerate(shares):
            losses = self._differentiate(r, share, rows, users.rows[r])
            sums.append(self._sums_of_shared(share))
            nearby = share.ids_drawn[share.place % self._n]
            steps.counted_of(share.users, nearby, losses, *self._held, tally[:, r])
            steps.sum_given_users(
                r, share.users, share.of_users, users.slot, users.touched, users.times, users.gradient, self._used
            )
        received = self._return_whole(now, users, items, sums)
        for r, share in enumerate(shares):
            total = np.sum([message[r] for message in received], axis=0)
            self._add_shared(r, share, total, self.trainer.model.items.detach()[r], items)

    def _sum(
        self, share: Share, users: np.ndarray, times: np.ndarray, place: np.ndarray, ones: np.ndarray, more: np.ndarray
    ) -> None:
        assert isinstance(share, SharedShare)
        steps.sum_given(share.positives, share.of_positives, times, place, ones, more)

    def _differentiate(self, r: int, share: SharedShare, rows: np.ndarray, users: np.ndarray) -> np.ndarray:
        """float64 [n]: the losses of a share; their gradients go into the share and into `_total`."""
        n, dim, cosine = len(share.users), rows.shape[1], self._loss.of.similarity == "cosine"
        full = -(-n // BLOCK) * BLOCK
        user, positive, of_user, of_positive = (np.empty((full, dim), dtype=np.float32) for _ in range(4))
        numbers = np.empty((7, full), dtype=np.float32)
        user_length, positive_length, own, losses, of_margin, of_own, total = numbers
        negative, ids = np.empty((self._n, dim), dtype=np.float32), torch.from_numpy(share.ids_drawn).view(1, 1, -1)
        unit_rows(users, share.users, cosine, user, user_length)
        unit_rows(rows, share.positives, cosine, positive, positive_length)
        unit_rows(rows, share.drawn, cosine, negative, np.empty(self._n, dtype=np.float32))
        own_scores(user, positive, own)
        self._total[:] = 0
        given, log_q = torch.from_numpy(negative), self.trainer.samplers[0].log_probability(ids)
        of = torch.from_numpy(share.users[np.minimum(np.arange(full), n - 1)]) if n else torch.empty(0)
        vectors, positives, found, (_, _, mine, loss, by_margin, by_own, _) = (
            torch.from_numpy(x) for x in (user, positive, of_user, numbers)
        )
        for first in range(0, n, BLOCK):
            some = slice(first, first + BLOCK)
            block = Scored(
                replicas=slice(r, r + 1),
                users=of[some].unsqueeze(0),
                positives=of.new_empty(0),
                negatives=ids,
                user=vectors[some].unsqueeze(0),
                positive=positives[some].unsqueeze(0),
                items=given.unsqueeze(0),
                given=given.view(1, 1, -1, dim),
                log_q=log_q,
            )
            torch.mm(vectors[some], given.T, out=self._scores)
            slopes, margin = self._loss.margins(block, self._scores.unsqueeze(0), mine[some].unsqueeze(0))
            loss[some], by_margin[some], by_own[some] = self._loss.sloped(margin, mine[some].unsqueeze(0), block)
            of_margin[n:] = 0  # what only fills the block has no weight
            torch.mm(slopes[0], given, out=found[some])
            self._add_up(slopes[0].numpy(), of_margin[some], user[some], total[some])
        row_gradients(
            of_margin, of_own, total, np.float32(self._size), cosine, user, positive, user_length, positive_length,
            of_user, of_positive,
        )  # fmt: skip
        share.of_users, share.of_positives = of_user[:n], of_positive[:n]
        return losses[:n].astype(np.float64)

    def _add_up(self, slopes: np.ndarray, weight: np.ndarray, user: np.ndarray, total: np.ndarray) -> None:
        """Add a block's part of the shared negatives' gradient, and find the sum of each positive's slopes."""
        a, u = self._whole
        whole_factors(slopes, weight, user, np.float32(SLOPE), USER, total, a.numpy(), u.numpy())
        add_whole(torch.mm(u.T, a, out=self._product).numpy(), self._total)

    def _sums_of_shared(self, share: SharedShare) -> list[np.ndarray]:
        """int64 [items, d] for each rank: the gradients of the shared negatives that it has."""
        sums = np.zeros((len(share.distinct.ids), len(self._total)), dtype=np.int64)
        add_columns(self._total, share.distinct.which, sums)
        return np.split(sums, share.distinct.cuts[1:-1])

    def _add_shared(self, r: int, share: SharedShare, sums: np.ndarray, table: Tensor, items: Table) -> None:
        """At the owner: turn the sums of all ranks into gradients of rows."""
        mine = slice(*share.distinct.cuts[self.world.rank : self.world.rank + 2])
        row = self._items.blocks.local(share.distinct.ids[mine])
        weight = (share.distinct.times[mine] * (self._size / self._n)).astype(np.float32)
        given = torch.from_numpy(sums).double() / (self._size * SLOPE * USER)
        gradient = through_length(self._loss, table[torch.from_numpy(row)].double(), given).float().numpy()
        at_owner = items.slot, items.touched, items.times, items.gradient, self._used
        steps.add_shared(r, row, gradient, weight, *at_owner)


def through_length(loss: SoftmaxLoss, raw: Tensor, given: Tensor) -> Tensor:
    """The gradients of rows [n, d] from those of the vectors which the loss makes of them."""
    if loss.of.similarity != "cosine":
        return given
    length = torch.linalg.vector_norm(raw, dim=1, keepdim=True).clamp_min(1e-12)
    unit = raw / length
    return (given - (given * unit).sum(1, keepdim=True) * unit) / length
