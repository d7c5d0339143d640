"""Early stopping: which epoch's model counts. `honest` stops on validation; `paper` picks the best test epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, SpreadSplit
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders.base import Vectors
from evenhand.metrics.catalogue import BEST_EPOCH, METRICS
from evenhand.metrics.evaluate import UserMetrics
from evenhand.training.evaluation import Evaluator, Result, Results, SpreadEvaluator, users_each_epoch
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.errors import InputError

STOPPING_K = 10
"""The honest protocol stops on NDCG at this k."""
RACE_EPOCHS, RACE_STEPS, RACE_SHARE = 10, 10_000, 0.75
"""Of several forms of a method, one whose best epoch has less than this share of what the leader had by then is given
up, but not before so many epochs and steps: some forms start slowly (docs/sparse.md)."""


class EarlyStopping(ABC):
    """Watches every epoch of R replicas and keeps each one's chosen vectors."""

    def __init__(self, replicas: int) -> None:
        self.value = np.full(replicas, -np.inf)
        """The best value seen of what is watched, per replica."""
        self.epoch = np.full(replicas, -1)
        """The epoch in which it was seen."""
        self.running = np.arange(replicas)
        """The replicas that still train, ascending: those that `see` hears of."""
        self.kept: tuple[Tensor, ...] = ()
        """Of each replica's chosen epoch: the vectors and, where they differ, the tables; [R, …] each."""

    @abstractmethod
    def see(self, epoch: int, scored: Sequence[dict[int, UserMetrics]], tensors: Sequence[Tensor]) -> None:
        """Take note of an epoch; `tensors` are what to keep of it where it is the best so far."""

    def measure(self, scored: Sequence[dict[int, UserMetrics]]) -> np.ndarray:
        """float64 [R]: what is watched; larger is better."""
        return np.zeros(len(scored))

    @property
    def vectors(self) -> Vectors:
        """User and item vectors of the chosen epochs."""
        return Vectors(*self.kept[:2])

    @property
    def tables(self) -> tuple[Tensor, Tensor] | None:
        """The learned tables below the vectors; None where the vectors are the tables."""
        return (self.kept[2], self.kept[3]) if len(self.kept) == 4 else None

    @property
    def finished(self) -> bool:
        """Whether no replica can improve any more."""
        return False

    @property
    def validation(self) -> tuple[float, ...] | None:
        """The validation value of each replica's chosen epoch; None where nothing was held out for that."""
        return None

    def results(self) -> Results | None:
        """Metrics on test, where the epochs were chosen on it; None: test has yet to be looked at."""
        return None

    def state(self) -> dict[str, Tensor]:
        """All of it as tensors, for a checkpoint."""
        named = {name: torch.from_numpy(getattr(self, name)) for name in ("value", "epoch", "running")}
        return named | {f"kept.{i}": tensor for i, tensor in enumerate(self.kept)}

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        self.value, self.epoch, self.running = (state[name].numpy() for name in ("value", "epoch", "running"))
        count = sum(name.startswith("kept.") for name in state)
        self.kept = tuple(state[f"kept.{i}"].to(device) for i in range(count))

    def keep(self, epoch: int, value: np.ndarray, better: np.ndarray, tensors: Sequence[Tensor]) -> None:
        """Of those that run, keep what is better: `value`, `better` and `tensors` have one place for each of them."""
        places = np.flatnonzero(better)
        self.value[self.running[places]] = value[places]
        self.epoch[self.running[places]] = epoch
        if not self.kept:
            self.kept = tuple(tensor.clone() for tensor in tensors)
            return
        for mine, new in zip(self.kept, tensors, strict=True):
            for place in places:
                mine[self.running[place]] = new[place]


@dataclass(frozen=True)
class Race:
    """What forms of a method that are tried on validation must have reached to be trained further."""

    steps: int
    """Of an epoch."""
    earlier: Sequence[float] = ()
    """The best value that forms which ran before had reached after each epoch."""

    def least(self, epoch: int, leader: float) -> float:
        """The value below which a form is given up after an epoch, counted from 0."""
        if epoch + 1 < max(RACE_EPOCHS, RACE_STEPS / self.steps):
            return -np.inf
        before = self.earlier[min(epoch, len(self.earlier) - 1)] if self.earlier else -np.inf
        return RACE_SHARE * max(before, leader)


class BestValidation(EarlyStopping):
    """Best on validation, by NDCG@10 unless another metric is given; done after `patience` epochs without a rise.

    With `free_start` the first 2·`patience` epochs do not count: a model learns what is popular before it tells users
    apart, and on sparse or small logs it gets worse in between (docs/sparse.md).

    In a `race` only the best replica counts: one that has fallen too far behind is done as well.
    """

    def __init__(
        self,
        replicas: int,
        patience: int | None,
        k: int = STOPPING_K,
        metric: str = "ndcg",
        *,
        free_start: bool = True,
        race: Race | None = None,
    ) -> None:
        super().__init__(replicas)
        self.patience, self.k, self.metric, self.race = patience, k, metric, race
        self._uncounted = 2 * (patience or 0) if free_start else 0
        self.done = np.zeros(replicas, dtype=bool)

    def measure(self, scored: Sequence[dict[int, UserMetrics]]) -> np.ndarray:
        return np.array([one[self.k].mean(self.metric) for one in scored])

    def see(self, epoch: int, scored: Sequence[dict[int, UserMetrics]], tensors: Sequence[Tensor]) -> None:
        value = self.measure(scored)
        self.keep(epoch, value, value > self.value[self.running], tensors)
        if self.patience is not None:
            self.done |= epoch + 1 - np.maximum(self.epoch + 1, self._uncounted) >= self.patience
        if self.race is not None:
            self.done |= self.value < self.race.least(epoch, self.value.max())
        if not self.finished:
            self.running = np.flatnonzero(~self.done)

    @property
    def finished(self) -> bool:
        return bool(self.done.all())

    @property
    def validation(self) -> tuple[float, ...]:
        return tuple(self.value.tolist())

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"done": torch.from_numpy(self.done)}

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        super().load_state(state, device)
        self.done = state["done"].numpy()


