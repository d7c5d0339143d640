"""Lists of any recommender: `evenhand evaluate` measures them, `evenhand rerank` makes better ones of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.models.rerank import Reranked


def evaluate(
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


def rerank(
    recs: Annotated[
        str,
        typer.Argument(
            help="Candidates, more than k a user, with columns user, item and score or rank; optionally seed."
        ),
    ],
    train: Annotated[str, "The interactions the lists were made from."],
    to: Annotated[
        str, typer.Option("--out", "--to", help="A .parquet, .csv or .tsv file for the new lists.")
    ],  # --to as it was called before
    reading: opt.Reading,
    method: Annotated[
        str,
        "calibrated, xquad, xquad-binary or compensated. calibrated hardly moves OHR; "
        "xquad lowers it more and raises OCR.",
    ] = "calibrated",
    strength: Annotated[float | None, "From 0 (as it came) to 1; without it the method's default."] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Length of the new lists.")] = 20,
    validation: Annotated[
        str | None, "Later interactions on which to choose the strength; they leave the lists."
    ] = None,
    tolerance: Annotated[float | None, "How much of NDCG@k the choice may cost; 0.01 (1 %) without it."] = None,
    hot: opt.Hot = None,
    rec_user: opt.RecUser = None,
    rec_item: opt.RecItem = None,
    force: Annotated[bool, "Write over an existing file."] = False,
    json: opt.Json = False,
) -> None:
    """Re-rank lists of any recommender against popularity bias."""
    from evenhand.cli import inputs, show
    from evenhand.data.write import check_target, formulas_noted, write_table
    from evenhand.metrics.lists import ListColumns
    from evenhand.models.rerank import TOLERANCE, rerank_lists

    if validation is None:
        for option, given in (("--tolerance", tolerance), ("--hot", hot)):
            if given is not None:
                raise InputError(f"{option} belongs to the choice on --validation; leave it out.")
    check_target(Path(to), force)
    allowed = TOLERANCE if tolerance is None else tolerance
    known = inputs.read_file(train, reading, allow_small=True)
    later = None if validation is None else inputs.read_file(validation, reading, allow_small=True)
    columns = ListColumns.of({"user": rec_user, "item": rec_item}, asdict(reading))
    found = rerank_lists(
        recs, known, method, strength, k, later, tolerance=allowed, hot=hot or "honest", columns=columns
    )
    write_table(found.table, Path(to))
    notes = [*found.notes, *formulas_noted(found.table, to)]
    if json:
        document = {"to": to, "rows": len(found.table), "method": method, "strength": found.strength, "k": k}
        choice = {"tolerance": allowed, "hot": found.hot, "trials": [one.to_json() for one in found.trials]}
        show.print_json(document | {"choice": choice if found.trials else None, "notes": notes})
        return
    if found.trials:
        _print_choice(found, k, allowed)
    show.print_notes(notes)
    show.print_sentence(
        f"{len(found.table):,} recommendations written to {to} ({method}, strength {found.strength:g})."
    )


def _print_choice(found: Reranked, k: int, tolerance: float) -> None:
    from evenhand.cli import show

    headings = ("strength", f"ndcg@{k} ↑", f"ohr@{k} ↓", f"ocr@{k} ↓", f"ucr@{k} ↓", "")
    rows = [
        (
            f"{one.strength:g}",
            *(f"{value:.4f}" for value in (one.ndcg, one.ohr, one.ocr, one.ucr)),
            "chosen" if one.strength == found.strength else "",
        )
        for one in found.trials
    ]
    show.print_listing(headings, rows)
    rule = f"chosen: the lowest OHR@{k} on validation for at most {100 * tolerance:g} % of NDCG@{k}"
    show.print_notes([rule, f"hot are {found.hot}"])
