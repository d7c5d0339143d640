"""What a person asks for in a few words, as a method: a recipe, or a method on top of another model."""

from __future__ import annotations

from pathlib import Path

from evenhand.baselines.blend import CLOSED
from evenhand.methods import METHODS
from evenhand.utils.errors import InputError, unknown

RECIPES = {"best": "blend", "fast": "als"}
"""Presets that need no tuning: the most accurate we know, and the first answer."""


def asked_method(
    method: str | None = None,
    recipe: str | None = None,
    base: str | None = None,
    base_share: float | None = None,
    encoder: str | None = None,
) -> str:
    """The text of the method that was asked for in one of these ways.

    >>> asked_method(), asked_method(recipe="best"), asked_method("dns", base="ease", base_share=0.6)
    ('auc-ns', 'blend', 'blend:parts=ease+dns:shares=0.6+0.4')
    """
    if recipe is not None:
        if method is not None or base is not None:
            raise InputError("--recipe stands for a method; leave --method and --base out.")
        if recipe not in RECIPES:
            raise unknown("recipe", recipe, RECIPES)
        return RECIPES[recipe]
    if base is None:
        if base_share is not None:
            raise InputError("--base-share says how much --base counts; name one.")
        return method or "auc-ns"
    method = method or "auc-ns"
    if method not in METHODS:
        raise InputError(f"--base takes a training method by its name alone, not '{method}'.")
    if base not in CLOSED and not Path(base).expanduser().exists():
        raise unknown("base", base, CLOSED)
    if ":" in base or "+" in base:
        raise InputError(f"a base's path may hold neither ':' nor '+', unlike '{base}'.")
    if base_share is not None and not 0 < base_share < 1:
        raise InputError(f"--base-share lies between 0 and 1, not {base_share:g}.")
    text = f"blend:parts={base}+{method}"
    if base_share is None and base not in CLOSED:
        base_share = 0.5
    if base_share is not None:
        text += f":shares={base_share:g}+{1 - base_share:g}"
    return text if encoder is None else f"{text}:encoder={encoder}"
