"""Pages from templates: HTML files that hold everything they show and load nothing.

A template in `templates/` extends `base.html`, fills its blocks, and builds on the macros of `parts.html`:
sections, tables, figures. `render` makes the page:

    write_text(path, render("scoreboard.html", table=table, origin=Origin.of(sys.argv[1:], {"data": "log.csv"})))

Every value is cleaned of control characters and escaped. The browser runs the script and applies the style of
this package and no other: the page's content security policy names them by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import evenhand
from evenhand.report.html_text import isolated, number, percent, safe, tied
from evenhand.utils.text import count


def render(template: str, **values: Any) -> str:
    """The page that a template makes of these values; what is no `Markup` is cleaned and escaped."""
    return _environment().get_template(template).render(values)


@dataclass(frozen=True)
class Origin:
    """Where a page comes from, for its header. Pages are passed on, so no folder is named, only files."""

    files: tuple[tuple[str, str], ...] = ()
    """(what it is, its name)"""
    command: str = ""
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    @staticmethod
    def of(arguments: Sequence[str], files: Mapping[str, object]) -> Origin:
        """The command line after `evenhand`, and the files it read, by what they are; None is left out."""
        named = tuple((what, without_folder(str(file))) for what, file in files.items() if file is not None)
        return Origin(named, shlex.join(["evenhand", *map(without_folder, arguments)]))


def without_folder(word: str) -> str:
    """A word of a command line with its path, if it holds one, cut down to the last name.

    >>> without_folder("mine=/home/me/lists.csv"), without_folder("--lr"), without_folder("db://me:secret@host")
    ('mine=lists.csv', '--lr', 'host')
    """
    within = r"[/\\@]" if "://" in word else r"[/\\]"
    return re.sub(rf"^([^=/\\]*=)?.*{within}", r"\1", word.rstrip("/\\"), flags=re.DOTALL)


@dataclass(frozen=True)
class Column:
    """The heading of a column."""

    title: str
    meaning: str = ""
    """Shown while the pointer rests on the heading."""
    higher_is_better: bool | None = None
    begins_group: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell that says more than its text."""

    text: object
    sort_by: float | None = None
    """What the column sorts by: NaN comes last; None sorts by the text."""
    below: str = ""
    """Small print."""
    interval: bool = False
    """Whether the small print is a 95 % interval."""
    best: bool = False
    prose: bool = False
    """Words that may wrap."""


@dataclass(frozen=True)
class Table:
    """A table for the macro `table`; the first cell of a row is its heading, and plain texts may be cells."""

    name: str
    """What it holds, for those who do not see it."""
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell | str]]
    groups: Sequence[tuple[str, int]] = ()
    """(title, number of columns) above the headings, after the first column."""
    sortable: bool = False

    @property
    def heads(self) -> list[Column]:
        return [one if isinstance(one, Column) else Column(one) for one in self.columns]

    @property
    def body(self) -> list[list[Cell]]:
        return [[one if isinstance(one, Cell) else Cell(isolated(one)) for one in row] for row in self.rows]


def _sort_key(value: float) -> str:
    """A number as the page's script reads it; undefined ones are empty, and sort last."""
    return "" if math.isnan(value) else repr(value).replace("inf", "Infinity")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("evenhand.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (made.loader.get_source(made, name)[0] for name in ("style.css", "script.js"))  # type: ignore[union-attr]
    made.filters |= {"name": isolated, "number": number, "percent": percent, "tied": tied, "sort_key": _sort_key}
    made.globals |= {
        "count": count,
        "style": Markup(style),
        "script": Markup(script),
        "version": evenhand.__version__,
        "facts": (),
        "origin": None,
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
    }
    return made


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
