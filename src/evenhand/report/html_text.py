"""Words and numbers of a page, and the two functions that make any text safe in HTML."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from markupsafe import Markup, escape

from evenhand.audit.result import Estimate

LONGEST = 120
"""Longer names and titles are cut: a page has to stay readable and small."""
NOTHING = "–"
"""Stands where a number is undefined."""
_BLANKS = re.compile(r"[^\S\u00a0\u2009]+")
"""Runs of blanks, line ends included; not the spaces that keep a number and its sign together."""
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks of writing direction, which could reorder the words around a name."""


def clean(text: object, longest: int = LONGEST) -> str:
    """Text that every browser and file can hold: controls, marks of direction and half characters become a sign.

    >>> clean("a\\x00b"), clean("a\\u202eb"), clean("x" * 200, longest=5)
    ('a�b', 'a�b', 'xxxx…')
    """
    whole = _BLANKS.sub(" ", str(text)).strip(" ")
    shown = "".join("\ufffd" if _unfit(c) else c for c in whole[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _unfit(character: str) -> bool:
    category = unicodedata.category(character)
    return category in ("Cc", "Cs") or character in "\ufffe\uffff" or bool(_DIRECTION.match(character))


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
