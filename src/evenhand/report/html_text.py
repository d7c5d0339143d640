"""Words and numbers for a page: nothing from the data reaches HTML except through `escape`."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Sequence

from evenhand.audit.result import Estimate

LONGEST = 120
"""Longer names and titles are cut: a page has to stay readable and small."""
NOTHING = "–"
"""Stands where a number is undefined."""


_BLANKS = re.compile(r"[^\S\u00a0\u2009]+")
"""Runs of blanks, line ends included; not the spaces that keep a number and its sign together."""


def clean(text: object, longest: int = LONGEST) -> str:
    """Text that every browser and file can hold: control characters and half characters become a mark.

    >>> clean("a\\x00b"), clean("x" * 200, longest=5)
    ('a�b', 'xxxx…')
    """
    whole = _BLANKS.sub(" ", str(text)).strip(" ")
    shown = "".join("\ufffd" if _unfit(c) else c for c in whole[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def brief(name: object) -> str:
    """A name that leaves room for the sentence around it."""
    return clean(name, 36)


def _unfit(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in "\ufffe\uffff"


def escape(text: object, longest: int = 2000) -> str:
    """Text as HTML, safe between tags and inside quotes.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(clean(text, longest), quote=True)


def tied(sentence: str) -> str:
    """The sentence with its numbers tied to their signs, so that no line ends between them.

    >>> tied("42 % (p < 0.01)").split(" ")
    ['42\\xa0%', '(p\\xa0<\\xa00.01)']
    """
    return re.sub(r" (?=[%<=] ?)|(?<=[<=]) ", "\u00a0", sentence)


def isolated(text: object) -> str:
    """A name, id or title as HTML; whatever its writing direction, it cannot reorder the words around it."""
    return f"<bdi>{escape(text, LONGEST)}</bdi>"


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


def count(n: int, one: str, many: str | None = None) -> str:
    """
    >>> count(1, "user"), count(2400, "user")
    ('1 user', '2,400 users')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listing(words: Sequence[str]) -> str:
    """
    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
