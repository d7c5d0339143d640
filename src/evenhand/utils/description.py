"""A frozen dataclass as plain JSON values, and back: how a model folder remembers its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from evenhand.utils.errors import unknown


def described(part: Any) -> dict[str, Any]:
    """The class's name as `kind` and the fields by name; `from_description` makes it again."""
    return {"kind": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}


def from_description(base: Any, description: Mapping[str, Any]) -> Any:
    """What `described` wrote down: one of the subclasses of `base` that are imported."""
    kinds: dict[str, type] = {}
    found = list(base.__subclasses__())
    for kind in found:  # those nearest to the base first; of equal names the first counts
        kinds.setdefault(kind.__name__, kind)
        found += kind.__subclasses__()
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in description.items() if name != "kind"}
    if description["kind"] not in kinds:
        raise unknown("kind of sampler or objective", description["kind"], kinds)
    return kinds[description["kind"]](**values)
