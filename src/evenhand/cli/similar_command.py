"""`evenhand similar`: the items a model holds to be most like one."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt


def command(
    model: opt.ModelFolder,
    item: Annotated[str, typer.Argument(help="The id of an item.")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many items.")] = 10,
    json: opt.Json = False,
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    seed: Annotated[int | None, "Another seed than the best one.", "Lists"] = None,
) -> None:
    """List the items most similar to one, by the cosine of their vectors or by their weights."""
    from evenhand.cli import remembered, show
    from evenhand.models.factors import load

    loaded = load(model)
    titles = remembered.titles_for(loaded, items_file, title)
    table = loaded.titled(loaded.similar(item, k, seed=seed), titles)
    if json:
        show.print_json({"item": item, "similar": table.to_pylist()})
        return
    headings = ("item", *(() if titles is None else ("title",)), loaded.likeness)
    rows = (
        (str(row["item"]), *(() if titles is None else (row["title"] or "",)), f"{row['score']:.4f}")
        for row in table.to_pylist()
    )
    show.print_listing(headings, rows)
