"""What commands print: tables with error bars, notes, JSON. Importing it loads neither numpy nor torch."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenhand.cli import drop_output
from evenhand.utils.progress import compile_time
from evenhand.utils.text import json_text, one_line, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.audit.result import Audit
    from evenhand.experiments.compare import Row
    from evenhand.experiments.verdict import Answer
    from evenhand.metrics.statistics import Estimate, Summary

_PIPED_WIDTH = 1000
"""A file or another program takes lines of any length."""
_GAP = "  "
_LONGEST_CELL = 200


class _Screen(Console):
    """Standard output, whose reader may leave early."""

    def on_broken_pipe(self) -> None:
        drop_output()


def console() -> Console:
    """Standard output; where it is no terminal, as wide as COLUMNS says or enough for whole tables."""
    if sys.stdout.isatty():
        return _Screen()
    columns = os.environ.get("COLUMNS", "")
    return _Screen(width=int(columns) if columns.isdecimal() and int(columns) else _PIPED_WIDTH)


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """`… | head` reads what it wants and goes; that is no error and prints nothing."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def print_csv(table: pa.Table) -> None:
    """A table as csv: to a program byte for byte, to a terminal with what would steer it spelled out."""
    from evenhand.data.write import write_csv

    with reader_may_leave():
        if not sys.stdout.isatty():
            write_csv(table, sys.stdout.buffer)
            return
        content = io.BytesIO()
        write_csv(table, content)
        sys.stdout.write("\n".join(map(visible, content.getvalue().decode().split("\n"))))


def print_json(document: Any) -> None:
    with reader_may_leave():
        encoding = (sys.stdout.encoding or "").lower()
        print(json_text(document, ascii_only=not encoding.startswith("utf")))


def print_rows(rows: Sequence[Row], title: str, out: Console | None = None) -> list[str]:
    """One table a k: mean ± std, the best of each column marked with a star; all in one layout.

    Returns a note if some metrics had to be left out.
    """
    from evenhand.metrics.catalogue import SCREEN

    out = out or console()
    tables = {k: [row for row in rows if row.k == k] for k in dict.fromkeys(row.k for row in rows)}
    for metrics, digits in SCREEN:
        drawn = {k: _lines(of_k, metrics, digits) for k, of_k in tables.items()}
        if max((cell_len(line.plain) for lines in drawn.values() for line in lines), default=0) <= out.width:
            break
    for k, lines in drawn.items():
        for line in (Text(f"{visible(title)}, top {k}", style="italic"), *lines, ""):
            out.print(line, soft_wrap=True, highlight=False)
    return [] if metrics == SCREEN[0][0] else ["a wider terminal shows more metrics, --json all."]


def print_answers(answers: Mapping[str, Answer]) -> None:
    """One table for several tests: the accuracy in each with its interval, then where the first test's slots go.

    A star marks the method that is chosen for the aim, ~ those that are no worse beyond the uncertainty.
    """
    from evenhand.metrics.catalogue import FRONT, GLANCE, METRICS

    out, first = console(), next(iter(answers.values()))
    accuracy = METRICS[FRONT[0]]

    def drawn(digits: int, intervals: bool) -> list[Text]:
        table: dict[str, list[Text]] = {"method": [Text(visible(label)) for label in first.values]}
        for one in answers.values():
            marks, cells = {one.best: "*"} | dict.fromkeys(one.level, "~"), []
            for label, each in one.values.items():
                shown = f"{estimated(each[accuracy.name], digits, intervals)}{marks.get(label, ' ')}"
                cells.append(Text(shown, style="bold green" if label == one.best else ""))
            table[visible(one.title)] = cells
        for name in GLANCE:
            cells = [Text(estimated(each[name], digits, intervals)) for each in first.values.values()]
            table[f"{METRICS[name].title} {METRICS[name].arrow}".lower()] = cells
        return _aligned(table)

    for digits, intervals in ((4, True), (3, True), (3, False)):
        lines = drawn(digits, intervals)
        if max(cell_len(line.plain) for line in lines) <= out.width:
            break
    over_users = " with 95 % intervals over users" if intervals else ""
    title = Text(f"what each test says, {accuracy.title}@{first.k}{over_users}", style="italic")
    for line in (title, *lines, Text("* the choice, ~ no worse beyond the uncertainty", style="dim")):
        out.print(line, soft_wrap=True, highlight=False)


def audit_lines(audit: Audit, intervals: bool) -> Iterator[list[str]]:
    """One line a metric: which way is better, and each system's value, with its interval or without."""
    from evenhand.metrics.catalogue import METRICS, SUMMARY

    rows = [audit.row(name, audit.k) for name in audit.systems]
    for metric in SUMMARY:
        if metric in rows[0].metrics:
            cells = [estimated(row.metrics[metric], METRICS[metric].digits, intervals) for row in rows]
            yield [f"{metric} {METRICS[metric].arrow}".rstrip(), *cells]


def audit_tenths(audit: Audit) -> list[list[str]]:
    """By popularity tenth: its share of demand, and of each system's slots, and the share of its demand that is met.

    The first line holds the headings.
    """
    slices = [row for row in audit.slices if row.by == "item popularity"]
    recalls = {(row.name, row.part): row.metrics["recall"] for row in slices if "recall" in row.metrics}
    demand = {f"demand ({name})": shares for name, shares in audit.demand.items()}
    slots = {f"slots of {one.name}": one.share for one in audit.exposure}
    table = [["items", *demand, *slots, *(f"recall of {name}" for name in audit.systems if recalls)]]
    for part in dict.fromkeys(row.part for row in slices):
        tenth = int(part.split()[1]) - 1
        shares = [f"{100 * column[tenth]:.1f} %" for column in (*demand.values(), *slots.values())]
        met = [estimated(recalls[name, part], 4, False) for name in audit.systems if recalls]
        table.append([part.replace("decile", "tenth"), *shares, *met])
    return table


