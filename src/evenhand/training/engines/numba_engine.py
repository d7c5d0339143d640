"""The CPU engine: MF with BPR, weighted or not, and a sampler of the paper's, fused into compiled steps."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import torch
from torch import Tensor

from evenhand.objectives.pairwise import IPSLoss
from evenhand.samplers.auc import AUCBound
from evenhand.samplers.base import BoundSampler
from evenhand.samplers.dynamic import DynamicBound
from evenhand.samplers.static import GroupBound, StaticBound
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.choices import (
    BLOCK,
    Grouped,
    Optimal,
    Pool,
    Weighted,
    choose_grouped,
    choose_highest,
    choose_optimal,
    choose_weighted,
)
from evenhand.training.engines.steps import Bench, Moves, Pairs, Table, learn

if TYPE_CHECKING:
    from evenhand.training.adam import Adam
    from evenhand.training.trainer import Trainer

_ONE_AT_A_TIME = threading.Lock()
"""Held while compiled code runs: not every threading layer of numba serves several callers."""
_WORTH_SHARING = 1024
"""Draws in a step from which on more than one thread pays."""

_used: list[bool] = []
_forked: list[bool] = []
"""Whether this process used OpenMP; whether it was forked from one that had."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.extend(_used))

_POSITIVES_A_STRIDE = 2**15
"""About a twentieth of a second of work between two looks at the clock."""

_MOVES = np.arange(1, 20_001)
CORRECTIONS = tuple(np.append(np.inf, (1 - beta**_MOVES) ** -power) for beta, power in ((0.9, 1), (0.999, 0.5)))


@contextmanager
def compiled_code() -> Iterator[None]:
    """Held while compiled code runs; afterwards torch has as many threads as before."""
    with _ONE_AT_A_TIME:
        if not _used:
            threads = torch.get_num_threads()
            numba.set_num_threads(1)  # starts numba's threads, and with them sets the number of torch's
            torch.set_num_threads(threads)
        _used[:] = [True]
        yield


