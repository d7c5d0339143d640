"""The sharded engine in plain torch, for processes that have a GPU each: the steps of `sharded` on the device.

Positives go through choice and loss in blocks of one shape, so that what becomes of one does not depend on how many
lie on a rank. Gradients of users and items are added up as whole multiples of 2⁻⁵⁰. So any number of ranks gives the
same bits. A rank alone asks nobody, and no step of its waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.samplers.auc import AVERAGE, AUCBound
from evenhand.samplers.base import Batch, Looked, LookingSampler
from evenhand.training.engines.base import Plan
from evenhand.training.engines.fused_tables import LAST, corrections
from evenhand.training.engines.sharded_softmax import SLOPE, USER, through_length
from evenhand.training.engines.spread_engine import SpreadEngine, SpreadPlan, from_units, in_units
from evenhand.utils import keyed

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer

EXACT_ROWS = 256
"""A block has a multiple of so many positives, as many as have exact sums where they share negatives."""
_LOSS_UNIT = 2.0**30
"""Parts of 1 that losses are counted in, as in `sharded_steps`."""
_POSITIVES_A_STRIDE = 2**22
"""Positives of all ranks between two agreements on whether to stop, for which each waits for its device."""


@dataclass(frozen=True)
class Positives:
    """What one rank has of a batch of one replica."""

    place: Tensor
    """int64 [n], ascending: where in the batch they stand."""
    users: Tensor
    """int64 [n], among this rank's own."""
    items: Tensor
    """int64 [n]"""


