"""From an Altair chart to an SVG that lives in a page: drawn once, here, and coloured by the page's style.

Charts are drawn in stand-in colours which then become CSS variables, so one drawing serves light, dark and
print, needs no script to appear, and takes a few kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import altair as alt
import vl_convert

from evenhand.report.html_text import escape

Drawing = alt.Chart | alt.LayerChart | alt.FacetChart
WIDTH = 380
"""All charts are this wide: two stand side by side on a desk, one fills a phone."""

PERCENT = "format(100 * datum.value, '~r') + ' %'"
"""How axes write shares: as the text around them does."""

INK, MUTED, RULE, PAPER = "#f0f001", "#f0f002", "#f0f003", "#f0f004"
DEMAND, DEMAND_EDGE = "#f0f005", "#f0f006"
HOT, COLD, HOT_ERROR, COLD_ERROR = "#f0f011", "#f0f012", "#f0f013", "#f0f014"
SERIES = ("#f0f021", "#f0f022", "#f0f023", "#f0f024", "#f0f025", "#f0f026")
_COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    DEMAND: "var(--demand)",
    DEMAND_EDGE: "var(--demand-edge)",
    PAPER: "var(--paper)",
    HOT: "var(--hot)",
    COLD: "var(--cold)",
    HOT_ERROR: "url(#hot-error)",
    COLD_ERROR: "url(#cold-error)",
    **{stand_in: f"var(--s{n})" for n, stand_in in enumerate(SERIES, 1)},
}
_PLACE = ("viewBox", "transform", "d", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
_LOOK = (
    "fill",
    "stroke",
    "opacity",
    "fill-opacity",
    "stroke-opacity",
    "stroke-width",
    "stroke-dasharray",
    "display",
)
_TEXT = ("font-size", "font-weight", "text-anchor")
_KEPT = {*_PLACE, *_LOOK, *_TEXT}
"""Attributes of an SVG element that stay."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
DASHES: tuple[list[int], ...] = ([1, 0], [6, 3], [2, 2])


def colour_of(place: int) -> str:
    """The colour of the system at this place; they come round again after six, with another shape."""
    return SERIES[place % len(SERIES)]


def shape_of(place: int) -> str:
    return SHAPES[(place + place // len(SERIES)) % len(SHAPES)]


def dash_of(place: int) -> list[int]:
    return DASHES[(place // len(SERIES)) % len(DASHES)]


def values(rows: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=rows)


def svg(chart: Drawing, height: int, description: str) -> str:
    """The chart as inline SVG of one image with a text in its place; marks keep their tips as `data-tip`."""
    sized = chart.properties(
        width=WIDTH,
        height=height,
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        padding={"left": 2, "top": 8, "right": 10, "bottom": 2},
        background="transparent",
        config=_CONFIG,
    )
    drawn = vl_convert.vegalite_to_svg(json.loads(sized.to_json(validate=False)))
    return _for_page(drawn, description)


def _for_page(drawn: str, description: str) -> str:
    root = ElementTree.fromstring(drawn)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = _attributes(element.attrib)
    inside = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    return (
        f'<svg class="chart" role="img" aria-label="{escape(description)}" '
        f'viewBox="{root.get("viewBox")}">{inside}</svg>'
    )


def _attributes(given: Mapping[str, str]) -> dict[str, str]:
    """Page colours for stand-ins, tips by their own name, and nothing that the page's style decides."""
    kept = {name: _COLOURS.get(value, value) for name, value in given.items() if name in _KEPT}
    if "aria-label" in given:
        kept["data-tip"] = given["aria-label"]
    return kept


def symbol(place: int) -> str:
    """A system's mark in a legend: the same shape and colour as in the charts."""
    path = _SYMBOLS[shape_of(place)]
    dash = " ".join(map(str, dash_of(place)))
    line = "" if dash == "1 0" else f' stroke-dasharray="{dash}"'
    colour = _COLOURS[colour_of(place)]
    return (
        '<svg class="key" aria-hidden="true" viewBox="0 0 26 12">'
        f'<path d="M1 6H25" stroke="{colour}" stroke-width="2"{line}/>'
        f'<path d="{path}" fill="{colour}"/></svg>'
    )


def patch(stand_in: str) -> str:
    """A filled box in a legend."""
    return (
        '<svg class="key box" aria-hidden="true" viewBox="0 0 16 12">'
        f'<rect x=".5" y=".5" width="15" height="11" fill="{_COLOURS[stand_in]}" stroke="var(--muted)"/>'
        "</svg>"
    )


_SYMBOLS = {
    "circle": "M13 2a4 4 0 1 1-.01 0Z",
    "square": "M9.4 2.4h7.2v7.2H9.4Z",
    "triangle-up": "M13 1.4 17.6 10H8.4Z",
    "diamond": "M13 .8 17.6 6 13 11.2 8.4 6Z",
    "triangle-down": "M13 10.6 8.4 2h9.2Z",
    "cross": "M11.6 2h2.8v2.6H17v2.8h-2.6V10h-2.8V7.4H9V4.6h2.6Z",
}
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
