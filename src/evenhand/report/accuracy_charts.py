"""Charts of accuracy: against over-recommendation, and by parts of users or items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from statistics import NormalDist

import altair as alt

from evenhand.audit.result import Audit, Estimate, SliceRow
from evenhand.report import draw
from evenhand.report.figure import Figure, finite, interval_rules, point_style
from evenhand.report.html_text import brief, clean, count, interval, number, percent
from evenhand.report.labels import higher_is_better, short

MOST_PARTS = 12
"""A chart of slices shows the largest parts; the table below it shows more."""
MOST_ROWS = 120


def tradeoff_figure(audit: Audit) -> Figure | None:
    """Accuracy against over-recommendation of hot items, with intervals."""
    rows = {row.name: row.metrics for row in audit.rows if row.k == audit.k and row.name in audit.systems}
    accuracy = "ndcg" if any("ndcg" in row for row in rows.values()) else "precision"
    points = {
        name: (row["ohr"], row[accuracy])
        for name, row in rows.items()
        if accuracy in row and "ohr" in row and finite(row["ohr"].value, row[accuracy].value)
    }
    if not points:
        return None
    called = f"{short(accuracy)}@{audit.k}"
    layers: list[alt.Chart] = []
    for name, (bias, good) in points.items():
        layers += _crossed_point(audit.systems.index(name), clean(name), called, bias, good)
    axis = alt.Axis(tickCount=5, ticks=False)
    loose = alt.Scale(zero=False, padding=14, nice=False)
    across = f"OHR@{audit.k}: hot items shown and not wanted (less is better)"
    chart = alt.layer(*layers).encode(
        x=alt.X("x:Q", title=across, axis=axis, scale=loose),
        y=alt.Y("y:Q", title=f"{called} (more is better)", axis=axis, scale=loose),
    )
    told = [f"{clean(n)}: {called} {number(g.value)}, OHR {number(b.value)}" for n, (b, g) in points.items()]
    return Figure(
        "tradeoff",
        _tradeoff_title(audit, accuracy, points),
        "Up is more accurate, left is less over-recommendation of hot items; the lines are 95 % intervals over users.",
        (draw.svg(chart, 270, f"Accuracy against over-recommendation. {'; '.join(told)}."),),
        tuple(points),
        ("system", called, "95 % interval", f"OHR@{audit.k}", "95 % interval"),
        tuple(
            (n, number(g.value, 4), interval(g, 4), number(b.value, 4), interval(b, 4)) for n, (b, g) in points.items()
        ),
    )


def _crossed_point(place: int, name: str, called: str, bias: Estimate, good: Estimate) -> list[alt.Chart]:
    tip = f"{name}: {called} {number(good.value)}, OHR {number(bias.value)}"
    layers = []
    if finite(bias.low, bias.high):
        layers.append(interval_rules(place, [{"x": bias.low, "end": bias.high, "y": good.value}], x2="end:Q"))
    if finite(good.low, good.high):
        layers.append(interval_rules(place, [{"x": bias.value, "y": good.low, "end": good.high}], y2="end:Q"))
    point = alt.Chart(draw.values([{"x": bias.value, "y": good.value, "tip": tip}]))
    return [*layers, point.mark_point(**point_style(place, 110)).encode(description="tip:N")]


def _tradeoff_title(audit: Audit, accuracy: str, points: Mapping[str, tuple[Estimate, Estimate]]) -> str:
    good = max(points, key=lambda n: points[n][1].value)
    even = min(points, key=lambda n: points[n][0].value)
    if len(points) == 1:
        return f"Of the hot items that {brief(even)} shows, {percent(points[even][0].value)} are not wanted"
    if len(points) > 2:
        joint = " and" if good == even else f", {brief(even)}"
        return f"{brief(good)} has the highest {short(accuracy)}{joint} the lowest OHR"
    more = f"{brief(good)} is more accurate{_doubt(audit, accuracy)}"
    less = f"over-recommends hot items less{_doubt(audit, 'ohr')}"
    return f"{more} and {less}" if good == even else f"{more}; {brief(even)} {less}"


def _doubt(audit: Audit, metric: str) -> str:
    """For two systems: whether the difference may be chance."""
    tested = [c for c in audit.contrasts if (c.metric, c.k) == (metric, audit.k)]
    return "" if not tested or tested[0].beyond_uncertainty else " (within the uncertainty)"


def slice_figures(audit: Audit) -> list[Figure]:
    """One chart for everything that divides users or items."""
    kinds = dict.fromkeys((row.by, row.of) for row in audit.slices if row.k == audit.k)
    made = [_slice_figure(audit, n, by, of) for n, (by, of) in enumerate(kinds)]
    return [figure for figure in made if figure]


def _slice_figure(audit: Audit, n: int, by: str, of: str) -> Figure | None:
    rows = [r for r in audit.slices if (r.by, r.of, r.k) == (by, of, audit.k) and r.name in audit.systems]
    metric = _telling_metric(rows)
    if metric is None:
        return None
    rows = [r for r in rows if metric in r.metrics and finite(r.metrics[metric].value)]
    sizes = {row.part: row.size for row in rows}
    if not sizes:
        return None
    largest = sorted(sizes, key=lambda part: -sizes[part])[:MOST_PARTS]
    shown = [part for part in sizes if part in largest]
    called = f"{short(metric)}@{audit.k}"
    left_out = len(sizes) - len(shown)
    return Figure(
        f"slice-{n}",
        _slice_title([r for r in rows if r.part in largest], audit.systems, metric, called),
        f"{called} by {clean(by)}, with 95 % intervals over users"
        + (f"; the {count(left_out, 'smallest part')} left out here." if left_out else "."),
        (_slice_drawing(audit, rows, shown, metric, called, by),),
        tuple(dict.fromkeys(row.name for row in rows)),
        (by, of, "system", called, "95 % interval"),
        tuple(
            (
                r.part,
                f"{r.size:,}",
                r.name,
                number(r.metrics[metric].value, 4),
                interval(r.metrics[metric], 4),
            )
            for r in rows[:MOST_ROWS]
        ),
    )


def _telling_metric(rows: Sequence[SliceRow]) -> str | None:
    held = [metric for row in rows for metric in row.metrics]
    return next((m for m in ("ndcg", "recall", "precision", "ohr") if m in held), held[0] if held else None)


def _slice_drawing(
    audit: Audit, rows: Sequence[SliceRow], shown: Sequence[str], metric: str, called: str, by: str
) -> str:
    texts = {part: clean(part, 40) for part in shown}
    layers: list[alt.Chart] = []
    for place, name in enumerate(audit.systems):
        own = [row for row in rows if row.name == name and row.part in texts]
        layers += _slice_layers(place, [(texts[row.part], row.metrics[metric]) for row in own], clean(name), called)
    places = alt.Scale(domain=list(range(len(audit.systems))), paddingOuter=0.8)
    axis = alt.Axis(title=None, ticks=False, domain=False, labelLimit=165)
    loose = alt.Scale(zero=False, nice=False, padding=12)
    chart = alt.layer(*layers).encode(
        x=alt.X("x:Q", title=called, axis=alt.Axis(tickCount=4, ticks=False), scale=loose),
        y=alt.Y("part:N", sort=list(texts.values()), axis=axis),
        yOffset=alt.YOffset("place:O", scale=places),
    )
    told = "; ".join(
        f"{clean(r.name)}, {texts[r.part]}: {number(r.metrics[metric].value)}" for r in rows if r.part in texts
    )
    return draw.svg(chart, 70 + len(shown) * max(26, 13 * len(audit.systems)), f"{called} by {clean(by)}. {told}.")


def _slice_layers(place: int, parts: Sequence[tuple[str, Estimate]], name: str, called: str) -> list[alt.Chart]:
    """The intervals and points of one system."""
    ends = [
        {"x": estimate.low, "end": estimate.high, "part": part, "place": place}
        for part, estimate in parts
        if finite(estimate.low, estimate.high)
    ]
    points = [
        {
            "x": estimate.value,
            "part": part,
            "place": place,
            "tip": f"{name}, {part}: {called} {number(estimate.value)}",
        }
        for part, estimate in parts
    ]
    dots = alt.Chart(draw.values(points)).mark_point(**point_style(place, 52)).encode(description="tip:N")
    return [interval_rules(place, ends, x2="end:Q"), dots] if ends else [dots]


def _slice_title(rows: Sequence[SliceRow], systems: Sequence[str], metric: str, called: str) -> str:
    """What the chart shows of its first system: where it is best and worst, if that is more than chance."""
    first = next(name for name in systems if any(row.name == name for row in rows))
    found = {row.part: row.metrics[metric] for row in rows if row.name == first}
    of = f" of {brief(first)}" if any(row.name != first for row in rows) else ""
    subject = f"{called[0].upper()}{called[1:]}{of}"
    low, high = min(found, key=lambda p: found[p].value), max(found, key=lambda p: found[p].value)
    if len(found) == 1:
        return f"{subject} is {number(found[low].value)} in “{clean(low, 40)}”"
    if not _apart(found[low], found[high], len(found)):
        return f"{subject} differs between these parts by no more than chance"
    ends = {"highest": high, "lowest": low}
    if higher_is_better(metric) is False:
        ends = {"lowest": low, "highest": high}
    told = []
    for word, part in ends.items():
        ties = sum(estimate.value == found[part].value for estimate in found.values())
        where = f"“{clean(part, 40)}”" if ties == 1 else f"{ties} of {len(found)} parts"
        told.append(f"{word} in {where}")
    return f"{subject} is {', '.join(told)}"


def _apart(low: Estimate, high: Estimate, parts: int) -> bool:
    """Whether two parts differ by more than chance, given that they are the outermost of so many."""
    if low.low is None or low.high is None or high.low is None or high.high is None:
        return False
    pairs = parts * (parts - 1) / 2
    wider = NormalDist().inv_cdf(1 - 0.025 / pairs) / NormalDist().inv_cdf(1 - 0.025)
    return high.value - low.value > wider * hypot(low.high - low.value, high.value - high.low)