class BestTest(EarlyStopping):
    """The paper's choice: the best test epoch per metric and k, bias rates at the best-precision epoch."""

    def __init__(self, replicas: int, ks: tuple[int, ...]) -> None:
        super().__init__(replicas)
        self.ks = ks
        self._best: dict[tuple[int, int], dict[str, float]] = {}
        """The best value of each metric, by replica and k."""
        self._users: dict[tuple[int, int], UserMetrics] = {}
        """All metrics at the epoch of the best precision."""

    def measure(self, scored: Sequence[dict[int, UserMetrics]]) -> np.ndarray:
        return np.array([one[self.ks[0]].mean("precision") for one in scored])

    def see(self, epoch: int, scored: Sequence[dict[int, UserMetrics]], tensors: Sequence[Tensor]) -> None:
        for place, now in (((r, k), one[k]) for r, one in enumerate(scored) for k in self.ks):
            best = self._best.setdefault(place, {})
            if now.mean("precision") > best.get("precision", -np.inf):
                self._users[place] = now
            for name in BEST_EPOCH:
                pick = max if METRICS[name].higher_is_better else min
                best[name] = pick(best.get(name, now.mean(name)), now.mean(name))
        value = self.measure(scored)
        self.keep(epoch, value, value > self.value, tensors)

    def state(self) -> dict[str, Tensor]:
        named = super().state()
        for (r, k), best in self._best.items():
            named[f"best.{r}.{k}"] = torch.tensor([best[name] for name in BEST_EPOCH], dtype=torch.float64)
        for (r, k), users in self._users.items():
            named |= {f"users.{r}.{k}.{name}": torch.from_numpy(array) for name, array in users.arrays().items()}
        return named

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        super().load_state(state, device)
        for r, k in ((r, k) for r in range(len(self.value)) for k in self.ks if f"best.{r}.{k}" in state):
            self._best[r, k] = dict(zip(BEST_EPOCH, state[f"best.{r}.{k}"].tolist(), strict=True))
            prefix = f"users.{r}.{k}."
            arrays = {n.removeprefix(prefix): t.numpy() for n, t in state.items() if n.startswith(prefix)}
            self._users[r, k] = UserMetrics.from_arrays(k, arrays)

    def results(self) -> Results:
        return {
            k: [
                Result({**self._users[r, k].means(), **self._best[r, k]}, self._users[r, k])
                for r in range(len(self.value))
            ]
            for k in self.ks
        }


class LastEpoch(EarlyStopping):
    """No held-out part to choose on: the last epoch counts."""

    def see(self, epoch: int, scored: Sequence[dict[int, UserMetrics]], tensors: Sequence[Tensor]) -> None:
        self.keep(epoch, self.value, np.ones(len(self.value), dtype=bool), tensors)


def protocol_of(
    name: ProtocolName,
    split: Split,
    settings: Settings,
    hot: np.ndarray,
    ks: tuple[int, ...],
    replicas: int,
    stop_on: tuple[str, int],
    *,
    free_start: bool = True,
    race: Race | None = None,
) -> tuple[EarlyStopping, Evaluator | SpreadEvaluator | None]:
    """How a protocol chooses among epochs, and what evaluates each of them."""
    if name == "paper":
        if isinstance(split, SpreadSplit):
            raise InputError("the paper's protocol is for one process; leave --protocol out, or torchrun.")
        if settings.eval_users is not None:
            raise InputError("eval_users is for the honest protocol; the paper's evaluates all users each epoch.")
        return BestTest(replicas, ks), Evaluator(split.test, split.train, hot, ks)
    if split.validation is None or not len(split.validation):
        return LastEpoch(replicas), None
    metric, k = stop_on[0], min(stop_on[1], split.n_items)
    sample = settings.eval_users or users_each_epoch(split.validation)
    evaluator = evaluator_of(split.validation, split.train, hot, (k,), sample)
    return BestValidation(replicas, settings.patience, k, metric, free_start=free_start, race=race), evaluator


def evaluator_of(
    truth: Interactions | SpreadLog,
    exclude: Interactions | SpreadLog,
    hot: np.ndarray,
    ks: tuple[int, ...],
    sample: int | None = None,
) -> Evaluator | SpreadEvaluator:
    """What evaluates against a held-out part, by one process or by all."""
    if isinstance(truth, SpreadLog) and isinstance(exclude, SpreadLog):
        return SpreadEvaluator(truth, exclude, hot, ks, sample)
    assert isinstance(truth, Interactions)
    assert isinstance(exclude, Interactions)
    return Evaluator(truth, exclude, hot, ks, sample)
