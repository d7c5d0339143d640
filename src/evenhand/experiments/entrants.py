"""Who takes part in a comparison: a trained method or a baseline, written the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.baselines import BASELINES, Baseline
from evenhand.baselines.run import BaselineFit, Challenger, challenger
from evenhand.methods import METHODS, Contender, contender
from evenhand.training.run import Fit
from evenhand.utils.errors import InputError, unknown

Entrant = Contender | Challenger
Outcome = Fit | BaselineFit


def entrant(asked: str | Entrant | Baseline, shared: Mapping[str, Any] | None = None) -> Entrant:
    """A name with parameters, or what stands behind one. `shared` are values for trained methods alone.

    >>> entrant("dns:candidates=2").method, entrant("ease:l2=300").method
    ('dns', 'ease')
    """
    if isinstance(asked, (Contender, Challenger)):
        return asked
    if isinstance(asked, Baseline):
        return challenger(asked)
    name = asked.strip().partition(":")[0]
    if name in BASELINES:
        return challenger(asked)
    parts = name.split("@")
    if baselines := [part for part in parts if part in BASELINES]:
        raise InputError(f"'{name}': {baselines[0]} is a baseline, which has no negatives to choose.")
    for part in parts:
        if part not in METHODS:
            raise unknown("method", part, (*METHODS, *BASELINES))
    return contender(asked, shared)
