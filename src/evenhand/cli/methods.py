"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

from evenhand.cli import options as opt


def command(json: opt.Json = False) -> None:
    """List the training methods with their parameters and sources."""
    from evenhand.cli import show
    from evenhand.methods import METHODS

    if json:
        show.print_json(
            {
                "methods": [
                    {"name": m.name, "summary": m.summary, "parameters": m.parameters(), "source": m.source}
                    for m in METHODS.values()
                ]
            }
        )
        return
    rows = [
        (
            m.name,
            m.summary,
            ", ".join(f"{name}={default}" for name, default in m.parameters().items()) or "–",
            m.source,
        )
        for m in METHODS.values()
    ]
    show.print_listing(("method", "what it does", "parameters", "source"), rows)
