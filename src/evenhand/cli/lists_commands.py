"""Commands on lists of any recommender: `evaluate` measures them, `rerank` lowers their bias, `audit` reports."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

if TYPE_CHECKING:
    from evenhand.audit.result import Audit


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
    from evenhand.cli import inputs
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
    from evenhand.cli import inputs
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
        headings = ("strength", f"ndcg@{k} ↑", f"ohr@{k} ↓", f"ocr@{k} ↓", f"ucr@{k} ↓", "")
        rows = []
        for one in found.trials:
            values = (f"{value:.4f}" for value in (one.ndcg, one.ohr, one.ocr, one.ucr))
            rows.append((f"{one.strength:g}", *values, "chosen" if one.strength == found.strength else ""))
        show.print_listing(headings, rows)
        rule = f"chosen: the lowest OHR@{k} on validation for at most {100 * allowed:g} % of NDCG@{k}"
        notes = [rule, f"hot are {found.hot}", *notes]
    show.print_notes(notes)
    done = f"{len(found.table):,} recommendations written to {to}"
    show.print_sentence(f"{done} ({method}, strength {found.strength:g}).")


@dataclass(frozen=True)
class Naming:
    """What the lists call their columns; users and items are called as in train or just user and item."""

    panel = "Reading"
    rec_user: Annotated[str | None, "Column of user ids in the lists."] = None
    rec_item: Annotated[str | None, "Column of item ids in the lists."] = None
    rank: Annotated[str | None, "Column of ranks, the first item lowest."] = None
    score: Annotated[str | None, "Column of scores, the first item highest."] = None


@dataclass(frozen=True)
class Checking:
    """What CI asks for."""

    panel = "CI"
    fail_if: Annotated[list[str] | None, "Exit 1 where this holds: ohr@10>0.6, a.ndcg@10<b.ndcg@10."] = None
    baseline: Annotated[str | None, "An earlier audit (--save) to compare with."] = None
    save: Annotated[str | None, "Write the audit as JSON to this file."] = None
    junit: Annotated[str | None, "Write the gates as JUnit XML to this file."] = None
    github: Annotated[bool, "Print annotations for a GitHub run."] = False


@dataclass(frozen=True)
class Known:
    """What else is known of users and items."""

    panel = "Slices"
    users_file: Annotated[str | None, "Attributes of users, by id."] = None
    items_file: Annotated[str | None, "Attributes of items, by id."] = None
    title: Annotated[str | None, "Column of --items-file with titles."] = None
    slice_by: Annotated[list[str] | None, "Column to slice by; may be repeated."] = None


def audit_lists(
    train: Annotated[str, "The interactions the lists were made from."],
    recs: Annotated[
        list[str], "Lists as NAME=FILE, with user, item and rank or score; repeatable. Findings are about the winner."
    ],
    naming: Naming,
    known: Known,
    checking: Checking,
    reading: opt.Reading,
    test: Annotated[str | None, "The interactions that were held out."] = None,
    validation: opt.KnownToo = None,
    k: opt.Ks = "5,10,20",
    hot: opt.Hot = "honest",
    out: Annotated[str | None, "Write a report to this .html file."] = None,
    force: Annotated[bool, "Write over files that exist."] = False,
    json: opt.Json = False,
) -> None:
    """Audit recommendation lists of any system: accuracy, popularity bias, exposure, with intervals."""
    from evenhand.audit.gates import against, check_gates, evaluate_gates, github_lines, parse_gate, save_junit
    from evenhand.audit.result import read_audit, save_audit, to_json
    from evenhand.audit.run_audit import audit
    from evenhand.cli import inputs
    from evenhand.data.write import check_target
    from evenhand.utils.progress import stages
    from evenhand.utils.world import World

    ks = inputs.list_lengths(k)
    gates = [parse_gate(text) for text in checking.fail_if or ()]
    check_gates(gates, ks, test is not None)
    for target in (out, checking.save, checking.junit):
        if target is not None:
            check_target(Path(target), force, endings=())
    if out is not None and Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out is for the report, so '{out}' must end in .html; --save writes JSON.")
    earlier = None if checking.baseline is None else read_audit(Path(checking.baseline))
    columns = {role.removeprefix("rec_"): name for role, name in asdict(naming).items() if name is not None}
    lists = _named(recs)
    with stages() as progress:
        found = audit(
            lists,
            train,
            test,
            validation=validation,
            k=ks,
            hot=hot or "honest",
            columns=columns,
            **(asdict(known) | {"slice_by": known.slice_by or ()}),
            reading=asdict(reading),
            progress=progress,
        )
    if earlier is not None:
        found = against(found, earlier)
    results = evaluate_gates(gates, found)
    if World.current().speaks:
        if checking.save is not None:
            save_audit(found, checking.save)
        if checking.junit is not None:
            save_junit(results, checking.junit)
        if out is not None:
            from evenhand.report import Origin, write_report

            files = {"train": train, "validation": validation, "test": test, **lists}
            files |= {"users": known.users_file, "items": known.items_file, "earlier audit": checking.baseline}
            write_report(found, Path(out), origin=Origin.of(sys.argv[1:], files))
    if json:
        show.print_json(to_json(found))
    else:
        _print_audit(found, [path for path in (out, checking.save, checking.junit) if path is not None])
    for line in github_lines(found, results) if checking.github else ():
        print(line, file=sys.stderr if json else sys.stdout)
    failed = [one for one in results if one.failed]
    for one in failed:
        print(f"evenhand: gate failed: {one_line(one.sentence)}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _named(recs: list[str]) -> dict[str, str]:
    """`mine=a.csv` as it says; a plain path goes by the file's stem."""
    found: dict[str, str] = {}
    for text in recs:
        name, equals, file = text.partition("=")
        if not equals or Path(text).is_file():
            name, file = Path(text).stem, text
        if not name or not file:
            raise InputError(f"--recs takes NAME=FILE or a file, not '{text}'.")
        if name in found:
            raise InputError(f"two lists are called '{name}'; give each its own name: --recs NAME=FILE.")
        found[name] = file
    return found


def _print_audit(found: Audit, written: list[str]) -> None:
    width = show.console().width
    for finding in found.findings:
        show.print_sentence(f"• {finding.sentence}")
    headings, cells = ["metric", *found.systems], list(show.audit_lines(found, intervals=True))
    fits = show.width_of([headings, *cells]) <= width
    intervals = ", with 95 % intervals over users" if fits else ""
    show.print_sentence(f"top {found.k}{intervals} (all metrics: --json)")
    show.print_listing(headings, cells if fits else show.audit_lines(found, intervals=False))
    narrow = [] if fits else ["a wider terminal shows the intervals too; --out and --json have them."]
    by_tenth = show.audit_tenths(found)
    if show.width_of(by_tenth) <= width:
        show.print_listing(by_tenth[0], by_tenth[1:])
    show.print_notes([f"hot are {found.data['hot_rule']}", *found.notes, *narrow])
    for change in found.changes:
        if change.beyond_uncertainty:
            way = {True: ", for the worse", False: ", for the better", None: ""}[change.worse]
            values = f"{change.before.value:.4f} to {change.after.value:.4f}"
            name = f"{change.metric}@{change.k} of {change.name}"
            show.print_sentence(f"changed: {name} went from {values}{way}.")
    if written:
        show.print_sentence(f"Written to {', '.join(written)}")
