"""From Altair charts to SVG that lives in a page, and what all charts share: colours, shapes, axes, legends.

Charts are drawn once, when the page is written, in colours that are CSS variables. So one drawing serves light, dark
and print, needs no script to appear, and takes a few kilobytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert
from markupsafe import Markup, escape

from evenhand.metrics.statistics import Estimate
from evenhand.report.render import Table, clean

WIDTH = 380
"""All charts are this wide: two stand side by side on a desk, one fills a phone."""
INK, MUTED, RULE, PAPER, DEMAND, DEMAND_EDGE, HOT, COLD = (
    f"var(--{name})" for name in ("ink", "muted", "rule", "paper", "demand", "demand-edge", "hot", "cold")
)
HOT_ERROR, COLD_ERROR = "url(#hot-error)", "url(#cold-error)"
SERIES = tuple(f"var(--s{n})" for n in range(1, 7))
_SHAPES = {
    "circle": "M13 2a4 4 0 1 1-.01 0Z",
    "square": "M9.4 2.4h7.2v7.2H9.4Z",
    "triangle-up": "M13 1.4 17.6 10H8.4Z",
    "diamond": "M13 .8 17.6 6 13 11.2 8.4 6Z",
    "triangle-down": "M13 10.6 8.4 2h9.2Z",
    "cross": "M11.6 2h2.8v2.6H17v2.8h-2.6V10h-2.8V7.4H9V4.6h2.6Z",
}
"""Vega's names, and how a legend draws them."""
_DASHES = ([1, 0], [6, 3], [2, 2])
_KEPT = re.compile(
    "viewBox|transform|d|[xy][12]?|width|height|fill|stroke|stroke-width|stroke-dasharray|"
    "(fill-|stroke-)?opacity|display|font-size|font-weight|text-anchor"
)
"""Attributes of an SVG element that stay; the page's style decides the rest."""
_CONFIG = {
    "view": {"stroke": None},
    "axis": {
        "aria": False,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": RULE,
        "domainColor": RULE,
        "tickColor": RULE,
        "labelFontSize": 11.5,
        "titleFontSize": 11.5,
        "titleFontWeight": "normal",
        "labelFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 4,
    },
    "text": {"color": INK, "fontSize": 11.5},
}

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A chart with all that stands around it, for the macro `figure`."""

    key: str
    """Its id in the page, after `figure-`."""
    title: str
    caption: str
    drawings: tuple[Markup, ...]
    legend: tuple[tuple[Markup, str], ...]
    """(key, what it stands for)"""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The numbers behind the chart."""

    @property
    def table(self) -> Table:
        return Table(f"Numbers: {self.title}", self.header, self.rows)


def colour_of(place: int) -> str:
    """The colour of the system at this place; they come round again after six, with another shape."""
    return SERIES[place % len(SERIES)]


def _shape_of(place: int) -> str:
    return list(_SHAPES)[(place + place // len(SERIES)) % len(_SHAPES)]


def _dash_of(place: int) -> list[int]:
    return _DASHES[(place // len(SERIES)) % len(_DASHES)]


def chart(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def points(rows: Rows, place: int, size: int = 48, **look: Any) -> alt.Chart:
    """Marks in a system's colour and shape; the field `tip` says what each is."""
    look = {"stroke": PAPER, "strokeWidth": 1, "opacity": 1} | look
    look = {"shape": _shape_of(place), "fill": colour_of(place)} | look
    return chart(rows).mark_point(**look, size=size).encode(description="tip:N")


def line(rows: Rows, place: int, beneath: int = 0) -> alt.Chart:
    """A system's line; wider where others are drawn over it, so that it shows beside them."""
    width = 2 + 1.6 * beneath
    return chart(rows).mark_line(color=colour_of(place), strokeWidth=width, strokeDash=_dash_of(place), aria=False)


def beneath(n: int, of: int) -> int:
    """How many lines are drawn over the n-th; among many, wider ones would only hide the others."""
    return of - 1 - n if of <= 3 else 0


def interval_rules(rows: Rows, place: int, **ends: str) -> alt.Chart:
    """Lines from one end of intervals to the other; `ends` names the channel and field of the far end."""
    return chart(rows).mark_rule(color=colour_of(place), strokeWidth=1.5, opacity=0.75, aria=False).encode(**ends)


def cross(place: int, x: Estimate, y: Estimate) -> list[alt.Chart]:
    """The intervals of a point, as far as it has them."""
    across = [{"x": x.low, "end": x.high, "y": y.value}] if finite(x.low, x.high) else []
    up = [{"x": x.value, "y": y.low, "end": y.high}] if finite(y.low, y.high) else []
    ways = ((across, {"x2": "end:Q"}), (up, {"y2": "end:Q"}))
    return [interval_rules(rows, place, **ends) for rows, ends in ways if rows]


def axis(channel: Any, field: str, title: str | None, *, share: bool = False, ticks: int = 5, **more: Any) -> Any:
    """The x or y of numbers; shares are written in percent. A `scale` may be given, the rest goes to the axis."""
    scale = more.pop("scale", alt.Undefined)
    more |= {"labelExpr": "format(100 * datum.value, '~r') + ' %'"} if share else {}  # as the text around it
    return channel(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=ticks, ticks=False, **more))


def loose(padding: int) -> alt.Scale:
    return alt.Scale(zero=False, padding=padding, nice=False)


def finite(*values: float | None) -> bool:
    return all(v is not None and math.isfinite(v) for v in values)


def svg(drawing: alt.Chart | alt.LayerChart | alt.FacetChart, height: int, description: str) -> Markup:
    """The chart as inline SVG of one image with a text in its place; marks keep their tips as `data-tip`."""
    sized = drawing.properties(
        width=WIDTH,
        height=height,
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        padding={"left": 2, "top": 8, "right": 10, "bottom": 2},
        background="transparent",
        config=_CONFIG,
    )
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(json.loads(sized.to_json(validate=False))))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        tip = {"data-tip": element.attrib["aria-label"]} if "aria-label" in element.attrib else {}
        element.attrib = {name: value for name, value in element.attrib.items() if _KEPT.fullmatch(name)} | tip
    inside = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    label = escape(clean(description, 2000))
    return Markup(f'<svg class="chart" role="img" aria-label="{label}" viewBox="{root.get("viewBox")}">{inside}</svg>')


def legend(names: Iterable[str], systems: Sequence[str]) -> tuple[tuple[Markup, str], ...]:
    """Systems with the shapes and colours that they have in every chart."""
    return tuple((system_key(systems.index(name)), name) for name in names)


def system_key(place: int) -> Markup:
    """The line and shape of the system at this place, for a legend."""
    dash, colour = _dash_of(place), colour_of(place)
    dashed = "" if dash == [1, 0] else f' stroke-dasharray="{" ".join(map(str, dash))}"'
    return legend_key(
        f'<path d="M1 6H25" stroke="{colour}" stroke-width="2"{dashed}/>'
        f'<path d="{_SHAPES[_shape_of(place)]}" fill="{colour}"/>'
    )


def legend_key(inside: str) -> Markup:
    """A drawing of 26 by 12 before the words of a legend."""
    return Markup(f'<svg class="key" aria-hidden="true" viewBox="0 0 26 12">{inside}</svg>')


def patch(colour: str) -> Markup:
    return Markup(
        '<svg class="key box" aria-hidden="true" viewBox="0 0 16 12">'
        f'<rect x=".5" y=".5" width="15" height="11" fill="{colour}" stroke="var(--muted)"/></svg>'
    )
