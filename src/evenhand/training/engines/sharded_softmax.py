"""The sharded engine for losses whose negatives a batch shares: every rank fetches their rows and its positives' once.

Positives go through the objective in blocks of one shape, so that what becomes of one does not depend on its
neighbours. The gradient of a shared negative is a sum over all positives of the batch: both factors of its terms are
rounded to so few bits that float64 adds up a block of them without rounding, and whole numbers add up the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.training.engines import sharded_steps as steps
from evenhand.training.engines.base import Plan
from evenhand.training.engines.rows_engine import CompiledMargins
from evenhand.training.engines.sharded import ShardedEngine, Share, SpreadPlan
from evenhand.training.engines.steps import Table
from evenhand.utils import keyed

EXACT_ROWS = 512
"""Positives of a block: so many terms of a sum are exact."""
SLOPE, USER = 2.0**20, 2.0**19
"""Parts of 1 that slopes (of one positive) and users' vectors are rounded to before they are multiplied."""


@dataclass
class SharedShare(Share):
    """A share whose positives have gradients of their own, found by the objective."""

    ids_drawn: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64 [negatives]: the shared negatives by id; `drawn` becomes their slots."""
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
        self._total = torch.zeros(dim, self._n, dtype=torch.int64)
        self._whole = [torch.empty(EXACT_ROWS, n, dtype=torch.float64) for n in (self._n, dim)]
        self._size = 1
        self._margins = CompiledMargins(trainer.train, self._n)

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        loss = self.trainer.loss
        assert isinstance(loss, SoftmaxLoss)
        loss.compiled, loss.add_up = self._margins, self._add_up
        self._loss = loss
        tally = super().run(plan, first, last)
        for step in range(first, last):  # the same on every rank
            for r, drawn in enumerate(self._drawn(plan, step)):
                tally[1, r] += self.trainer.hot.numpy()[drawn].mean()
        return tally

    def _drawn(self, plan: Plan, step: int) -> list[np.ndarray]:
        """The shared negatives of each replica in a step."""
        drawn = self.trainer.samplers[0].draw_shared(keyed.uniforms(plan.shared[:, step], self._n))
        return [one.numpy().copy() for one in drawn]

    def _step(self, plan: SpreadPlan, step: int, size: int, users: Table, items: Table, tally: np.ndarray) -> None:
        trainer, self._size = self.trainer, size
        shares = []
        for r, drawn in enumerate(self._drawn(plan, step)):
            place, of, positives = self._positives(plan, r, step, size)
            nothing = np.empty((len(of), 0), dtype=np.int64)
            none = np.empty((1, 0), dtype=np.int64), np.empty(0, dtype=np.float32)
            shares.append(SharedShare(place, of, positives, nothing, drawn, *none, ids_drawn=drawn.copy()))
        row, send, _ = self._slots(shares)  # type: ignore[arg-type]
        rows = torch.from_numpy(self._fetched(row, send)[0])
        shared = []
        self._used[:] = 0
        for r, share in enumerate(shares):
            losses = self._differentiate(r, share, rows, torch.from_numpy(users.rows[r]))
            shared.append(self._total.T.contiguous())
            nearby = share.ids_drawn[share.place % self._n]
            steps.counted_of(share.users, nearby, losses, *self._held, tally[:, r])
            steps.sum_given_users(
                r, share.users, share.of_users, users.slot, users.touched, users.times, users.gradient, self._used
            )
        self._return_whole(shares, row, send, users, items)  # type: ignore[arg-type]
        for r, share in enumerate(shares):
            self._return_shared(r, share, shared[r], trainer.model.items.detach()[r], items)

    def _sum(
        self, share: Share, users: np.ndarray, times: np.ndarray, place: np.ndarray, ones: np.ndarray, more: np.ndarray
    ) -> None:
        assert isinstance(share, SharedShare)
        steps.sum_given(share.positives, share.of_positives, times, place, ones, more)

    def _differentiate(self, r: int, share: SharedShare, rows: Tensor, users: Tensor) -> np.ndarray:
        """float64 [n]: the losses of a share; their gradients go into the share and into `_total`."""
        n, dim = len(share.users), rows.shape[1]
        self._total.zero_()
        share.of_users, share.of_positives = np.empty((n, dim), np.float32), np.empty((n, dim), np.float32)
        ids, losses = torch.from_numpy(share.ids_drawn).view(1, 1, -1), np.empty(n)
        negatives = rows[torch.from_numpy(share.drawn)].view(1, 1, -1, dim)
        log_q = self.trainer.samplers[0].log_probability(ids)
        for first in range(0, n, EXACT_ROWS):
            some = np.minimum(np.arange(first, first + EXACT_ROWS), n - 1)
            there = torch.from_numpy((np.arange(first, first + EXACT_ROWS) < n).astype(np.float32))
            of, positive = torch.from_numpy(share.users[some]), torch.from_numpy(share.positives[some])
            both = [users[of].requires_grad_(), rows[positive].requires_grad_()]
            each = self._loss.each(
                Scored(
                    replicas=slice(r, r + 1),
                    users=of.unsqueeze(0),
                    positives=positive.unsqueeze(0),
                    negatives=ids,
                    user=both[0].unsqueeze(0),
                    positive=both[1].unsqueeze(0),
                    items=rows.unsqueeze(0),
                    given=negatives,
                    log_q=log_q,
                )
            )[0]
            found = torch.autograd.grad((each * there).sum() / self._size, both)
            last = min(first + EXACT_ROWS, n)
            share.of_users[first:last], share.of_positives[first:last] = (g[: last - first].numpy() for g in found)
            losses[first:last] = each.detach().double()[: last - first].numpy()
        return losses

    def _add_up(self, slopes: Tensor, user: Tensor) -> None:
        """Add a block's part of the shared negatives' gradient; `user` is weighed by the loss's own gradient."""
        a, u = self._whole
        torch.mul(slopes[0], SLOPE, out=a).round_()
        torch.mul(user[0].double(), self._size * USER, out=u).round_()
        self._total += (u.T @ a).long()

    def _return_shared(self, r: int, share: SharedShare, total: Tensor, table: Tensor, items: Table) -> None:
        """Add up the shared negatives' gradients at their owners, where they become those of the rows."""
        ids, which, counts = np.unique(share.ids_drawn, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(ids), total.shape[1], dtype=torch.int64).index_add_(0, torch.from_numpy(which), total)
        owner = self._items.owner(ids)
        parts = self.world.exchange([sums[torch.from_numpy(owner == rank)] for rank in range(self.world.size)])
        mine = ids[owner == self.world.rank]
        row = self._items.local(mine)
        given = torch.stack(parts).sum(0).double() / (self._size * SLOPE * USER)
        weight = (counts[owner == self.world.rank] * (self._size / self._n)).astype(np.float32)
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
