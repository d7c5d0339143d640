"""`evenhand evaluate`: judge recommendation lists from anywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from evenhand.cli import options as opt


def command(
    recs: Annotated[
        str, typer.Argument(help="Lists: user, item, rank or score; optionally seed and name columns.")
    ],
    train: Annotated[str, typer.Option(help="The interactions the lists were made from.")],
    test: Annotated[str, typer.Option(help="The interactions that were held out.")],
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = "honest",
    json: opt.Json = False,
    user: opt.User = "user",
    item: opt.Item = "item",
    rating: opt.Rating = None,
    timestamp: opt.Timestamp = None,
    min_rating: opt.MinRating = None,
    header: opt.Header = None,
) -> None:
    """Measure accuracy and popularity bias of recommendation lists."""
    from evenhand.cli import inputs, show
    from evenhand.data.splits import given_split
    from evenhand.experiments.compare import Row
    from evenhand.metrics.evaluate import evaluate_named

    columns = {
        "user": user,
        "item": item,
        "rating": rating,
        "timestamp": timestamp,
        "min_rating": min_rating,
        "header": header,
    }
    ks = inputs.integers(k, "--k")
    split = given_split(inputs.read_file(train, columns), inputs.read_file(test, columns, allow_small=True))
    found = evaluate_named(recs, split, ks, hot or "honest")
    notes = list(dict.fromkeys([*split.notes, *(note for one in found for note in one.notes)]))
    if json:
        documents = [one.to_json() for one in found]
        show.print_json({"rows": [row for d in documents for row in d["rows"]], "notes": notes})
        return
    screen = show.console()
    rows = [Row(one.name, None, "", row.k, row.metrics) for one in found for row in one.rows]
    show.print_rows(screen, rows, recs)
    show.print_notes(screen, notes)