class ShardedTorchEngine(SpreadEngine):
    name = "sharded"

    largest: ClassVar[int] = 65_536
    """Positives that go through the choice together, at most."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.device, replicas = trainer.device, len(trainer.seeds)
        self.stride = max(1, _POSITIVES_A_STRIDE // (trainer.settings.positives * replicas))
        # A little more than a fourth of a batch, whatever the number of ranks.
        self.block = min(self.largest, -(-trainer.settings.positives * 9 // (32 * EXACT_ROWS)) * EXACT_ROWS)
        self._slot = [self._new(p.shape[0] * p.shape[1], dtype=torch.int32) for p in trainer.model.parameters()]
        self._unbias = [corrections(beta, root).to(self.device) for beta, root in ((0.9, 1), (0.999, 0.5))]
        self._won, self._kept = self._new(replicas), 0
        for r, sampler in enumerate(trainer.samplers):
            if isinstance(sampler, AUCBound) and sampler.follows:
                sampler.won = partial(self._notice, r)
        self._plan: SpreadPlan | None = None
        self._cuts: list[list[int]] = []

    def _new(self, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    @torch.no_grad()
    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        assert isinstance(plan, SpreadPlan)
        trainer, batch = self.trainer, self.trainer.settings.positives
        if plan is not self._plan:
            ends = torch.arange(trainer.steps + 1, device=self.device).mul_(batch).clamp_max_(trainer.pairs)
            self._plan = plan
            self._cuts = [torch.searchsorted(places, ends).tolist() for places in plan.places]
        adam = trainer.optimisers[0]
        self._rates, self._decay, self._l2 = (
            torch.tensor(numbers, dtype=torch.float32, device=self.device)
            for numbers in (trainer.rates(plan.epoch), adam.decay, trainer.l2)
        )
        # In whole numbers; the last batch of an epoch may be smaller than the others.
        tally = self._new(2, 3, len(trainer.seeds))
        size, done = batch, int(adam.steps[0])
        for step in range(first, last):
            size = min(batch, trainer.pairs - step * batch)
            done += 1
            users, items = self._gradients(plan, step, size, tally[int(size < batch)])
            self._move(0, *users, done)
            self._move(1, *items, done)
        adam.count(last - first)
        whole, rest = self.world.total(tally).double()
        scale = torch.tensor([1 / _LOSS_UNIT, 1, 1], dtype=torch.float64, device=self.device).unsqueeze(1)
        return scale * (whole / batch + rest / size)

    def _gradients(
        self, plan: SpreadPlan, step: int, size: int, tally: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Rows of this rank's users, and of its items, with gradients in units for them; a row may come often."""
        parts = [self._positives(plan, r, step) for r in range(len(self.trainer.seeds))]
        looks, asked = [], []
        for r, part in enumerate(parts):
            sampler = self._sampler(r)
            width = sampler.width(1)
            positions = part.place.unsqueeze(1) * width + torch.arange(width, device=self.device)
            uniforms = keyed.uniforms_at(plan.own[r, step], positions)
            shared = sampler.look_shared(keyed.uniforms(plan.shared[r : r + 1, step], sampler.shared_width))
            looked = sampler.look(part.users.unsqueeze(0), uniforms.unsqueeze(0), 1, shared)[0]
            shared = shared[0, : sampler.draws] if isinstance(sampler, AUCBound) else shared[0]
            looks.append((looked, shared))
            asked += [(r, part.items), (r, looked), (r, shared)]
        rows = self._items.fetch(self.trainer.model.items, asked)
        found = []
        self._won.zero_()
        for r, part in enumerate(parts):
            positive, at, shared_at = rows.at[3 * r : 3 * r + 3]
            sees = Looked(*looks[r], at, shared_at)
            for first in range(0, len(part.users), self.block):
                found.append(self._block(r, part, positive, sees, rows.table, first, size, tally[:, r]))
        self._follow(size)
        dim = rows.table.shape[1]
        nothing = (self._new(0), self._new(0, dim), self._new(0), self._new(0, dim))
        of_users, user, of_items, item = (torch.cat(one) for one in zip(nothing, *found, strict=True))
        return (of_users, user), self._items.give_back(rows, of_items, item)

    def _sampler(self, r: int) -> LookingSampler:
        sampler = self.trainer.samplers[r]
        assert isinstance(sampler, LookingSampler)
        return sampler

    def _positives(self, plan: SpreadPlan, r: int, step: int) -> Positives:
        first, last = self._cuts[r][step : step + 2]
        pairs = plan.order[r, first:last]
        place = plan.places[r, first:last] - step * self.trainer.settings.positives
        return Positives(place, self.trainer.users[pairs], self.trainer.items[pairs])

    def _some(self, first: int, n: int) -> tuple[Tensor, int]:
        """The places of a block, the last one repeated where too few are left; how many there are."""
        return torch.arange(first, first + self.block, device=self.device).clamp_max_(n - 1), min(self.block, n - first)

    def _block(
        self, r: int, part: Positives, positive: Tensor, looked: Looked, table: Tensor, first: int, size: int,
        tally: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Rows and gradients of a block's users, and of its items, which are rows of `table`."""
        some, n = self._some(first, len(part.users))
        users = part.users[some]
        mine = (looked.items[some], looked.shared, looked.rows[some], looked.shared_rows)
        sees, vectors = Looked(*(x.unsqueeze(0) for x in mine)), self.trainer.model.users.detach()[r : r + 1]
        batch = Batch(
            users=users.unsqueeze(0),
            positives=None,
            uniforms=users.new_empty(0),
            shared=users.new_empty(0),
            user_vectors=vectors,
            item_vectors=table.unsqueeze(0),
        )
        self._kept = n
        column = self._sampler(r).pick(batch, sees)[0]
        negative, negative_at = (x[0].gather(1, column).squeeze(1) for x in (sees.items, sees.rows))
        positive_at = positive[some]
        u, p, q = vectors[0, users], table[positive_at], table[negative_at]
        margin = ((u * q).sum(1) - (u * p).sum(1)).double()
        loss = margin.clamp_min(0) + (-margin.abs()).exp().log1p()
        self._tally(users[:n], negative[:n], loss[:n], tally)
        tally[1] += self.trainer.hot[negative[:n]].sum()
        slope = (torch.sigmoid(margin) / size).float().unsqueeze(1)
        pull = self._l2[r] / size
        of_user, of_positive, of_negative = slope * (q - p) + pull * u, pull * p - slope * u, pull * q + slope * u
        rows = torch.cat([positive_at[:n], negative_at[:n]])
        values = torch.cat([of_positive[:n], of_negative[:n]])
        return self._row(0, r, users[:n]), in_units(of_user[:n]), rows, in_units(values)

    def _tally(self, users: Tensor, negatives: Tensor, loss: Tensor, tally: Tensor) -> None:
        """Add to `tally` [3] the losses, and how many negatives are held-out items."""
        cut = (loss.clamp(-1e6, 1e6) * _LOSS_UNIT).round().long()
        tally[0] += torch.where(loss.isnan(), 2**61, cut).sum()  # so large that it shows
        held = self.trainer.held_out_keys
        if held is not None and len(held):
            wanted = users * self._n_items + negatives
            tally[2] += (held[torch.searchsorted(held, wanted).clamp_max_(len(held) - 1)] == wanted).sum()

    def _row(self, side: int, r: int, rows: Tensor) -> Tensor:
        """Rows of a replica's table, numbered through all replicas."""
        return rows + r * self.trainer.optimisers[0].parameters[side].shape[1]

    def _notice(self, r: int, won: Tensor) -> None:
        """Take note of a block's probes, of which some only fill it up."""
        self._won[r] += (2 * won[:, : self._kept]).sum().long()

    def _follow(self, size: int) -> None:
        """Let α take note of the whole batch, where it is automatic."""
        bound = {r: s for r, s in enumerate(self.trainer.samplers) if isinstance(s, AUCBound) and s.follows}
        won = self.world.total(self._won).double() if bound else self._won
        for r, sampler in bound.items():
            followed = AVERAGE * sampler.alpha.double() + (1 - AVERAGE) * won[r] / (2 * size * sampler.probes)
            sampler.alpha.copy_(followed)

    # ---- Adam

    def _move(self, side: int, rows: Tensor, units: Tensor, step: int) -> None:
        """Move the rows [k] of a table by Adam, or all; a row that comes often is moved once.

        What stands at each of its places is the same number, whichever is written last.
        """
        adam, slot = self.trainer.optimisers[0], self._slot[side]
        parameter, n = adam.parameters[side], adam.parameters[side].shape[1]
        dim = parameter.shape[-1]
        tables = [one.view(-1, dim) for one in (parameter.detach(), adam.mean[side], adam.square[side])]
        if adam.lazy:
            slot[rows] = torch.arange(len(rows), dtype=torch.int32, device=self.device)
            at = slot[rows].long()
            gradient = from_units(self._new(len(rows), dim).index_add_(0, at, units)[at])
            clock = adam.clocks[side].view(-1)
            past = clock[rows] + 1
            clock[rows] = past
            past, replica = past.clamp_max(LAST).long(), rows // n
        else:
            gradient = from_units(self._new(*tables[0].shape).index_add_(0, rows, units))
            rows = torch.arange(len(gradient), device=self.device)
            past, replica = torch.full_like(rows, min(step, LAST)), rows // n
        p, mean, square = (one[rows] for one in tables) if adam.lazy else tables
        gradient = gradient + self._decay[replica].unsqueeze(1) * p
        mean = mean + 0.1 * (gradient - mean)
        square = square + 0.001 * (gradient * gradient - square)
        one, root = (table[past] for table in self._unbias)
        rate = (self._rates[replica] * one).unsqueeze(1)
        p = p - rate * mean / (square.sqrt() * root.unsqueeze(1) + 1e-8)
        for table, new in zip(tables, (p, mean, square), strict=True):
            if adam.lazy:
                table[rows] = new
            else:
                table.copy_(new)


class ShardedTorchSoftmaxEngine(ShardedTorchEngine):
    """The same for losses whose negatives a batch shares; see `sharded_softmax` for their sums."""

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
