"""The CPU engine for MF with negatives that a batch shares: autograd on the batch's rows, compiled Adam on the tables.

Only rows that are in a batch are looked up, differentiated and summed; the loss is the objective's own, with its
longest pass compiled. A replica gives the same bits on any number of threads and beside any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.objectives.softmax_relatives import AUCSoftmaxLoss, PSLLoss
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.numba_engine import CORRECTIONS, compiled_code, one_side, table_of
from evenhand.training.engines.softmax_rows import clear_columns, place_columns, softmax_rows
from evenhand.training.engines.steps import Moves, move_rows
from evenhand.utils import keyed

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer


class RowsEngine(Engine):
    name = "rows"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._sides = [one_side(trainer, number, number * trainer.negatives) for number in (0, 1)]
        self._used = np.zeros((2, 1), dtype=np.int64)
        self._margins = CompiledMargins(trainer.train, trainer.negatives)

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        trainer, loss = self.trainer, self.trainer.loss
        assert isinstance(loss, SoftmaxLoss)
        loss.compiled = self._margins
        adam, size = trainer.optimisers[0], trainer.settings.positives
        tables = [table_of(adam, side, self._sides[side]) for side in (0, 1)]
        numbers = (trainer.rates(plan.epoch), adam.decay, trainer.l2)
        lr, decay, l2 = (np.array(values, dtype=np.float64) for values in numbers)
        done = int(adam.steps[0])
        tally = torch.zeros(3, len(trainer.seeds), dtype=torch.float64)
        with compiled_code():
            threads = min(numba.config.NUMBA_NUM_THREADS, torch.get_num_threads())  # type: ignore[attr-defined]
            numba.set_num_threads(threads)
            for step in range(first, last):
                chosen = plan.order[:, step * size : (step + 1) * size]
                users, positives = trainer.users[chosen], trainer.items[chosen]
                drawn = keyed.uniforms(plan.shared[:, step], 1, trainer.negatives)
                negatives = trainer.samplers[0].draw_shared(drawn)
                done += 1
                for r in range(len(trainer.seeds)):
                    value, rows = self._learned(r, users[r], positives[r], negatives[r, 0])
                    mine = [type(table)(*(part[r : r + 1] for part in table)) for table in tables]
                    moves = Moves(lr[r : r + 1], decay[r : r + 1], l2[r : r + 1], *CORRECTIONS)
                    of = [index.numpy() for index in (users[r], positives[r], negatives[r, 0])]
                    move_rows(threads, *of, *rows, *mine, moves, self._used, done)
                    tally[0, r] += value
                tally[1:] += trainer.shares_of(users, negatives)
        adam.count(last - first)
        return tally

    def _learned(self, r: int, users: Tensor, positives: Tensor, negatives: Tensor) -> tuple[float, list[np.ndarray]]:
        """The loss of one replica, and the gradients of its rows: users, positives, negatives."""
        tables = self.trainer.model.raw().detach()
        rows = [tables.users[r, users], tables.items[r, positives], tables.items[r, negatives]]
        for one in rows:
            one.requires_grad_()
        shared = negatives.view(1, 1, -1)
        loss = self.trainer.loss(
            Scored(
                replicas=slice(r, r + 1),
                users=users.unsqueeze(0),
                positives=positives.unsqueeze(0),
                negatives=shared,
                user=rows[0].unsqueeze(0),
                positive=rows[1].unsqueeze(0),
                items=tables.items[r : r + 1],
                given=rows[2].view(1, 1, *rows[2].shape),
                log_q=self.trainer.samplers[0].log_probability(shared),
            )
        )
        return float(loss.detach()), [one.numpy() for one in torch.autograd.grad(loss.sum(), rows)]


class CompiledMargins:
    """A loss's way from scores to margins and slopes, compiled; for negatives of a batch by their ids."""

    def __init__(self, train: Interactions, negatives: int) -> None:
        self._train = train
        self._column = np.full(train.n_items, -1, dtype=np.int32)
        self._following = np.empty(negatives, dtype=np.int32)

    def __call__(self, loss: SoftmaxLoss, batch: Scored, x: Tensor, own: Tensor) -> Tensor | None:
        """Margins [1, B], with slopes left in x; None for curves other than the exponential."""
        if isinstance(loss, PSLLoss):
            return None
        offset = SoftmaxLoss.log_weights(loss, x, batch, batch.negatives)
        nothing, negatives = np.empty(0, dtype=np.float32), batch.negatives.flatten()
        prior, alpha = nothing, 1.0
        if isinstance(loss, AUCSoftmaxLoss):
            prior, alpha = loss.prior[negatives].numpy(), loss.alpha
        margin, train = torch.empty_like(own), self._train
        place_columns(negatives.numpy(), self._column, self._following)
        softmax_rows(
            x[0].numpy(),
            own[0].detach().numpy(),
            np.float32(1 / loss.temperature),
            nothing if offset is None else offset.flatten().numpy(),
            prior,
            np.float32(alpha),
            batch.users[0].numpy(),
            train.indptr,
            train.items,
            self._column,
            self._following,
            margin[0].numpy(),
        )
        clear_columns(negatives.numpy(), self._column)
        return margin
