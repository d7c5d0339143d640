"""The sharded engine in plain torch for losses whose negatives a batch shares; see `sharded_softmax` for their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.training.engines.base import Plan
from evenhand.training.engines.item_rows import in_units
from evenhand.training.engines.sharded_softmax import SLOPE, USER, through_length
from evenhand.training.engines.sharded_torch import EXACT_ROWS, Positives, ShardedTorchEngine
from evenhand.training.engines.spread_engine import SpreadPlan
from evenhand.utils import keyed

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer


class ShardedTorchSoftmaxEngine(ShardedTorchEngine):
    largest = 16_384

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._n, self._size = trainer.negatives, 1
        self._total = self._new(self._n, trainer.model.items.shape[-1])

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        loss = self.trainer.loss
        assert isinstance(loss, SoftmaxLoss)
        loss.add_up, self._loss = self._add_up, loss
        self._hot = self._new(len(self.trainer.seeds), dtype=torch.float64)
        tally = super().run(plan, first, last)
        tally[1] += self._hot
        return tally

    def _gradients(
        self, plan: SpreadPlan, step: int, size: int, tally: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        trainer, self._size = self.trainer, size
        parts = [self._positives(plan, r, step) for r in range(len(trainer.seeds))]
        drawn = trainer.samplers[0].draw_shared(keyed.uniforms(plan.shared[:, step], self._n))
        asked = [one for r, part in enumerate(parts) for one in ((r, part.items), (r, drawn[r]))]
        rows = self._items.fetch(trainer.model.items, asked)
        dim = rows.table.shape[1]
        nothing = (self._new(0), self._new(0, dim), self._new(0), self._new(0, dim))
        found, shared = [], []
        for r, part in enumerate(parts):
            at, drawn_at = rows.at[2 * r : 2 * r + 2]
            self._total.zero_()
            self._hot[r] += trainer.hot[drawn[r]].double().mean()
            negatives = rows.table[drawn_at]
            for first in range(0, len(part.users), self.block):
                found.append(self._found(r, part, at, drawn[r], negatives, rows.table, first, tally[:, r]))
            shared.append(self._of_shared(r, drawn[r], negatives))
        of_users, user, of_items, item = (torch.cat(one) for one in zip(nothing, *found, strict=True))
        returned = self._items.give_back(rows, of_items, item)
        own, given = (torch.cat(one) for one in zip(returned, *shared, strict=True))
        return (of_users, user), (own, given)

    def _found(
        self, r: int, part: Positives, at: Tensor, drawn: Tensor, negatives: Tensor, table: Tensor, first: int,
        tally: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Rows and gradients of a block's users, and of its positives; those of the negatives go into `_total`."""
        some, n = self._some(first, len(part.users))
        there = (torch.arange(self.block, device=self.device) < n).float()
        users, ids = part.users[some], drawn.view(1, 1, -1)
        both = [self.trainer.model.users.detach()[r, users], table[at[some]]]
        with torch.enable_grad():
            leaves = [one.requires_grad_() for one in both]
            each = self._loss.each(
                Scored(
                    replicas=slice(r, r + 1),
                    users=users.unsqueeze(0),
                    positives=part.items[some].unsqueeze(0),
                    negatives=ids,
                    user=leaves[0].unsqueeze(0),
                    positive=leaves[1].unsqueeze(0),
                    items=table.unsqueeze(0),
                    given=negatives.view(1, 1, *negatives.shape),
                    log_q=self.trainer.samplers[0].log_probability(ids),
                )
            )[0]
            found = torch.autograd.grad((each * there).sum() / self._size, leaves)
        self._tally(users[:n], drawn[part.place[some] % self._n][:n], each.detach().double()[:n], tally)
        pull = self._l2[r] / self._size
        of_user, of_positive = (in_units((g + pull * row.detach())[:n]) for g, row in zip(found, both, strict=True))
        return self._row(0, r, users[:n]), of_user, at[some][:n], of_positive

    def _add_up(self, slopes: Tensor, user: Tensor) -> None:
        """Add a block's part of the shared negatives' gradient; `user` is weighed by the loss's own gradient."""
        a = (slopes[0].double() * SLOPE).round_().unflatten(0, (-1, EXACT_ROWS))
        u = (user[0].double() * (self._size * USER)).round_().unflatten(0, (-1, EXACT_ROWS))
        self._total += (a.mT @ u).long().sum(0)

    def _of_shared(self, r: int, drawn: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The shared negatives that are this rank's rows, with their gradients of all ranks."""
        given = self.world.total(self._total).double() / (self._size * SLOPE * USER)
        gradient = through_length(self._loss, rows.double(), given).float() + self._l2[r] / self._n * rows
        if self.world.lone:
            return self._row(1, r, drawn), in_units(gradient)
        blocks = self._items.blocks
        mine = (blocks.owner(drawn) == self.world.rank).nonzero().squeeze(1)
        return self._row(1, r, blocks.local(drawn[mine])), in_units(gradient[mine])
