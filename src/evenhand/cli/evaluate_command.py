"""`evenhand evaluate`: measure recommendation lists from anywhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli import options as opt


def command(
    recs: Annotated[
        str, typer.Argument(help="Lists, with columns user, item and rank or score; optionally seed and name.")
    ],
    train: Annotated[str, "The interactions the lists were made from."],
    test: Annotated[str, "The interactions that were held out."],
    reading: opt.Reading,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = "honest",
    rec_user: opt.RecUser = None,
    rec_item: opt.RecItem = None,
    validation: opt.KnownToo = None,
    json: opt.Json = False,
) -> None:
    """Measure accuracy, popularity bias and exposure of recommendation lists."""
    from evenhand.cli import inputs, show
    from evenhand.data.splits import given_split
    from evenhand.experiments.compare import Row
    from evenhand.metrics.evaluate import evaluate_named
    from evenhand.metrics.lists import ListColumns

    ks = inputs.list_lengths(k)
    known = inputs.read_file(train, reading)
    between = None if validation is None else inputs.read_file(validation, reading, allow_small=True)
    split = given_split(known, inputs.read_file(test, reading, allow_small=True), validation_part=between)
    columns = ListColumns.of({"user": rec_user, "item": rec_item}, asdict(reading))
    # Lists without names of their own go by the file's, as in an audit.
    found = evaluate_named(recs, split, ks, hot or "honest", columns=columns, name=Path(recs).stem)
    notes = list(dict.fromkeys([*split.notes, *(note for one in found for note in one.notes)]))
    if json:
        rows = [row for one in found for row in one.to_json()["rows"]]
        show.print_json({"rows": rows, "hot": found[0].hot, "notes": notes})
        return
    table = [Row(one.name, None, None, row.k, row.metrics) for one in found for row in one.rows]
    shortened = show.print_rows(table, recs)
    show.print_notes([f"hot are {found[0].hot}", *notes, *shortened])
