"""Who takes part in a comparison: a trained method or a rival, written the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import InputError, unknown
from evenhand.methods import METHODS, Contender, contender
from evenhand.rivals import RIVALS, Rival
from evenhand.rivals.run import Challenger, RivalFit, challenger
from evenhand.training.run import Fit

Entrant = Contender | Challenger
Outcome = Fit | RivalFit


def entrant(asked: str | Entrant | Rival, shared: Mapping[str, Any] | None = None) -> Entrant:
    """A name with parameters, or what stands behind one. `shared` are values for trained methods alone.

    >>> entrant("dns:candidates=2").method, entrant("ease:l2=300").method
    ('dns', 'ease')
    """
    if isinstance(asked, (Contender, Challenger)):
        return asked
    if isinstance(asked, Rival):
        return challenger(asked)
    name = asked.strip().partition(":")[0]
    if name in RIVALS:
        return challenger(asked)
    parts = name.split("@")
    if rivals := [part for part in parts if part in RIVALS]:
        raise InputError(f"'{name}': {rivals[0]} is a rival, which has no negatives to choose.")
    for part in parts:
        if part not in METHODS:
            raise unknown("method", part, (*METHODS, *RIVALS))
    return contender(asked, shared)
