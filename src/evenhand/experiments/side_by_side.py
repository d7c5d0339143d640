"""Which trials of a search train side by side, as replicas of one run, and how many of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal

import torch

from evenhand.baselines.run import Challenger
from evenhand.data.splits import Split
from evenhand.experiments.setup import Setup
from evenhand.training.memory_estimate import work_of
from evenhand.utils.errors import InputError
from evenhand.utils.memory import available_bytes

SideBySide = int | Literal["auto"]

ON_GPU = 8
"""Trials at once on a GPU, whose launches the replicas of a run share."""
_USABLE = 0.5
"""The share of the free memory that a run may plan with."""


def group_size(asked: SideBySide, setup: Setup, device: torch.device) -> int:
    """How many trials to ask for at once; `auto` takes several only where that was measured to be faster.

    That is on a GPU where every trial has the same number of epochs. Where each stops by itself, one that is
    done costs its share until the last one of its run is. On a CPU one trial keeps the cores busy, so that
    the little that is won is not worth a search that knows less.
    """
    if asked != "auto":
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
            raise InputError(f"trials side by side are a number from 1 on or 'auto', not '{asked}'.")
        return asked
    stops_alike = not isinstance(setup.entrant, Challenger) and setup.settings.patience is None
    return ON_GPU if stops_alike and device.type == "cuda" else 1


def together(setups: Sequence[Setup], most: int) -> list[list[int]]:
    """The positions of setups that make one run each, at most so many."""
    alike: dict[Hashable, list[int]] = {}
    for place, setup in enumerate(setups):
        alike.setdefault(_shape(setup) or place, []).append(place)
    return [group[i : i + most] for group in alike.values() for i in range(0, len(group), most)]


def replicas_that_fit(setup: Setup, split: Split, device: torch.device) -> int:
    """How many replicas of a setup half of the free memory has room for; at least one."""
    one, left = setup.entrant, available_bytes(device)
    if isinstance(one, Challenger) or left is None:
        return 1

    def needed(replicas: int) -> int:
        samplers = [one.sampler] * replicas
        return work_of(
            split.train, split.validation, setup.encoder, samplers, setup.settings, one.objective, device
        ).total

    each = needed(2) - needed(1)
    return max(1, 1 + int((_USABLE * left - needed(1)) // each))


def _shape(setup: Setup) -> Hashable:
    """What the replicas of a run have in common; None for a baseline, which is not trained in replicas."""
    one = setup.entrant
    if isinstance(one, Challenger):
        return None
    drawn = tuple(getattr(one.sampler, name) for name in one.sampler.structural)
    settings = replace(setup.settings, lr=1.0, weight_decay=None, l2=None)
    return type(one.sampler), drawn, one.objective, setup.encoder, settings
