"""Trials as a file or a database gives them back, checked: others may have written there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from evenhand.experiments.search_space import Space
from evenhand.experiments.trial import Trial, Verdict
from evenhand.utils.errors import written_by_us


@contextmanager
def as_kept(where: str) -> Iterator[None]:
    """Whatever about the trials there evenhand cannot have written, a person hears it in one sentence."""
    with written_by_us(where, "trials", "name another folder or --study, or begin anew with --force"):
        yield


def kept_trial(place: int, one: Any, space: Space, goals: int) -> Trial:
    """One of Optuna's finished trials as ours; `place` is its number among them."""
    notes = one.user_attrs
    values, margins = tuple(map(float, one.values)), tuple(notes.get("margins", ()))
    seconds, problem = float(notes.get("seconds", 0)), notes.get("problem")
    if len(values) != goals or len(margins) not in (0, goals) or not isinstance(problem, str | None):
        raise ValueError(f"trial {place} is not one of this search")
    if not all(math.isfinite(number) for number in (*values, *margins, seconds) if number is not None):
        raise ValueError(f"trial {place} has something that is no number")
    return Trial(place, kept_point(one.params, space), Verdict(values, margins, problem), seconds)


def kept_point(values: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The parameters that are searched, tidied; each must lie where the search looks."""
    found = {name: span.tidy(values[name]) for name, span in space.items()}
    for name, span in space.items():
        if span.nearest(found[name]) != found[name]:
            raise ValueError(f"{name} lies outside of {span}")
    return found
