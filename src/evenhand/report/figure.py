"""What a chart is on the page, and how systems look in every chart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import altair as alt

from evenhand.report import draw


@dataclass(frozen=True)
class Figure:
    """A chart with all that stands around it; everything but `drawings` is plain text, not yet HTML."""

    key: str
    """Its id in the page."""
    title: str
    caption: str
    drawings: tuple[str, ...]
    """Inline SVG."""
    systems: tuple[str, ...]
    """Whose colours and shapes the legend explains."""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """The numbers behind the chart, as a table."""
    patches: tuple[tuple[str, str], ...] = ()
    """Further colours of the legend, with their meaning."""


def line_style(place: int, beneath: int = 0) -> dict[str, Any]:
    """How a system's line looks; wider where others are drawn over it, so that it shows beside them."""
    return {
        "color": draw.colour_of(place),
        "strokeWidth": 2 + 1.6 * beneath,
        "strokeDash": draw.dash_of(place),
        "aria": False,
    }


def point_style(place: int, size: int = 48) -> dict[str, Any]:
    colour = draw.colour_of(place)
    return {
        "shape": draw.shape_of(place),
        "fill": colour,
        "stroke": draw.PAPER,
        "strokeWidth": 1,
        "opacity": 1,
        "size": size,
    }


def interval_rules(place: int, rows: list[dict[str, Any]], **ends: str) -> alt.Chart:
    """Lines from one end of intervals to the other; `ends` names the channel and field of the far end."""
    chart = alt.Chart(draw.values(rows))
    return chart.mark_rule(color=draw.colour_of(place), strokeWidth=1.5, opacity=0.75, aria=False).encode(**ends)


def finite(*numbers: float | None) -> bool:
    return all(n is not None and math.isfinite(n) for n in numbers)
