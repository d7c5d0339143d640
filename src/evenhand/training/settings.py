"""How a model is trained, as values: the optimiser's numbers and the two protocols."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from evenhand.errors import InputError, unknown

ProtocolName = Literal["honest", "paper"]
SamplerScores = Literal["propagated", "raw"]


@dataclass(frozen=True)
class Settings:
    """Numbers of the training loop. The defaults learn unseen data of MovieLens' size in seconds."""

    epochs: int = 200
    """At most this many passes over the training pairs."""
    batch: int = 1024
    """Positives per step."""
    lr: float = 0.01
    """Adam's learning rate."""
    weight_decay: float = 1e-4
    """L2 coupled into Adam's gradient, on every parameter at every step."""
    milestones: tuple[int, ...] = ()
    """After these epochs the learning rate falls to a tenth."""
    negatives: int = 1
    """Negatives per positive."""
    patience: int | None = 10
    """Stop a replica after this many epochs without a better validation NDCG@10; None trains all epochs."""
    drop_last: bool = False
    """Leave out the incomplete last batch of an epoch."""
    sampler_scores: SamplerScores = "propagated"
    """What a score-based sampler looks at in LightGCN: the model's vectors, or the raw tables below them."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "negatives"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 < self.lr < math.inf:
            raise InputError(f"lr must be a positive number, not {self.lr}.")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay must be a number of at least 0, not {self.weight_decay}.")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience must be at least 1, not {self.patience}.")
        if any(m < 1 for m in self.milestones) or list(self.milestones) != sorted(set(self.milestones)):
            raise InputError(f"milestones must be ascending epochs from 1 on, not {list(self.milestones)}.")
        if self.sampler_scores not in get_args(SamplerScores):
            raise unknown("kind of sampler scores", self.sampler_scores, get_args(SamplerScores))

    def lr_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0.

        >>> s = Settings(lr=0.1, milestones=(20, 60))
        >>> [round(s.lr_at(e), 6) for e in (0, 19, 20, 59, 60)]
        [0.1, 0.1, 0.01, 0.01, 0.001]
        """
        return self.lr * 0.1 ** sum(epoch >= m for m in self.milestones)

    def under(self, protocol: ProtocolName) -> Settings:
        """These settings with what the protocol prescribes."""
        if protocol == "paper":
            return replace(self, patience=None, drop_last=True)
        return self


def resolve_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one; asking for one that is not there is an error."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda")) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("no CUDA device is available here; use --device cpu or --device auto.")
    return device
