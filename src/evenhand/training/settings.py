"""How a model is trained, as values: the optimiser's numbers and the two protocols."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from evenhand.data.interactions import Interactions
from evenhand.encoders import Encoder, LightGCN
from evenhand.objectives.base import Objective
from evenhand.samplers.base import check_drawn
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.world import World

ProtocolName = Literal["honest", "paper"]
Resume = bool | Literal["matching"]
"""Whether to go on from checkpoints; "matching" starts over where they are of another run, and True refuses them."""
SamplerScores = Literal["propagated", "raw"]
Updates = Literal["auto", "dense", "sparse"]
EngineName = Literal["auto", "torch", "sharded"]
DENSE_UP_TO = 100_000
"""Users and items together; above this, rows that a batch did not touch are left alone."""
USUAL_BATCH, SMALLEST_BATCH, USUAL_STEPS = 1024, 32, 32
"""Positives per step, on a small log as few as leave an epoch so many steps: in two or three a model moves too little
for patience to see, and stops untrained (docs/sparse.md)."""
USUAL_LR = 0.002
SPARSE_FASTER = 3
"""Times the usual rate of inner products where a row moves only with its own batches, and so more seldom."""
USUAL_PAIRS = 72_000
"""Training pairs of the data on which the encoders' usual weight decay was chosen."""


