"""`evenhand recommend`: lists out of a model folder."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli import options as opt
from evenhand.cli.options import flattened

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.interactions import Interactions
    from evenhand.models.base import Model

_JSON_ROW = 1200
"""Bytes of memory that one row of a JSON document takes while it is made, measured."""


@flattened
def command(
    context: typer.Context,
    model: opt.ModelFolder,
    users: Annotated[str | None, typer.Option(help="A file with a column of user ids; all users without it.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Length of the lists.")] = 20,
    out: Annotated[
        str | None, typer.Option(help="A .parquet, .csv or .tsv file; standard output (csv) without it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    json: opt.Json = False,
    *,
    filtering: opt.Filtering,
    new_users: Annotated[
        str | None,
        typer.Option(help="A file of what new users interacted with: recommend to them.", rich_help_panel="New users"),
    ] = None,
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback",
            help="Users without history get the popular items that the filters allow, marked in a column.",
            rich_help_panel="New users",
        ),
    ] = False,
    newcomers: opt.Newcomers,
    items_file: opt.ItemsFile = None,
    title: opt.Title = None,
    seed: Annotated[
        str | None, typer.Option(help="Another seed than the best one, or all for each.", rich_help_panel="Lists")
    ] = None,
    reading: opt.ListReading,
) -> None:
    """Recommend k items to every user, to those in a file, or to new ones with a history.

    Files are read as the training log was, unless options say otherwise. Ids that the model does not know are counted.
    """
    from pathlib import Path

    from torch import device

    from evenhand.cli import remembered, show
    from evenhand.data.write import check_target, write_table
    from evenhand.metrics.lists import count
    from evenhand.models.factors import load
    from evenhand.models.filters import joined, notes_of
    from evenhand.utils.errors import InputError
    from evenhand.utils.memory import check_memory
    from evenhand.utils.text import one_line, visible

    if users is not None and new_users is not None:
        raise InputError("--users and --new-users exclude each other; run the command once for each.")
    if out is not None:
        check_target(Path(out), force)
    chosen = _seed(seed)
    said = {role: getattr(reading, role) for role in ("user", "item") if remembered.is_given(context, role)}
    loaded, notes = remembered.with_newcomers(load(model), newcomers, said.get("item"))
    served = loaded
    titles = remembered.titles_for(loaded, items_file, title, said.get("item"))
    limits = _limits(filtering, items_file, said, loaded)
    if chosen is not None:
        limits["seed"] = chosen
    left_out = None
    if new_users is not None:
        how, more = remembered.reading_for(new_users, reading, context, loaded)
        history = _history(new_users, how)
        served = loaded.fold_in(history)
        notes += [*more, *served.known.notes]
        left_out = _absent(history.user_ids, served.known.user_ids) if fallback else None
    ids = None if users is None else _ids(users, "user", said, loaded)
    table = served.recommend(ids, k, known=filtering.known, fallback=fallback, **limits)
    if left_out is not None and len(left_out):
        table = joined([table, loaded.recommend(left_out, k, known=filtering.known, fallback=True, **limits)])
    notes += notes_of(table)
    table = loaded.titled(table.replace_schema_metadata(), titles)
    if out is not None:
        write_table(remembered.with_own_names(table, loaded), Path(out))
    if json:
        if out is None:
            what, instead = (
                f"a JSON document of {len(table):,} rows",
                "write a file with --out, or ask for shorter lists",
            )
            check_memory(len(table) * _JSON_ROW, device("cpu"), what, instead)
        document = {"recommendations": table.to_pylist()} if out is None else {"out": out, "rows": len(table)}
        show.print_json(document | {"notes": notes})
        return
    # Standard output may be the csv file itself.
    for note in notes:
        print(f"note: {one_line(note)}", file=sys.stderr)
    if out is None:
        show.print_csv(remembered.with_own_names(table, loaded))
    else:
        print(f"{count(len(table), 'recommendation')} written to {visible(out)}.")


def _limits(filtering: opt.Filtering, items_file: str | None, said: dict[str, str], model: Model) -> dict[str, Any]:
    """What may be recommended, as the arguments of `Model.recommend`."""
    import pyarrow.compute as pc

    from evenhand.cli import remembered
    from evenhand.data.reading.columns import NoRowsError
    from evenhand.data.reading.where import items_where
    from evenhand.utils.errors import InputError

    found: dict[str, Any] = {}
    source = filtering.filter or items_file
    if filtering.exclude is not None:
        found["exclude"] = _ids(filtering.exclude, "item", said, model)
    if filtering.only is not None:
        found["only"] = _ids(filtering.only, "item", said, model)
    if filtering.where is not None:
        if source is None:
            raise InputError("--where speaks of the columns of a file of items; name it with --filter.")
        column = remembered.column_for(source, "item", said.get("item"), model)
        chosen = items_where(source, column, filtering.where)
        if not len(chosen):
            raise InputError(f"nothing is left to recommend: no row of {source} fulfils --where.")
        if "only" in found:
            both = pc.is_in(chosen.cast("string"), value_set=found["only"].cast("string"))
            chosen = chosen.filter(both)
        found["only"] = chosen
    elif filtering.filter is not None:
        raise InputError("--filter is a file of items; say with --where which rows count, as in --where 'stock > 0'.")
    if filtering.exclude_pairs is not None:
        file = filtering.exclude_pairs
        user, item = (remembered.column_for(file, role, said.get(role), model) for role in ("user", "item"))
        with suppress(NoRowsError):
            found["exclude_pairs"] = _history(file, opt.Reading(user=user, item=item))
    return found


def _seed(text: str | None) -> int | str | None:
    from evenhand.utils.errors import InputError

    if text is None or text == "all":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--seed takes a number or all, not '{text}'.") from None


def _history(file: str, reading: opt.Reading) -> Interactions:
    from evenhand.data.reading.read import read_interactions

    opt.two_columns(reading.user, reading.item)
    return read_interactions(file, **asdict(reading), allow_small=True)


def _ids(file: str, role: str, said: dict[str, str], model: Model) -> pa.Array:
    """The users or items of a file, each once, in its order."""
    from evenhand.cli.remembered import column_for
    from evenhand.data.reading.read import read_ids

    return read_ids(file, role, column_for(file, role, said.get(role), model))


def _absent(ids: pa.Array, among: pa.Array) -> pa.Array:
    import pyarrow as pa

    from evenhand.models.id_lookup import positions

    return ids.filter(pa.array(positions(ids, among) < 0))
