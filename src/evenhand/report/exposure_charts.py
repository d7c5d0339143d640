"""Charts of exposure: which items get the slots, against which are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from evenhand.audit.result import Audit, Exposure
from evenhand.report import draw
from evenhand.report.figure import Figure, line_style, point_style
from evenhand.report.html_text import brief, clean, listing, percent


def exposure_figure(audit: Audit) -> Figure | None:
    """Where slots go and where demand is, by tenths of the items."""
    shown = [e for e in audit.exposure if e.share]
    if not shown:
        return None
    source = "test" if audit.demand.get("test") else "train"
    wanted = audit.demand.get(source) or ()
    bars = [_demand_bars(wanted, source)] if wanted else []
    lines = [
        layer
        for n, e in enumerate(shown)
        for layer in _marked_line(e, audit.systems.index(e.name), _beneath(n, len(shown)))
    ]
    told = "; ".join(f"{clean(e.name)} gives it {percent(e.share[0])} of its slots" for e in shown)
    demand = f" draws {percent(wanted[0])} of the demand;" if wanted else ":"
    columns = [wanted, *(e.share for e in shown)] if wanted else [e.share for e in shown]
    return Figure(
        "exposure",
        _exposure_title(shown, wanted),
        "Each point is the share of the slots that a tenth of the items gets; "
        "lists that follow demand would run along the tops of the bars.",
        (
            draw.svg(
                alt.layer(*bars, *lines),
                250,
                f"Shares by tenths of the items. The most popular tenth{demand} {told}.",
            ),
        ),
        tuple(e.name for e in shown),
        ("tenth of the items", *(("demand",) if wanted else ()), *(e.name for e in shown)),
        tuple((str(n + 1), *map(percent, shares)) for n, shares in enumerate(zip(*columns, strict=False))),
        ((draw.DEMAND, f"demand: interactions in {source}"),) if wanted else (),
    )


def _exposure_title(shown: Sequence[Exposure], wanted: Sequence[float]) -> str:
    shares = [e.share[0] for e in shown]
    fills = f"{percent(min(shares))} to {percent(max(shares))} of the slots"
    if len(shown) <= 2:
        fills = " and ".join(f"{percent(e.share[0])} of {brief(e.name)}’s slots" for e in shown)
    draws = f"; it draws {percent(wanted[0])} of the demand" if wanted else ""
    return f"The most popular tenth of the items fills {fills}{draws}"


def _demand_bars(wanted: Sequence[float], source: str) -> alt.Chart:
    rows = [
        {"tenth": n, "share": s, "tip": f"{_ordinal(n)} tenth: {percent(s)} of the {source} interactions"}
        for n, s in enumerate(wanted, 1)
    ]
    return _by_tenth(rows).mark_bar(color=draw.DEMAND, stroke=draw.DEMAND_EDGE).encode(description="tip:N")


def _marked_line(exposure: Exposure, place: int, beneath: int) -> list[alt.Chart]:
    name = clean(exposure.name)
    rows = [
        {"tenth": n, "share": s, "tip": f"{name}: {percent(s)} of its slots go to the {_ordinal(n)} tenth"}
        for n, s in enumerate(exposure.share, 1)
    ]
    base = _by_tenth(rows)
    marks = base.mark_point(**point_style(place, 48 + 70 * beneath)).encode(description="tip:N")
    return [base.mark_line(**line_style(place, beneath)), marks]


def _beneath(n: int, of: int) -> int:
    """How many lines are drawn over the n-th; among many, wider ones would only hide the others."""
    return of - 1 - n if of <= 3 else 0


def _by_tenth(rows: list[dict[str, Any]]) -> alt.Chart:
    across = alt.Axis(title="Tenths of the items, the most popular first", labelAngle=0, ticks=False, labelPadding=9)
    upwards = alt.Axis(labelExpr=draw.PERCENT, tickCount=5, domain=False, ticks=False, title="Share")
    return alt.Chart(draw.values(rows)).encode(x=alt.X("tenth:O", axis=across), y=alt.Y("share:Q", axis=upwards))


def _ordinal(n: int) -> str:
    return f"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n, 'th') }"


def lorenz_figure(audit: Audit) -> Figure | None:
    """How concentrated the slots are on few items."""
    curves = [e for e in audit.exposure if len(e.lorenz) > 1]
    if not curves:
        return None
    even = alt.Chart(draw.values([{"items": 0, "slots": 0}, {"items": 1, "slots": 1}]))
    layers = [even.mark_line(color=draw.MUTED, strokeWidth=1, strokeDash=[3, 3], aria=False)]
    for n, curve in enumerate(curves):
        place, beneath = audit.systems.index(curve.name), _beneath(n, len(curves))
        points = alt.Chart(draw.values([{"items": x, "slots": y} for x, y in curve.lorenz]))
        marks = alt.Chart(draw.values(_lorenz_marks(curve)))
        layers += [
            points.mark_line(**line_style(place, beneath)),
            marks.mark_point(**point_style(place, 48 + 70 * beneath)).encode(description="tip:N"),
        ]
    axis = alt.Axis(labelExpr=draw.PERCENT, tickCount=5, ticks=False)
    whole = alt.Scale(domain=[0, 1])
    chart = alt.layer(*layers).encode(
        x=alt.X("items:Q", title="Share of the items, the least shown first", axis=axis, scale=whole),
        y=alt.Y("slots:Q", title="Share of the slots", axis=axis, scale=whole),
    )
    halves = [(brief(c.name), items_that_fill(c, 0.5)) for c in curves]
    told = "; ".join(f"{name}: half of the slots go to {percent(share)} of the items" for name, share in halves)
    return Figure(
        "lorenz",
        _lorenz_title(halves),
        "The further a curve sags below the dashed line of equal exposure, the fewer items share the slots.",
        (draw.svg(chart, 280, f"Lorenz curves of exposure. {told}."),),
        tuple(c.name for c in curves),
        ("system", "items that fill half of the slots", "items that fill nine tenths of them"),
        tuple((c.name, *(percent(items_that_fill(c, s)) for s in (0.5, 0.9))) for c in curves),
    )


def _lorenz_marks(curve: Exposure) -> list[dict[str, Any]]:
    """Where half and nine tenths of the slots are spent: marks that carry tips and tell the curves apart."""
    name = clean(curve.name)
    return [
        {
            "items": 1 - items,
            "slots": 1 - slots,
            "tip": f"{name}: {percent(items)} of the items fill {percent(slots)} of the slots",
        }
        for slots, items in ((slots, items_that_fill(curve, slots)) for slots in (0.5, 0.9))
    ]


def items_that_fill(curve: Exposure, slots: float) -> float:
    """The share of items, most shown first, that together get this share of the slots."""
    left = 1 - slots
    for (x0, y0), (x1, y1) in zip(curve.lorenz, curve.lorenz[1:], strict=False):
        if y1 >= left and y1 > y0:
            return 1 - (x0 + (x1 - x0) * (left - y0) / (y1 - y0))
    return 0.0


def _lorenz_title(halves: Sequence[tuple[str, float]]) -> str:
    if len(halves) > 2:
        halves = [min(halves, key=lambda h: h[1]), max(halves, key=lambda h: h[1])]
    first, *rest = halves
    told = [
        f"{percent(first[1])} of the items under {first[0]}",
        *(f"{percent(s)} under {n}" for n, s in rest),
    ]
    return f"Half of the slots go to {listing(told)}"
