"""The four-way picture as bars: of what was shown and of what was wanted, how much is right, hot and cold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from evenhand.audit.result import Audit, Confusion
from evenhand.report import draw
from evenhand.report.figure import Figure
from evenhand.report.html_text import brief, clean, listing, percent

COLOURS = (draw.HOT, draw.HOT_ERROR, draw.COLD_ERROR, draw.COLD)
LEGEND = ("hot, wanted and shown", "hot, error", "cold, error", "cold, wanted and shown")
WIDE_ENOUGH = 0.09
"""A part of a bar with less than this share has no room for its number."""


def confusion_figure(audit: Audit) -> Figure | None:
    """Two sets of bars: errors among the slots, and among what was wanted."""
    found = [c for c in audit.confusion if c.k == audit.k and any(_shown(c)) and any(_wanted(c))]
    if not found:
        return None
    return Figure(
        "confusion",
        _title(found),
        "Hatched parts are errors: above, items that were shown and not wanted; "
        "below, items that were wanted and not shown.",
        (
            _bars([(c.name, _shown(c)) for c in found], "Share of the recommended slots", "slots"),
            _bars([(c.name, _wanted(c)) for c in found], "Share of the wanted items", "wanted items"),
        ),
        (),
        (
            "system",
            "shown and wanted, hot",
            "shown, not wanted, hot",
            "shown, not wanted, cold",
            "shown and wanted, cold",
            "wanted, not shown, hot",
            "wanted, not shown, cold",
        ),
        tuple((c.name, *(f"{n:,}" for n in (*_shown(c), c.missed_hot, c.missed_cold))) for c in found),
        tuple(zip(COLOURS, LEGEND, strict=True)),
    )


def _shown(c: Confusion) -> list[int]:
    return [c.hits_hot, c.wrong_hot, c.wrong_cold, c.hits_cold]


def _wanted(c: Confusion) -> list[int]:
    return [c.hits_hot, c.missed_hot, c.missed_cold, c.hits_cold]


def _title(found: Sequence[Confusion]) -> str:
    shares = [(brief(c.name), c.wrong_hot / sum(_shown(c))) for c in found]
    if len(shares) <= 2:
        told = listing([f"{percent(share)} of {name}’s slots" for name, share in shares])
        return f"Hot items that were not wanted fill {told}"
    least, most = min(shares, key=lambda s: s[1]), max(shares, key=lambda s: s[1])
    return (
        f"Hot items that were not wanted fill {percent(least[1])} of the slots of {least[0]}, "
        f"{percent(most[1])} of those of {most[0]}"
    )


def _bars(systems: Sequence[tuple[str, Sequence[int]]], axis_title: str, of: str) -> str:
    """A stacked bar a system with its name above it, so that long names and small screens get along."""
    pitch = 46 if len(systems) <= 4 else 38
    rows = [row for place, (name, parts) in enumerate(systems) for row in _parts(place, name, parts, of)]
    base = alt.Chart(draw.values(rows)).encode(
        y=alt.Y("place:O", axis=None, scale=alt.Scale(paddingInner=0.52, paddingOuter=0.26)),
        x=alt.X("from:Q", title=axis_title, axis=_axis(), scale=alt.Scale(domain=[0, 1])),
        x2="to:Q",
    )
    bars = base.mark_bar(stroke=draw.PAPER, strokeWidth=1.5).encode(
        fill=alt.Fill("part:O", legend=None, scale=alt.Scale(domain=[0, 1, 2, 3], range=list(COLOURS))),
        description="tip:N",
    )
    middle = alt.X("middle:Q")
    place = alt.Y("place:O", axis=None)
    behind = alt.Chart(draw.values([r for r in rows if r["text"]])).encode(x=middle, y=place)
    box = behind.mark_rect(width=34, height=15, color=draw.PAPER, cornerRadius=3, aria=False)
    numbers = behind.mark_text(aria=False).encode(text="text:N")
    firsts = [r for r in rows if r["part"] == 0]
    names = alt.Chart(draw.values(firsts)).mark_text(
        align="left", dy=-(0.24 * pitch + 10), limit=draw.WIDTH - 20, aria=False
    )
    named = names.encode(x=alt.value(0), y=place, text="name:N")
    told = "; ".join(
        f"{name}: " + ", ".join(f"{percent(n / sum(parts))} {what}" for n, what in zip(parts, LEGEND, strict=True))
        for name, parts in ((clean(name), parts) for name, parts in systems)
    )
    return draw.svg(alt.layer(bars, box, numbers, named), 48 + pitch * len(systems), f"{axis_title}. {told}.")


def _axis() -> alt.Axis:
    return alt.Axis(labelExpr=draw.PERCENT, tickCount=5, ticks=False, grid=False, domain=False)


def _parts(place: int, name: str, parts: Sequence[int], of: str) -> list[dict[str, Any]]:
    total, begin = sum(parts), 0.0
    rows = []
    for part, n in enumerate(parts):
        share = n / total
        rows.append(
            {
                "place": place,
                "name": clean(name),
                "part": part,
                "from": begin,
                "to": begin + share,
                "middle": begin + share / 2,
                "text": percent(share) if share >= WIDE_ENOUGH else "",
                "tip": f"{clean(name)}: {n:,} of {total:,} {of} ({percent(share)}): {LEGEND[part]}",
            }
        )
        begin += share
    return rows
