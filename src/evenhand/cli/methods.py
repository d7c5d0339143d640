"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

from evenhand.cli import options as opt


def command(json: opt.Json = False) -> None:
    """List the training methods with their parameters and sources."""
    from rich.table import Table

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
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("method", "what it does", "parameters", "source"):
        table.add_column(heading)
    for method in METHODS.values():
        given = ", ".join(f"{name}={default}" for name, default in method.parameters().items())
        table.add_row(method.name, method.summary, given or "–", method.source)
    show.console().print(table)
