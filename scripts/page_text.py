"""How the pages made from results/ write numbers, tables and marked blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

NAMES = {"precision": "precision", "recall": "recall", "coverage": "coverage"}
SETS = {"ml-100k": "ML-100K", "ml-1m": "ML-1M"}
ENCODERS = {"mf": "MF", "lightgcn": "LightGCN"}


def short(number: float | None) -> str:
    """
    >>> short(0.41234), short(None)
    ('.4123', '–')
    """
    return "–" if number is None else f"{number:.4f}".removeprefix("0")


def signed(number: float) -> str:
    """
    >>> signed(-0.0123), signed(0.0123)
    ('−.0123', '+.0123')
    """
    return ("−" if number < 0 else "+") + short(abs(number))


def spread(found: dict[str, float | None]) -> str:
    """Mean ± standard deviation; the latter only where there are several seeds."""
    return short(found["mean"]) + ("" if found["std"] is None else f" ± {short(found['std'])}")


def label(key: str) -> str:
    """
    >>> label("ndcg@5"), label("precision@5")
    ('NDCG@5', 'precision@5')
    """
    name, _, k = key.partition("@")
    return NAMES.get(name, name.upper()) + (f"@{k}" if k else "")


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))


def code(names: Iterable[str]) -> str:
    """`a`, `b` and `c`"""
    return listed([f"`{name}`" for name in names])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paragraph(*sentences: str) -> str:
    """Text in lines of at most 120 characters; code and numbers are not broken at hyphens."""
    return textwrap.fill(" ".join(sentences), 120, break_long_words=False, break_on_hyphens=False)


def replaced(page: str, name: str, block: str) -> str:
    """The page with this block between its marks `<!-- results:NAME -->` and `<!-- /results:NAME -->`."""
    pattern = rf"(<!-- results:{name} -->\n).*?(<!-- /results:{name} -->)"
    page, times = re.subn(pattern, lambda found: f"{found[1]}{block.strip()}\n{found[2]}", page, flags=re.DOTALL)
    if times != 1:
        raise ValueError(f"the page has {times} blocks results:{name}")
    return page
