"""`evenhand similar`: the items a model holds to be most like one."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt


def command(
    model: Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")],
    item: Annotated[str, typer.Argument(help="The id of an item.")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many items.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Another seed than the best one.")] = None,
    json: opt.Json = False,
) -> None:
    """List the items most similar to one, by the cosine of their vectors or by their weights."""
    from evenhand.cli import show
    from evenhand.models.factors import load

    loaded = load(model)
    table = loaded.similar(item, k, seed=seed)
    if json:
        show.print_json({"item": item, "similar": table.to_pylist()})
        return
    rows = ((str(row["item"]), f"{row['score']:.4f}") for row in table.to_pylist())
    show.print_listing(("item", loaded.likeness), rows)
