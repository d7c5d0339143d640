"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenhand.cli import options as opt

if TYPE_CHECKING:
    from evenhand.methods import Method
    from evenhand.rivals import RivalKind


def command(json: opt.Json = False) -> None:
    """List the training methods and the rivals, with their parameters and sources."""
    from evenhand.cli import show
    from evenhand.methods import METHODS
    from evenhand.rivals import RIVALS

    registries: tuple[tuple[str, Mapping[str, Method | RivalKind]], ...] = (
        ("methods", METHODS),
        ("rivals", RIVALS),
    )
    if json:
        show.print_json({kind: [_record(one) for one in registry.values()] for kind, registry in registries})
        return
    for kind, registry in registries:
        rows = [
            (
                one.name,
                one.summary,
                ", ".join(f"{name}={default}" for name, default in one.parameters().items()) or "–",
                one.source,
            )
            for one in registry.values()
        ]
        show.print_listing((kind.removesuffix("s"), "what it does", "parameters", "source"), rows)


def _record(one: Method | RivalKind) -> dict[str, Any]:
    return {"name": one.name, "summary": one.summary, "parameters": one.parameters(), "source": one.source}
