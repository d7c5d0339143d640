"""What an engine is: it makes the steps of an epoch, in place, on the tables of a trainer.

The plain one, in torch, takes any encoder, sampler and objective on any device; on a GPU with recorded steps.
"""

from __future__ import annotations

import gc
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.samplers.counting import compile_problem
from evenhand.utils import keyed

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer

_ORDER, _OWN, _SHARED = 1, 2, 3
"""What a key is for: the order of the pairs, the draws of a positive, the draws a batch shares."""


@dataclass(frozen=True)
class Plan:
    """All that is random in an epoch: the order of the pairs and a key for each step, per replica."""

    order: Tensor
    """int64 [R, N]: which pair stands where."""
    own: Tensor
    """int64 [R, steps]: keys of what each positive draws."""
    shared: Tensor
    """int64 [R, steps]: keys of what a batch draws in common."""
    epoch: int

    @staticmethod
    def keys(seeds: tuple[int, ...], epoch: int, steps: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """The key of each replica's order, and those of every step: `own` and `shared`."""
        order, own, shared = (keyed.keys(seeds, epoch, purpose, device=device) for purpose in (_ORDER, _OWN, _SHARED))
        return order, keyed.hashes(own, steps), keyed.hashes(shared, steps)

    @staticmethod
    def of(seeds: tuple[int, ...], epoch: int, pairs: int, steps: int, device: torch.device) -> Plan:
        order, own, shared = Plan.keys(seeds, epoch, steps, device)
        return Plan(keyed.permutations(order, pairs), own, shared, epoch)


@contextmanager
def recording(graph: Any, **how: Any) -> Iterator[None]:
    """Record a CUDA graph; an old one that the garbage collector frees meanwhile would spoil it."""
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, **how):
            yield
    finally:
        gc.enable()


class Engine(ABC):
    """Makes steps for every replica at once; what it learns lies in the trainer's model and optimisers."""

    name: ClassVar[str]

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.stride = 1
        """How many steps to make between two looks at the clock."""

    def plan(self, epoch: int) -> Plan:
        """What is random in an epoch."""
        trainer = self.trainer
        return Plan.of(trainer.seeds, epoch, len(trainer.users), trainer.steps, trainer.device)

    def refresh(self, epoch: int) -> None:
        """Called at the start of an epoch: let the loss renew what it takes from the whole model."""
        self.trainer.loss.refresh(self.trainer.model, epoch)

    @abstractmethod
    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        """Make the steps first…last-1; float64 [3, R]: sums over them of loss, hot share and false share."""


class TorchEngine(Engine):
    """Step by step; the other engines are measured by it."""

    name = "torch"

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        return torch.stack([self._step(plan, step) for step in range(first, last)]).sum(0)

    def _step(self, plan: Plan, step: int) -> Tensor:
        trainer = self.trainer
        size = trainer.settings.positives
        chosen = plan.order[:, step * size : (step + 1) * size]
        users, positives = trainer.users[chosen], trainer.items[chosen]
        return trainer.learn(users, positives, plan.own[:, step], plan.shared[:, step], plan.epoch)


class GraphEngine(TorchEngine):
    """A step is launched once, kernel by kernel, and then replayed whole.

    Small batches leave a GPU waiting for the next launch; a CUDA graph has one launch a step, whatever encoder,
    sampler and objective are in it. Where in the epoch a replay stands is kept on the device.
    """

    name = "graph"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.stride = 64
        self._plan: Plan | None = None
        self._graph: Any = None
        self._key: Any = None
        self._works = True
        self._stream = torch.cuda.Stream(trainer.device)
        self._sum = torch.zeros_like(trainer.tally)
        self._at = torch.zeros(1, dtype=torch.int64, device=trainer.device)
        self._place = torch.arange(trainer.settings.positives, device=trainer.device)

    def run(self, plan: Plan, first: int, last: int) -> Tensor:
        loss = self.trainer.loss
        if isinstance(loss, SoftmaxLoss) and compile_problem("cuda") is None:
            from evenhand.training.engines.triton_softmax import softmax_rows

            loss.compiled = softmax_rows
        # Gradients remember the stream they were made on: steps made as usual and recorded ones share one.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            done = self._run(plan, first, last)
        torch.cuda.current_stream().wait_stream(self._stream)
        return done

    def _run(self, plan: Plan, first: int, last: int) -> Tensor:
        total = torch.zeros_like(self._sum)
        whole = len(self.trainer.users) // self.trainer.settings.positives
        step = first
        while step < last:
            if not self._works or step >= whole:
                total += self._step(plan, step)
                step += 1
            elif self._key != self._now(plan):
                # A step made as usual also readies everything that must not happen while one is recorded.
                total += self._step(plan, step)
                step += 1
                self._record(plan)
            else:
                self._copy(plan)
                self._at.fill_(step)
                for _ in range(step, min(last, whole)):
                    self._graph.replay()
                step = min(last, whole)
        total += self._sum
        self._sum.zero_()
        return total

    def _now(self, plan: Plan) -> Any:
        """What is fixed in a recording: where this changes, a new one is made."""
        return (*self.trainer.rates(plan.epoch), self.trainer.loss.trains_encoder, id(self.trainer.optimisers))

    def _copy(self, plan: Plan) -> None:
        if plan is not self._plan:
            self._plan = plan
            for mine, new in zip(self._drawn, (plan.order, plan.own, plan.shared), strict=True):
                mine.copy_(new)

    def _record(self, plan: Plan) -> None:
        self._drawn = [plan.order.clone(), plan.own.clone(), plan.shared.clone()]
        self._plan, self._graph = plan, torch.cuda.CUDAGraph()
        try:
            torch.cuda.synchronize()
            with recording(self._graph, stream=self._stream):
                self._recorded_step(plan.epoch)
        except RuntimeError as problem:
            reason = str(problem).splitlines()[0]
            warnings.warn(f"a step could not be recorded ({reason}); training goes on, slower.", stacklevel=5)
            self._works = False
            return
        self._key = self._now(plan)

    def _recorded_step(self, epoch: int) -> None:
        trainer = self.trainer
        order, own, shared = self._drawn
        chosen = order.index_select(1, self._at * trainer.settings.positives + self._place)
        key, common = (keys.index_select(1, self._at).squeeze(1) for keys in (own, shared))
        self._sum += trainer.learn(trainer.users[chosen], trainer.items[chosen], key, common, epoch)
        self._at += 1
