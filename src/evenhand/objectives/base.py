"""What an objective is: a loss over positives and negatives, with whatever it learns beside the encoder.

The parameters (`Objective`) are plain values. `start` makes the running loss: extra parameters for R
replicas, phases, and what becomes of the vectors at the end, so that the training loop has no special cases.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.samplers.base import rows
from evenhand.utils import keyed
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class Scored:
    """One batch as an objective sees it: some replicas, B positives each, n negatives for each positive."""

    replicas: slice
    """Which replicas these are, to index parameters [R, …] of the objective's own."""
    users: Tensor
    """int64 [r, B]"""
    positives: Tensor
    """int64 [r, B]"""
    negatives: Tensor
    """int64 [r, B, n], or [r, 1, n] where all positives of a batch share them"""
    user: Tensor
    """[r, B, d]: the users' vectors, with gradient; so are the next two."""
    positive: Tensor
    """[r, B, d]"""
    items: Tensor
    """[r, n_items, d]: every item's vector"""
    given: Tensor | None = None
    """The vectors of the negatives, where they have been looked up already."""
    log_q: Tensor | None = None
    """[r, 1, n]: log of the probability with which a shared negative was drawn"""

    @cached_property
    def negative(self) -> Tensor:
        """[r, B or 1, n, d]: the negatives' vectors."""
        return rows(self.items, self.negatives) if self.given is None else self.given

    @property
    def s_positive(self) -> Tensor:
        """[r, B]: scores of the positives."""
        return (self.user * self.positive).sum(-1)

    @property
    def s_negative(self) -> Tensor:
        """[r, B, n]: scores of the negatives."""
        return (self.user.unsqueeze(2) * self.negative).sum(-1)

    def each(self) -> list[Scored]:
        """The same batch, one replica at a time."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "replicas"}
        parts = {name: tensor.unbind(0) for name, tensor in tensors.items() if tensor is not None}
        return [
            replace(self, replicas=slice(r, r + 1), **{n: part[r].unsqueeze(0) for n, part in parts.items()})
            for r in range(len(self.users))
        ]


@dataclass(frozen=True)
class Objective(ABC):
    """What training minimises. Subclasses add parameters and check them in `__post_init__`."""

    shares_negatives: ClassVar[bool] = False
    """Whether all positives of a batch have the same negatives."""
    l2_also_tried: ClassVar[tuple[float, ...]] = ()
    """L2 that a fit tries beside the encoder's, for a loss of another scale than that of BPR."""
    least_lr: ClassVar[float] = 0.0
    """The learning rate of inner products, where the encoder's is lower."""

    @property
    def init_std(self) -> float | None:
        """The size of the first random vectors, where it matters for this loss; None leaves the encoder's."""
        return None

    @property
    def lengths_matter(self) -> bool:
        """Whether the vectors' lengths change the loss, so that L2 on them has a meaning; not so for cosines."""
        return True

    @property
    def negatives(self) -> int:
        """How many negatives a positive wants, unless the settings say otherwise."""
        return 1

    def forms(self) -> tuple[Objective, ...]:
        """What to try on validation where a parameter was left open."""
        return (self,)

    def closed(self) -> Objective:
        """With the usual value where a parameter was left open."""
        return self

    @abstractmethod
    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> Loss:
        """The running loss for one replica a seed, on the model's device."""


class Loss(nn.Module, ABC):
    """An objective at work. Its parameters, if any, have the replicas in front: [R, …]."""

    seeds: tuple[int, ...] = ()
    """Of the replicas, for what it draws by itself."""
    decays: bool = True
    """Whether weight decay acts on this loss's own parameters."""
    transforms: bool = False
    """Whether the vectors of `finals` are others than the encoder's, so that its tables are kept beside."""

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder learns in this epoch; where not, the epoch is no candidate to be kept."""
        return True

    def begin_epoch(self, epoch: int) -> None:
        """Called before each epoch, counted from 0, for objectives that work in phases."""

    def refresh(self, model: Tables, epoch: int) -> None:
        """Called at the start of each epoch, for what is computed from the whole model now and then."""

    def prepare(self, model: Tables) -> None:
        """Called once a step, before the loss, for what is computed for all replicas at once."""

    def finish(self) -> None:
        """Called once a step, after the gradient, to let go of what `prepare` made."""

    @abstractmethod
    def forward(self, batch: Scored) -> Tensor:
        """[r]: the loss of each replica in the batch."""

    def item_tables(self) -> tuple[nn.Parameter, ...]:
        """Parameters [R, n_items, d] of its own whose rows L2 acts on as on the encoder's."""
        return ()

    def finals(self, vectors: Vectors) -> tuple[Vectors, ...]:
        """What the vectors become in the end: one model, or several of which validation picks one."""
        return (vectors,)


def check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be a positive number, not {value}.")


def check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, not {value}.")


def mine(parameter: Tensor, batch: Scored) -> Tensor:
    """[r, …]: the rows of a parameter [R, …] that belong to the batch's replicas.

    A slice would do, but its gradient is as large as the whole parameter for every replica.
    """
    return torch.stack(parameter.unbind(0)[batch.replicas])


def normal(shape: tuple[int, ...], seeds: Sequence[int], salt: int, std: float) -> Tensor:
    """N(0, std²) [R, *shape], each replica from its own seed; drawn on the CPU, alike for all devices."""
    drawn = [
        torch.randn(shape, generator=torch.Generator().manual_seed(keyed.key(seed, salt) & (2**63 - 1)))
        for seed in seeds
    ]
    return torch.stack(drawn) * std
