"""`evenhand recommend`: lists out of a model folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt

if TYPE_CHECKING:
    import pyarrow as pa


def command(
    model: Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")],
    users: Annotated[
        str | None, typer.Option(help="A file with a column of user ids; all users without it.")
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Length of the lists.")] = 20,
    out: Annotated[
        str | None, typer.Option(help="A .parquet, .csv or .tsv file; standard output (csv) without it.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Another seed than the best one, or all for each.")] = None,
    known: Annotated[
        bool, typer.Option("--known", help="Let items through that the user already touched.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    user: Annotated[str, typer.Option(help="The column of user ids in that file.")] = "user",
    json: opt.Json = False,
) -> None:
    """Recommend k items to every user, or to those in a file."""
    from pathlib import Path

    from evenhand.cli import show
    from evenhand.data.write import check_target, write_csv, write_table
    from evenhand.errors import InputError
    from evenhand.ranking.model import load

    if out is not None:
        check_target(Path(out), force)
    loaded = load(model)
    wanted = None if users is None else _ids(users, user)
    if seed is None or seed == "all":
        chosen: int | str | None = seed
    else:
        try:
            chosen = int(seed)
        except ValueError:
            raise InputError(f"--seed takes a number or all, not '{seed}'.") from None
    table = loaded.recommend(wanted, k, seed=chosen, known=known)  # type: ignore[arg-type]
    if out is not None:
        write_table(table, Path(out))
        if json:
            show.print_json({"out": out, "rows": len(table)})
        else:
            print(f"{len(table):,} recommendations written to {out}.")
    elif json:
        show.print_json({"recommendations": table.to_pylist()})
    else:
        write_csv(table, sys.stdout.buffer)


def _ids(file: str, column: str) -> pa.Array:
    """The users of a file, each once, in its order."""
    import pyarrow.compute as pc

    from evenhand.data.read import Column, read_columns

    ids = read_columns(file, [Column("user", "id", column)])["user"]
    return pc.unique(ids.cast(ids.type.value_type))
