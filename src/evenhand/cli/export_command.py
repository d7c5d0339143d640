"""`evenhand export`: a model's vectors for other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.text import count, visible


def command(
    model: Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")],
    to: Annotated[str, "parquet, npz or faiss."],
    out: Annotated[str, "A folder for parquet and faiss, a .npz file for npz."],
    seed: Annotated[int | None, "Another seed than the best one."] = None,
    force: Annotated[bool, "Write over what is there."] = False,
    json: opt.Json = False,
) -> None:
    """Write the user and item vectors, with their ids, to files that other systems read."""
    from evenhand.cli import show
    from evenhand.models.factors import load
    from evenhand.models.vector_files import check_export, export

    check_export(to, Path(out), force)
    loaded = load(model).as_vectors()
    export(loaded, to, out, seed=seed, force=force)
    n_users, n_items = loaded.known.n_users, loaded.known.n_items
    if json:
        used = loaded.seeds[loaded.replica(seed)]
        show.print_json({"out": out, "to": to, "seed": used, "users": n_users, "items": n_items})
    else:
        print(f"Vectors of {count(n_users, 'user')} and {count(n_items, 'item')} written to {visible(out)}.")