class NumbaEngine(Engine):
    name = "numba"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.stride = max(1, _POSITIVES_A_STRIDE // (trainer.settings.positives * len(trainer.seeds)))
        draws = trainer.settings.positives * len(trainer.seeds) * trainer.samplers[0].width(1)
        self._threads = _threads() if draws >= _WORTH_SHARING else 1
        train, held, loss = trainer.train, trainer.held_out, trainer.loss
        self._pairs = Pairs(
            users=trainer.users.numpy(),
            items=trainer.items.numpy(),
            hot=trainer.hot.numpy(),
            held=np.zeros(train.n_users + 1, dtype=np.int64) if held is None else held.indptr,
            held_items=train.items[:0] if held is None else held.items,
            weights=loss.weights.numpy() if isinstance(loss, IPSLoss) else np.ones(train.n_items, dtype=np.float32),
        )
        self._choose, self._tables = choice_of(trainer)
        self._sides = [one_side(trainer, number, number * trainer.settings.positives) for number in (0, 1)]
        replicas, batch = len(trainer.seeds), min(trainer.settings.positives, len(trainer.users))
        self._bench = Bench(
            negatives=np.zeros((replicas, batch), dtype=np.int64),
            slopes=np.zeros((replicas, batch), dtype=np.float32),
            losses=np.zeros((replicas, batch)),
            used=np.zeros((2, replicas), dtype=np.int64),
        )

    @compiled_code()
    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        trainer = self.trainer
        adam = trainer.optimisers[0]
        tally = np.zeros((3, len(trainer.seeds)))
        threads = min(self._threads, torch.get_num_threads())
        numba.set_num_threads(threads)
        numbers = (trainer.rates(plan.epoch), adam.decay, trainer.l2)
        moves = Moves(*(np.array(values, dtype=np.float64) for values in numbers), *CORRECTIONS)
        users, items = (table_of(adam, side, self._sides[side]) for side in (0, 1))
        order, done = plan.order.numpy(), int(adam.steps[0])
        own, shared = (keys.numpy().view(np.uint64) for keys in (plan.own, plan.shared))
        alphas_into(self._tables, trainer.samplers)
        for step in range(first, last):
            begin = step * trainer.settings.positives
            size = min(trainer.settings.positives, order.shape[1] - begin)
            self._choose(
                self._tables, size, begin, step, order, own, shared, self._pairs.users, users.rows, items.rows,
                self._bench.negatives,
            )  # fmt: skip
            done += 1
            learn(size, begin, threads, order, self._pairs, users, items, moves, self._bench, tally, done)
        adam.count(last - first)
        alphas_from(self._tables, trainer.samplers)
        return torch.from_numpy(tally)


def alphas_into(tables: Any, samplers: Sequence[BoundSampler]) -> None:
    """Let compiled steps go on with the α that the samplers follow; `alphas_from` hands it back."""
    if isinstance(tables, Optimal):
        tables.alpha[:] = [float(one.diagnostics()["alpha"]) for one in samplers]


def alphas_from(tables: Any, samplers: Sequence[BoundSampler]) -> None:
    if isinstance(tables, Optimal):
        for sampler, alpha in zip(samplers, tables.alpha.tolist(), strict=True):
            sampler.load_state({"alpha": torch.tensor([alpha])} if sampler.state() else {})


def one_side(trainer: Trainer, number: int, negatives: int) -> tuple[np.ndarray, ...]:
    """Slots, gradients, rows of the batch and how often each is drawn, of one table."""
    replicas, n, dim = trainer.optimisers[0].parameters[number].shape
    most = min(n, trainer.settings.positives + negatives)
    return (
        np.full((replicas, n), -1, dtype=np.int32),
        torch.zeros(replicas, most, dim).numpy(),  # aligned, so that threads share no cache line
        np.zeros((replicas, most), dtype=np.int32),
        np.zeros((replicas, most), dtype=np.float32),
    )


def table_of(adam: Adam, number: int, side: tuple[np.ndarray, ...]) -> Table:
    slot, gradient, touched, times = side
    return Table(
        rows=adam.parameters[number].detach().numpy(),
        mean=adam.mean[number].numpy(),
        square=adam.square[number].numpy(),
        clock=adam.clocks[number].numpy() if adam.lazy else np.empty((len(slot), 0), dtype=np.int32),
        slot=slot,
        gradient=gradient,
        touched=touched,
        times=times,
    )


def choice_of(trainer: Trainer) -> tuple[Any, Weighted | Grouped | Pool | Optimal]:
    """How the trainer's samplers choose, compiled, and what they look up."""
    sampler, train = trainer.samplers[0], trainer.train
    if isinstance(sampler, AUCBound):
        return choose_optimal, _optimal(trainer, sampler)
    if isinstance(sampler, DynamicBound):
        mass = sampler.distribution.mass.numpy()
        return choose_highest, Pool(train.indptr, train.items, mass, sampler.candidates)
    if isinstance(sampler, GroupBound):
        rows, tables = sampler.regrouped, (sampler.choice, sampler.begin, sampler.left, sampler.item_at)
        return choose_grouped, Grouped(rows.indptr, rows.items, *(table.numpy() for table in tables))
    assert isinstance(sampler, StaticBound)
    distribution, nothing = sampler.distribution, np.empty(0, dtype=np.int64)
    sums = (distribution.before_item, distribution.before_pair)
    before = (nothing if table is None else table.numpy() for table in sums)
    return choose_weighted, Weighted(train.indptr, train.items, distribution.mass.numpy(), *before)


def _optimal(trainer: Trainer, first: AUCBound) -> Optimal:
    bound = [one for one in trainer.samplers if isinstance(one, AUCBound)]
    replicas, threads = len(bound), _threads()
    dim, n = trainer.model.users.shape[-1], first.draws or trainer.train.n_items
    width = first.candidates + 2 * first.probes
    return Optimal(
        indptr=trainer.train.indptr,
        items=trainer.train.items,
        mass=first.distribution.mass.numpy(),
        candidates=first.candidates,
        probes=first.probes,
        draws=first.draws,
        alpha=np.empty(replicas, dtype=np.float32),
        auto=torch.cat([one.auto for one in bound]).numpy(),
        gamma=torch.cat([one.gamma.flatten() for one in bound]).double().numpy(),
        prior=torch.cat([one.prior for one in bound]).unsqueeze(-1).numpy(),
        beside=np.empty((replicas, dim, n), dtype=np.float32),
        drawn=np.empty((replicas, first.draws), dtype=np.int64),
        pool=np.empty((replicas, first.pool or 0), dtype=np.int64),
        everything=np.empty((threads, BLOCK, n), dtype=np.float32),
        vectors=np.empty((threads, BLOCK, dim), dtype=np.float32),
        seen=np.empty((threads, BLOCK, width), dtype=np.int64),
        base=np.empty((threads, width), dtype=np.int64),
        grown=np.empty((threads, width)),
        won=np.empty((replicas, min(trainer.settings.positives, len(trainer.users)))),
    )


def _threads() -> int:
    """The most threads that there can be."""
    return int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def forked() -> bool:
    """Whether this process was forked from one that had used OpenMP, which would end it."""
    return bool(_forked)
