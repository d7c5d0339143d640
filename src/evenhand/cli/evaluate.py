"""`evenhand evaluate`: judge recommendation lists from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened

if TYPE_CHECKING:
    import pyarrow as pa


@flattened
def command(
    recs: Annotated[
        str,
        typer.Argument(help="Lists, with columns user, item and rank or score; optionally seed and name."),
    ],
    train: Annotated[str, typer.Option(help="The interactions the lists were made from.")],
    test: Annotated[str, typer.Option(help="The interactions that were held out.")],
    reading: opt.Reading,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = "honest",
    rec_user: Annotated[
        str | None,
        typer.Option(
            help="Column of user ids in the lists; else user, or as --user.", rich_help_panel="Reading"
        ),
    ] = None,
    rec_item: Annotated[
        str | None,
        typer.Option(
            help="Column of item ids in the lists; else item, or as --item.", rich_help_panel="Reading"
        ),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Measure accuracy and popularity bias of recommendation lists."""
    from evenhand.cli import inputs, show
    from evenhand.data.splits import given_split
    from evenhand.experiments.compare import Row
    from evenhand.metrics.evaluate import evaluate_named

    ks = inputs.list_lengths(k)
    split = given_split(inputs.read_file(train, reading), inputs.read_file(test, reading, allow_small=True))
    found = evaluate_named(_lists(recs, rec_user, rec_item, reading), split, ks, hot or "honest")
    notes = list(dict.fromkeys([*split.notes, *(note for one in found for note in one.notes)]))
    if json:
        rows = [row for one in found for row in one.to_json()["rows"]]
        show.print_json({"rows": rows, "hot": found[0].hot, "notes": notes})
        return
    screen = show.console()
    table = [Row(one.name, None, None, row.k, row.metrics) for one in found for row in one.rows]
    shortened = show.print_rows(screen, table, recs)
    show.print_notes(screen, [f"hot are {found[0].hot}", *notes, *shortened])


def _lists(recs: str, user: str | None, item: str | None, reading: opt.Reading) -> Any:
    """The lists as something that `evaluate` reads: with columns user and item, whatever the file calls them.

    Columns that are not named are called user and item, or else as in the files of interactions.
    """
    import pyarrow as pa

    from evenhand.data.read import Column, read_columns
    from evenhand.errors import InputError
    from evenhand.metrics.lists import COLUMNS

    def read(user: str, item: str) -> pa.Table:
        named = [Column("user", "id", user), Column("item", "id", item), *COLUMNS[2:], Column("name", "id")]
        return read_columns(recs, named)

    try:
        table = read(user or "user", item or "item")
        if not user and not item:
            return recs
    except InputError:
        try:
            table = read(user or reading.user, item or reading.item)
        except InputError as problem:
            raise InputError(_of_lists(str(problem))) from None
    plain = (c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns)
    return pa.table(dict(zip(table.column_names, plain, strict=True)))


def _of_lists(message: str) -> str:
    """Lists have options of their own for their columns."""
    for role in ("user", "item"):
        message = message.replace(f"{role}= or --{role}.", f"--rec-{role}.")
    return message
