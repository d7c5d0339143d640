"""What an engine is: it makes the steps of an epoch, in place, on the tables of a trainer."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

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
