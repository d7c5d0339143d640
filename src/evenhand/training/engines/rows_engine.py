"""The CPU engine for MF with negatives that a batch shares: autograd on the batch's rows, compiled Adam on the tables.

Only rows that are in a batch are looked up, differentiated and summed; the loss is the objective's own, with its
longest pass compiled. A replica gives the same bits on any number of threads and beside any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import torch
from numba import prange
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.objectives.softmax_relatives import AUCSoftmaxLoss, PSLLoss
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.choices import FAST
from evenhand.training.engines.numba_engine import CORRECTIONS, compiled_code, one_side, table_of
from evenhand.training.engines.steps import Moves, move_rows
from evenhand.utils import keyed
from evenhand.utils.compiled import compiled

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer

_NOTHING = np.float32(-1e30)
_LOWEST = np.float32(-80)
"""e to this is nothing in single precision."""
_LOG2E, _ROUND = np.float32(1.4426950408889634), np.float32(12582912.0)
_BUCKETS = 512


@compiled(error_model="numpy")
def place_columns(negatives: Any, column: Any, following: Any) -> None:
    """column[item]: the first place of an item among the negatives; following[place]: the next one, or -1."""
    for j in range(len(negatives) - 1, -1, -1):
        following[j] = column[negatives[j]]
        column[negatives[j]] = j


@compiled(error_model="numpy")
def clear_columns(negatives: Any, column: Any) -> None:
    for j in range(len(negatives)):
        column[negatives[j]] = -1


@compiled(error_model="numpy", parallel=True)
def softmax_rows(
    x: Any, own: Any, scale: Any, offset: Any, prior: Any, alpha: Any, users: Any, indptr: Any, items: Any,
    column: Any, following: Any, margin: Any,
) -> None:  # fmt: skip
    """x [B, n] becomes the slopes ∂margin/∂c_j; `offset` [n] and `prior` [n] may be empty.

    Twin of `evenhand.objectives.softmax._margin_and_slopes`, in one pass over each row while it is in the cache. The
    user's own items, which are few, are looked up among the shared negatives.
    """
    for b in prange(len(users)):
        _row(b, x, own, scale, offset, prior, alpha, users[b], indptr, items, column, following, margin)


@compiled(error_model="numpy")
def _mark(b: Any, user: Any, indptr: Any, items: Any, column: Any, following: Any, x: Any, value: Any) -> None:
    for place in range(indptr[user], indptr[user + 1]):
        j = column[items[place]]
        while j >= 0:
            x[b, j] = value
            j = following[j]


@compiled(error_model="numpy", fastmath=FAST | {"nnan"})
def _row(
    b: Any, x: Any, own: Any, scale: Any, offset: Any, prior: Any, alpha: Any, user: Any, indptr: Any, items: Any,
    column: Any, following: Any, margin: Any,
) -> None:  # fmt: skip
    n, mine = x.shape[1], own[b]
    if len(prior):
        _mark(b, user, indptr, items, column, following, x, _NOTHING)
        weights = _posteriors(b, x, prior, alpha)
    for j in range(n):
        x[b, j] = (x[b, j] - mine) * scale
    if len(offset):
        for j in range(n):
            x[b, j] += offset[j]
    _mark(b, user, indptr, items, column, following, x, _NOTHING)
    top = _NOTHING
    for j in range(n):
        top = max(top, x[b, j])
    total = np.float32(0)
    for j in range(n):
        grown = _exp(max(x[b, j] - top, _LOWEST))
        x[b, j] = grown if x[b, j] > _NOTHING else np.float32(0)
        total += x[b, j]
    if len(prior):
        total = np.float32(0)
        for j in range(n):
            x[b, j] *= weights[j]
            total += x[b, j]
    margin[b] = top + np.log(total) if total > 0 else 2 * _NOTHING
    share = scale / total if total > 0 else np.float32(0)
    for j in range(n):
        x[b, j] *= share


@compiled(error_model="numpy", fastmath={"contract"}, forceinline=True)
def _exp(x: Any) -> Any:
    """eˣ in single precision for -80 ≤ x ≤ 0, in operations that work on many numbers at once."""
    t = x * _LOG2E
    shifted = t + _ROUND  # the nearest whole number is in the lowest bits
    f = t - (shifted - _ROUND)
    p = np.float32(1.5403530393e-4)
    p = p * f + np.float32(1.3333558146e-3)
    p = p * f + np.float32(9.6181291076e-3)
    p = p * f + np.float32(5.5504108665e-2)
    p = p * f + np.float32(2.4022650696e-1)
    p = p * f + np.float32(6.9314718056e-1)
    p = p * f + np.float32(1.0)
    power = np.int32(np.float32(shifted).view(np.int32) << np.int32(23))
    return np.int32(np.float32(p).view(np.int32) + power).view(np.float32)


@compiled(error_model="numpy")
def _posteriors(b: Any, x: Any, prior: Any, alpha: Any) -> Any:
    """P(TN|x) of a row's scores that are not masked, by their exact rank: sorted into buckets, then within them."""
    n = x.shape[1]
    low, high, m = np.float32(np.inf), np.float32(-np.inf), 0
    for j in range(n):
        if x[b, j] > _NOTHING:
            low, high, m = min(low, x[b, j]), max(high, x[b, j]), m + 1
    scale = np.float32(_BUCKETS - 1) / max(high - low, np.float32(1e-20))
    bucket, sorted_ = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.float32)
    begin = np.zeros(_BUCKETS + 1, dtype=np.int32)
    for j in range(n):
        if x[b, j] > _NOTHING:
            bucket[j] = np.int32((x[b, j] - low) * scale)
            begin[bucket[j] + 1] += 1
    for k in range(_BUCKETS):
        begin[k + 1] += begin[k]
    end = begin.copy()
    for j in range(n):
        if x[b, j] > _NOTHING:
            sorted_[end[bucket[j]]] = x[b, j]
            end[bucket[j]] += 1
    weights = np.zeros(n, dtype=np.float32)
    for j in range(n):
        if x[b, j] > _NOTHING:
            k = bucket[j]
            below = begin[k]
            for place in range(begin[k], end[k]):
                below += np.int32(sorted_[place] <= x[b, j])
            rank = np.float32(1 + below) / np.float32(m + 2)
            true = (alpha * (1 - rank) + (1 - alpha) * rank) * prior[j]
            false = ((1 - alpha) * (1 - rank) + alpha * rank) * (1 - prior[j])
            weights[j] = true / (true + false)
    return weights


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
        adam, size = trainer.optimisers[0], trainer.settings.batch
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
