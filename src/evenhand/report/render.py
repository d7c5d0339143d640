"""Pages from templates: HTML files that hold everything they show and load nothing.

A template in `templates/` extends `base.html` and builds on the macros of `parts.html`. Every value is cleaned of
control characters and escaped, and the page's content security policy names the one script and style by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import evenhand
from evenhand.metrics.catalogue import METRICS, PAGE, Metric
from evenhand.metrics.statistics import Estimate
from evenhand.utils.text import count

LONGEST = 120
"""Longer names and titles are cut: a page has to stay readable and small."""
NOTHING = "–"
"""Stands where a number is undefined."""
_BLANKS = re.compile(r"[^\S\u00a0\u2009]+")
"""Runs of blanks, line ends included; not the spaces that keep a number and its sign together."""
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls, halves of characters, and marks of writing direction, which could reorder the words around a name."""


def render(template: str, **values: Any) -> str:
    """The page that a template makes of these values; what is no `Markup` is cleaned and escaped."""
    return _environment().get_template(template).render(values)


def render_text(template: str, **values: Any) -> str:
    """The same for a file that is no HTML: values stand there as they are."""
    return _environment().overlay(autoescape=False, finalize=None).get_template(template).render(values)


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


def measured(found: Estimate, digits: int = 3, *, best: bool = False) -> Cell:
    """A cell with a number and, below it, its 95 % interval."""
    return Cell(number(found.value, digits), float(found.value), interval(found, digits), interval=True, best=best)


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


def clean(text: object, longest: int = LONGEST) -> str:
    """Text that every browser and file can hold: controls, marks of direction and half characters become a sign.

    >>> clean("a\\x00b"), clean("a\\u202eb"), clean("x" * 200, longest=5)
    ('a�b', 'a�b', 'xxxx…')
    """
    whole = _BLANKS.sub(" ", str(text)).strip(" ")
    shown = _UNFIT.sub("\ufffd", whole[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def safe(value: object) -> object:
    """What a template shows: ready HTML as it is, anything else as clean text, which Jinja then escapes."""
    return value if isinstance(value, Markup) else clean(value, 2000)


def isolated(text: object) -> Markup:
    """A name, id or title as HTML; whatever its writing direction, the words around it keep their order.

    >>> print(isolated('<b title="x">'))
    <bdi>&lt;b title=&#34;x&#34;&gt;</bdi>
    """
    return text if isinstance(text, Markup) else Markup(f"<bdi>{escape(clean(text))}</bdi>")


def brief(name: object) -> str:
    """A name that leaves room for the sentence around it."""
    return clean(name, 36)


def tied(sentence: str) -> str:
    """The sentence with its numbers tied to their signs, so that no line ends between them.

    >>> tied("42 % (p < 0.01)").split(" ")
    ['42\\xa0%', '(p\\xa0<\\xa00.01)']
    """
    return re.sub(r" (?=[%<=] ?)|(?<=[<=]) ", "\u00a0", sentence)


def number(value: float | None, digits: int = 3) -> str:
    """A number at the precision its size deserves.

    >>> number(0.12345), number(41.26), number(1234.5), number(float("nan"))
    ('0.123', '41.3', '1,234', '–')
    """
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 10 else digits
    return f"{value:,.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent, with one digit below ten; number and sign are never torn apart by a line's end.

    >>> percent(0.417).split(), percent(0.0042).split(), percent(0.0).split()
    (['42', '%'], ['0.4', '%'], ['0', '%'])
    """
    if math.isnan(share):
        return NOTHING
    return f"{100 * share:.{1 if 0 < abs(share) < 0.0995 else 0}f}\u00a0%"


def interval(estimate: Estimate, digits: int = 3) -> str:
    """The 95 % interval as `0.310 – 0.342`, with thin spaces; empty where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{number(estimate.low, digits)}\u2009–\u2009{number(estimate.high, digits)}"


def listing(words: Sequence[str]) -> str:
    """
    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def described(metric: str) -> Metric:
    """The metric as the catalogue has it; one that it does not have is called by its own name.

    >>> described("ohr").title, described("house_metric").title
    ('OHR', 'house metric')
    """
    return METRICS.get(metric) or Metric(metric, metric.replace("_", " "), "", None, "", "")


def titled(metric: str, k: int | str) -> str:
    """
    >>> titled("ndcg", 10)
    'NDCG@10'
    """
    return f"{described(metric).title}@{k}"


def main_groups(metrics: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The metrics of the first screen by group; without any known one, the first six there are."""
    held = list(dict.fromkeys(metrics))
    found = [(title, [m for m in names if m in held]) for title, names in PAGE]
    return [(title, names) for title, names in found if names] or ([("Metrics", held[:6])] if held else [])


def in_order(metrics: Iterable[str]) -> list[str]:
    """Every metric once: the known ones as the catalogue has them, then the others as they came."""
    held = list(dict.fromkeys(metrics))
    return [m for m in METRICS if m in held] + [m for m in held if m not in METRICS]