@dataclass(frozen=True)
class Settings:
    """Numbers of the training loop.

    The defaults were chosen on the validation parts of several data sets (docs/sparse.md).
    """

    epochs: int = 200
    """At most this many passes over the training pairs."""
    batch: int | None = None
    """Positives per step. None is 1024, and fewer for a small log in the honest protocol: an epoch needs some steps."""
    lr: float | None = None
    """Adam's learning rate. None takes the encoder's for losses on inner products, and .002 for losses on cosines and
    in the paper's protocol."""
    weight_decay: float | None = None
    """L2 coupled into Adam's gradient, on every parameter at every step: the paper's form.

    Given, it replaces `l2`. None is 0 in the honest protocol; the paper's takes what was usual for the encoder,
    and less of it the more pairs there are (`usual_decay`).
    """
    l2: float | None = None
    """λ of `λ/2B·Σ(‖p_u‖² + ‖q_i‖² + mean_j ‖q_j‖²)` over the raw rows of a batch (see `training.adam`).

    None takes the encoder's for losses on inner products and 0 for losses on cosines, which lengths do not
    change; it is 0 where `weight_decay` is given, and in the paper's protocol.
    """
    milestones: tuple[int, ...] = ()
    """After these epochs the learning rate falls to a tenth."""
    negatives: int | None = None
    """Negatives per positive; None leaves it to the objective, most of which want one."""
    patience: int | None = 20
    """Stop a replica after this many epochs without a better validation NDCG@10, but not before three times as many;
    None trains all epochs."""
    average: bool | None = None
    """Evaluate and keep the mean of the tables over the last epochs, not those of one: Adam's steps leave noise in
    them, the more the larger the log (docs/sparse.md). None does so in the honest protocol."""
    drop_last: bool = False
    """Leave out the incomplete last batch of an epoch."""
    deterministic: bool = False
    """On a GPU: use only kernels that repeat to the bit, some of which are slower."""
    sampler_scores: SamplerScores = "propagated"
    """What a score-based sampler looks at in LightGCN: the model's vectors, or the raw tables below them."""
    updates: Updates = "auto"
    """Adam on every row at every step (dense), or on the rows of a batch, each by its own clock (sparse).

    "auto" is dense up to 100,000 users and items together, in the paper's protocol and in LightGCN, whose
    every vector depends on every row.
    """
    eval_users: int | None = None
    """Evaluate each epoch on this number of users, drawn once and the same for every run.

    None takes as many as `evaluation.users_each_epoch` says. Test is looked at with all users in any case.
    """
    seconds: float | None = None
    """Train no new epoch after this long; the best one until then counts. None is without a limit."""
    engine: EngineName = "auto"
    """The fastest engine that can do the work, or the plain one in torch, which the others agree with.

    Over several processes it is always the sharded one; asked for in one, it gives the bits that they would give. One
    process that `torchrun` starts takes it too, but on a GPU only where it is asked for: all rows are there.
    """

    def __post_init__(self) -> None:
        if self.negatives is not None:
            check_drawn("negatives", self.negatives)
        for name, whole in (("epochs", self.epochs), ("batch", self.positives)):
            if not isinstance(whole, int) or whole < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {whole}.")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise InputError(f"lr must be a positive number, not {self.lr}.")
        for name in ("weight_decay", "l2"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise InputError(f"{name} must be a number of at least 0, not {value}.")
        users = self.eval_users
        if users is not None and (not isinstance(users, int) or users < 1):
            raise InputError(f"eval_users must be a whole number of at least 1, not {users}.")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError(f"seconds must be a positive number, not {self.seconds}.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience must be at least 1, not {self.patience}.")
        if any(m < 1 for m in self.milestones) or list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"milestones must be ascending epochs from 1 on, not {list(self.milestones)}.")
        for kind, value, known in (
            ("kind of sampler scores", self.sampler_scores, SamplerScores),
            ("kind of updates", self.updates, Updates),
            ("engine", self.engine, EngineName),
        ):
            if value not in get_args(known):
                raise unknown(kind, value, get_args(known))

    @property
    def positives(self) -> int:
        """Of a step, once `under` has filled it in."""
        return USUAL_BATCH if self.batch is None else self.batch

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0.

        >>> s = Settings(lr=0.1, milestones=(20, 60))
        >>> [round(s.lr_at(e), 6) for e in (0, 19, 20, 59, 60)]
        [0.1, 0.1, 0.01, 0.01, 0.001]
        """
        return (self.lr or USUAL_LR) * 0.1 ** sum(epoch >= m for m in self.milestones)

    def under(
        self,
        protocol: ProtocolName,
        encoder: Encoder | None = None,
        train: Interactions | None = None,
        objective: Objective | None = None,
    ) -> Settings:
        """These settings with what the protocol prescribes and, once they are known, what is left to the others."""
        filled = self
        if encoder is not None and objective is not None:
            filled = self._filled(protocol, encoder, train, objective)
        filled = replace(filled, average=protocol == "honest" if self.average is None else self.average)
        if protocol == "honest":
            return filled
        updates = "dense" if self.updates == "auto" else self.updates
        return replace(filled, patience=None, drop_last=True, updates=updates)

    def _filled(
        self, protocol: ProtocolName, encoder: Encoder, train: Interactions | None, objective: Objective
    ) -> Settings:
        decay, l2 = self.weight_decay, self.l2
        if decay is None and protocol == "paper":
            decay = usual_decay(encoder, self.updates, train)
        if l2 is None:
            l2 = encoder.l2 if decay is None and objective.lengths_matter else 0.0
        own = USUAL_LR
        if protocol == "honest" and objective.lengths_matter:
            sparse = train is not None and is_sparse(self.updates, encoder, train.n_users + train.n_items)
            own = max(encoder.lr * (SPARSE_FASTER if sparse else 1), objective.least_lr)
        batch = self.positives
        if self.batch is None and protocol == "honest" and train is not None:
            batch = min(batch, max(SMALLEST_BATCH, len(train) // USUAL_STEPS))
        return replace(self, batch=batch, lr=self.lr or own, weight_decay=decay or 0.0, l2=l2)


def usual_decay(encoder: Encoder, updates: Updates, train: Interactions | None) -> float:
    """The encoder's weight decay for these pairs, in the paper's protocol.

    A dense step pulls every row towards 0, while a row's own pairs push it in one step of many: with ten
    times the pairs, ten times more seldom. So the decay falls as they grow. A sparse step moves only rows
    whose pairs are in it, and leaves the two in balance.
    """
    if train is None or is_sparse(updates, encoder, train.n_users + train.n_items):
        return encoder.weight_decay
    return float(f"{encoder.weight_decay * min(1, USUAL_PAIRS / max(1, len(train))):.3g}")


def tried_regularisation(
    encoder: Encoder, objective: Objective, settings: Settings, train: Interactions
) -> list[dict[str, float]]:
    """What a fit tries on validation: L2 on a batch's rows, and weight decays where they reach every row."""
    tried = [{"l2": one} for one in (*objective.l2_also_tried, *encoder.l2_tried)]
    if not is_sparse(settings.updates, encoder, train.n_users + train.n_items):
        tried += [{"weight_decay": float(f"{pull / (2 * len(train)):.3g}")} for pull in encoder.pulls_tried]
    return tried


def is_sparse(updates: Updates, encoder: Encoder, rows: int) -> bool:
    """Whether only the rows of a batch move."""
    if updates != "auto":
        return updates == "sparse"
    return not isinstance(encoder, LightGCN) and rows > DENSE_UP_TO


def resolve_device(name: str) -> torch.device:
    """`auto` takes a GPU where every process has one; asking for one that is not there is an error."""
    world = World.current()
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and (world.size == 1 or world.has_gpus) else "cpu")
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and (kind == "cpu" or not number.isdecimal())):
        raise unknown("device", name, ("auto", "cpu", "cuda", "cuda:1"))
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise InputError(f"no CUDA device '{name}' is available here; use --device cpu or --device auto.")
    if number and world.size > 1:
        raise InputError(f"over several processes each takes a GPU of its own; say --device cuda, not {name}.")
    return torch.device(name)


@contextmanager
def exact_repeats(wanted: bool) -> Iterator[None]:
    """On a GPU, use only kernels that give the same bits every time; a CPU always does."""
    if not wanted:
        yield
        return
    # cuBLAS reads this when it starts; with it, its reductions always take the same order.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
