"""Text for terminals and sentences: other people's strings made harmless, and numbers with their nouns.

Ids, titles and file names are chosen by whoever wrote the data. They may hold sequences that clear a screen,
forge a line of a log or reorder words; here such characters become visible escapes.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONGEST = 2000
"""Characters of a sentence; a field of ten megabytes must not fill a screen."""
_LONGEST_CELL = 80
_MOST_DIGITS = 18
"""What 64 bits hold; Python itself refuses to read some thousand."""
_STEERING = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C1 controls, marks of writing direction, line separators, halves of characters."""
_HIDDEN = re.compile(rf"[\x00-\x1f{_STEERING}]")
_UNSAFE_IN_JSON = re.compile(rf"[{_STEERING}]")


def visible(text: object, longest: int | None = None) -> str:
    """The text in one line, with everything in it that a terminal would obey spelled out.

    >>> print(visible("a\\x1b[31m\\nb"), visible("x" * 9, longest=4))
    a\\x1b[31m\\nb xxx…
    """
    shown = str(text) if longest is None else str(text)[: longest + 1]
    shown = _HIDDEN.sub(lambda sign: sign[0].encode("unicode_escape").decode("ascii"), shown)
    return shown if longest is None or len(shown) <= longest else f"{shown[: longest - 1]}…"


def one_line(message: object, longest: int = LONGEST) -> str:
    """A message as one sentence of readable length: its line ends become blanks."""
    return visible(" ".join(str(message).split()), longest)


def first_line_of(error: BaseException) -> str:
    """What a library says of a mistake, for the end of a sentence of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def as_json(value: Any) -> Any:
    """The same in what JSON knows: numpy's numbers as numbers, undefined ones as null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(document: Any, *, ascii_only: bool = False) -> str:
    """JSON that reads the same to a program and that every terminal and file can hold."""
    text = json.dumps(document, indent=1, ensure_ascii=ascii_only, allow_nan=False)
    return _UNSAFE_IN_JSON.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def html_table(title: object, rows: Sequence[Mapping[str, object]], notes: Iterable[object] = ()) -> str:
    """A small table for a notebook, with every text made harmless.

    >>> print(html_table("<hi>", [{"a": 1}]))
    <p><b>&lt;hi&gt;</b></p><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>
    """

    def cells(tag: str, texts: Iterable[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{_in_html(text, _LONGEST_CELL)}</{tag}>" for text in texts) + "</tr>"

    head = f"<thead>{cells('th', rows[0])}</thead>" if rows else ""
    body = "".join(cells("td", row.values()) for row in rows)
    below = "".join(f"<li>{_in_html(note)}</li>" for note in notes)
    table = f"<table>{head}<tbody>{body}</tbody></table>" if rows else ""
    return f"<p><b>{_in_html(title)}</b></p>{table}" + (f"<ul>{below}</ul>" if below else "")


def _in_html(text: object, longest: int = LONGEST) -> str:
    return html.escape(visible(text, longest))


def count(n: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "user"), count(1200, "user")
    ('1 user', '1,200 users')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def parse_integer(text: str) -> int | None:
    """What a person typed as a whole number from 0 on; None where it is none, or beyond all use.

    >>> parse_integer("010"), parse_integer("1.5"), parse_integer("9" * 5000)
    (10, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None