def estimated(value: Estimate, digits: int, interval: bool) -> str:
    """An undefined number is a dash.

    >>> from evenhand.metrics.statistics import Estimate
    >>> estimated(Estimate(0.42151, 0.40412, 0.43889), 4, interval=True)
    '.4215 [.4041, .4389]'
    """
    if not interval or value.low is None or value.high is None or math.isnan(value.value):
        return _short(value.value, digits)
    return f"{_short(value.value, digits)} [{_short(value.low, digits)}, {_short(value.high, digits)}]"


def _short(value: float, digits: int) -> str:
    """Without the zero before the point; large numbers need no digits behind it."""
    if math.isnan(value):
        return "–"
    text = f"{value:.{digits if abs(value) < 100 else min(digits, 1)}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _lines(rows: Sequence[Row], metrics: Sequence[str], digits: int) -> list[Text]:
    """A heading and one line a row; a rate that is low for lack of any denominator is no merit, and has no star."""
    from evenhand.metrics.catalogue import METRICS, share_with_denominator

    def means(row: Row) -> dict[str, float]:
        return {metric: value.mean for metric, value in row.metrics.items()}

    table: dict[str, list[Text]] = {"method": [Text(visible(row.name)) for row in rows]}
    for name in metrics:
        heard = [row for row in rows if share_with_denominator(name, means(row)) >= 0.5]
        best, cells = _best([row.metrics[name].mean for row in heard], METRICS[name].higher_is_better), []
        for row in rows:
            starred = row in heard and row.metrics[name].mean == best
            text = f"{number(row.metrics[name], digits)}{'*' if starred else ' '}"
            cells.append(Text(text, style="bold green" if starred else ""))
        table[f"{name} {METRICS[name].arrow}"] = cells
    return _aligned(table)


def _best(means: Sequence[float], higher: bool | None) -> float | None:
    """The best of a column; None where there is nothing to be better than."""
    known = {mean for mean in means if not math.isnan(mean)}
    if higher is None or len(known) < 2:
        return None
    return max(known) if higher else min(known)


def _aligned(table: Mapping[str, Sequence[Text]]) -> list[Text]:
    """Lines of columns by heading, as wide as their widest cell, the first to the left, the others to the right."""
    columns = [[Text(heading, style="bold"), *cells] for heading, cells in table.items()]
    for place, column in enumerate(columns):
        width = max(cell_len(cell.plain) for cell in column)
        for cell in column:
            pad = cell.pad_right if place == 0 else cell.pad_left
            pad(width - cell_len(cell.plain))
    lines = [Text(_GAP).join(cells) for cells in zip(*columns, strict=True)]
    for line in lines:
        line.rstrip()
    return lines


def number(value: Summary, digits: int = 4) -> str:
    """One seed has no spread, an undefined number is a dash.

    >>> from evenhand.metrics.statistics import summarise
    >>> number(summarise([0.43, 0.434]), 3)
    '.432±.003'
    """
    spread = "" if value.std is None or math.isnan(value.mean) else f"±{_short(value.std, digits)}"
    return _short(value.mean, digits) + spread


def span(numbers: Sequence[int]) -> str:
    """`12–31`, or one number where all are the same."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def width_of(rows: Sequence[Sequence[str]]) -> int:
    """How wide a screen these texts need in columns."""
    columns = zip(*rows, strict=True)
    return sum(max(map(cell_len, column)) + len(_GAP) for column in columns)


def print_listing(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Texts in columns, wrapped where the screen is narrow."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        # A plain string would be read as markup.
        table.add_column(Text(visible(heading, _LONGEST_CELL)), no_wrap=heading == headings[0])
    for row in rows:
        table.add_row(*(Text(visible(cell, _LONGEST_CELL)) for cell in row))
    with reader_may_leave():
        console().print(table)


def print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        _print_line(Text(f"note: {one_line(note)}", style="dim"))


def compile_note() -> list[str]:
    """Where a wait was for compiling, which budgets and times leave out."""
    seconds = compile_time()
    return [f"compiling took {seconds:.0f} s, once; budgets and times leave it out"] if seconds >= 1 else []


def print_sentence(sentence: str) -> None:
    _print_line(Text(one_line(sentence)))


def _print_line(line: Text) -> None:
    out = console()
    # In a log, the rest of a broken line could pass for a command to whoever reads the log.
    out.print(line, soft_wrap=out.width == _PIPED_WIDTH)


def print_tried(tried: Sequence[Mapping[str, Any]]) -> None:
    """What a recipe tried, the best first: how good, how long, and how much it counts in the blend."""
    table = Table(title="What was tried", title_justify="left", box=None, pad_edge=False)
    for name in ("part", "NDCG@20 on validation", "seconds", "weight"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for one in sorted(tried, key=lambda one: -one["ndcg"]):
        share = f"{one['share']:.2f}" if one["share"] else "–"
        table.add_row(one["part"], f"{one['ndcg']:.4f}", f"{one['seconds']:.1f}", share)
    console().print(table)
