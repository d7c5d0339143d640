"""What commands print: tables with error bars, notes, JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from evenhand.experiments.compare import Row
    from evenhand.metrics.statistics import Summary

NARROW = ("precision", "ndcg", "ohr", "ocr", "uhr", "ucr")
WIDE = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr")
_PIPED_WIDTH = 120


def console() -> Console:
    """Standard output; wide enough for whole tables when it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)


def print_json(document: Any) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def print_rows(out: Console, rows: Sequence[Row], title: str) -> None:
    """One table a k: mean ± std, the best of each column marked with a star."""
    wide = out.width >= _PIPED_WIDTH - 10
    names = WIDE if wide else NARROW
    for k in dict.fromkeys(row.k for row in rows):
        out.print(_table([row for row in rows if row.k == k], names, f"{title}, top {k}", 4 if wide else 3))


def _table(rows: Sequence[Row], names: Sequence[str], title: str, digits: int) -> Table:
    from evenhand.metrics.users import HIGHER_IS_BETTER

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    for name in names:
        arrow = "↑" if HIGHER_IS_BETTER[name] else "↓"
        table.add_column(f"{name} {arrow}", justify="right", no_wrap=True)
    best = {name: _best(rows, name, HIGHER_IS_BETTER[name]) for name in names}
    for row in rows:
        cells = [
            Text(
                f"{number(row.metrics[name], digits)}{'*' if row is best[name] else ' '}",
                style="bold green" if row is best[name] else "",
            )
            for name in names
        ]
        table.add_row(Text(row.name), *cells)
    return table


def _best(rows: Sequence[Row], name: str, higher: bool) -> Row | None:
    known = [row for row in rows if not math.isnan(row.metrics[name].mean)]
    if len(known) < 2:
        return None
    return (max if higher else min)(known, key=lambda row: row.metrics[name].mean)


def number(value: Summary, digits: int = 4) -> str:
    """`.430 ± .002`, without the zero before the point; one seed has no spread.

    >>> from evenhand.metrics.statistics import summarise
    >>> number(summarise([0.43, 0.434]), 3)
    '.432±.003'
    """

    def short(x: float) -> str:
        return "–" if math.isnan(x) else f"{x:.{digits}f}".replace("0.", ".", 1)

    return short(value.mean) + ("" if value.std is None else f"±{short(value.std)}")


def print_notes(out: Console, notes: Iterable[str]) -> None:
    for note in notes:
        out.print(Text(f"note: {note}", style="dim"))
