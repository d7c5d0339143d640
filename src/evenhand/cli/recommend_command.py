"""`evenhand recommend`: lists out of a model folder."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.interactions import Interactions


def command(
    model: Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")],
    users: Annotated[str | None, typer.Option(help="A file with a column of user ids; all users without it.")] = None,
    new_users: Annotated[
        str | None,
        typer.Option(help="A file of what new users interacted with: recommend to them."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Length of the lists.")] = 20,
    out: Annotated[
        str | None, typer.Option(help="A .parquet, .csv or .tsv file; standard output (csv) without it.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Another seed than the best one, or all for each.")] = None,
    known: Annotated[bool, typer.Option("--known", help="Let items through that the user already has.")] = False,
    exclude: Annotated[
        str | None, typer.Option(help="A file with a column of items that are never recommended.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="A file with a column of items; no others are recommended.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    user: Annotated[str, typer.Option(help="The column of user ids in these files.")] = "user",
    item: Annotated[str, typer.Option(help="The column of item ids in these files.")] = "item",
    json: opt.Json = False,
) -> None:
    """Recommend k items to every user, to those in a file, or to new ones with a history."""
    from pathlib import Path

    from evenhand.cli import show
    from evenhand.data.write import check_target, write_table
    from evenhand.metrics.lists import count
    from evenhand.models.factors import load
    from evenhand.utils.errors import InputError
    from evenhand.utils.text import one_line, visible

    if users is not None and new_users is not None:
        raise InputError("--users and --new-users exclude each other; run the command once for each.")
    if out is not None:
        check_target(Path(out), force)
    chosen = _seed(seed)
    loaded = load(model)
    if new_users is not None:
        loaded = loaded.fold_in(_history(new_users, user, item))
    table = loaded.recommend(
        None if users is None else _ids(users, "user", user),
        k,
        seed=chosen,  # type: ignore[arg-type]
        known=known,
        exclude=None if exclude is None else _ids(exclude, "item", item),
        only=None if only is None else _ids(only, "item", item),
    )
    notes = list(loaded.known.notes)
    if out is not None:
        write_table(table, Path(out))
    if json:
        document = {"recommendations": table.to_pylist()} if out is None else {"out": out, "rows": len(table)}
        show.print_json(document | {"notes": notes})
        return
    # Standard output may be the csv file itself.
    for note in notes:
        print(f"note: {one_line(note)}", file=sys.stderr)
    if out is None:
        show.print_csv(table)
    else:
        print(f"{count(len(table), 'recommendation')} written to {visible(out)}.")


def _seed(text: str | None) -> int | str | None:
    from evenhand.utils.errors import InputError

    if text is None or text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--seed takes a number or all, not '{text}'.") from None


def _history(file: str, user: str, item: str) -> Interactions:
    from evenhand.data.reading.read import read_interactions

    opt.two_columns(user, item)
    return read_interactions(file, user=user, item=item, allow_small=True)


def _ids(file: str, role: str, column: str) -> pa.Array:
    """The users or items of a file, each once, in its order."""
    import pyarrow.compute as pc

    from evenhand.data.reading.read import Column, read_columns

    ids = read_columns(file, [Column(role, "id", column)])[role]
    return pc.unique(ids.cast(ids.type.value_type))
