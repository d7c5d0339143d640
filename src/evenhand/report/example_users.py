"""Example users: what they liked, what they wanted, and what each system showed them."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.audit.result import Audit, Example, Shown
from evenhand.report.html_text import count, escape, isolated

MOST_USERS = 8
MOST_ITEMS = 12
LONGEST_LIST = 20


def examples(audit: Audit) -> str:
    """The section's inside; empty without examples."""
    shown = audit.examples[:MOST_USERS]
    return "".join(_user(number, example, bool(audit.confusion)) for number, example in enumerate(shown, 1))


def _user(number: int, example: Example, judged: bool) -> str:
    lists = "".join(_list(name, items, judged) for name, items in example.lists.items())
    past = _history("Had before", example.history, example.n_history)
    past += _history("Wanted", example.wanted, example.n_wanted)
    return (
        f'<article class="user" aria-labelledby="user-{number}">'
        f'<h3 id="user-{number}">User {isolated(example.user)}</h3><p class="why">{escape(example.why)}</p>'
        f'<div class="lists">{past}{lists}</div></article>'
    )


def _history(title: str, items: Sequence[Shown], in_all: int | None) -> str:
    """What a user had or wanted: no hits and misses here."""
    if not items:
        return ""
    rest = max(in_all or 0, len(items)) - min(len(items), MOST_ITEMS)
    more = f'<li class="more">and {count(rest, "more", "more")}</li>' if rest > 0 else ""
    shown = "".join(f"<li>{_title(item)} {_heat(item)}</li>" for item in items[:MOST_ITEMS])
    return f'<section class="past"><h4>{title}</h4><ul>{shown}{more}</ul></section>'


def _list(name: str, items: Sequence[Shown], judged: bool) -> str:
    hits = sum(item.wanted for item in items)
    summary = f'<p class="sum">{hits} of {len(items)} wanted</p>' if judged else ""
    shown = "".join(_shown(item, judged) for item in items[:LONGEST_LIST])
    return f"<section><h4>{isolated(name)}</h4>{summary}<ol>{shown}</ol></section>"


def _shown(item: Shown, judged: bool) -> str:
    mark = ""
    if judged:
        sign, word = ("✓", "hit") if item.wanted else ("✗", "miss")
        mark = f'<span class="mark" aria-hidden="true">{sign}</span><span class="quiet">{word}: </span>'
    kind = "hit" if judged and item.wanted else "miss" if judged else "shown"
    return f'<li class="{kind}">{mark}{_title(item)} {_heat(item)}</li>'


def _title(item: Shown) -> str:
    return isolated(item.title or item.item)


def _heat(item: Shown) -> str:
    word = "hot" if item.hot else "cold"
    return f'<span class="heat {word}">{word}</span>'
