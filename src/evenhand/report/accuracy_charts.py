"""Charts of accuracy: against over-recommendation, and by parts of users or items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from statistics import NormalDist

import altair as alt
from markupsafe import Markup

from evenhand.audit.result import Audit, Estimate, SliceRow
from evenhand.metrics.catalogue import SLICE_CHART
from evenhand.report import charts
from evenhand.report.charts import Figure, finite
from evenhand.report.html_text import brief, clean, interval, number, percent
from evenhand.report.labels import described, titled
from evenhand.utils.text import count

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
    called = titled(accuracy, audit.k)
    tips = {n: f"{clean(n)}: {called} {number(g.value)}, OHR {number(b.value)}" for n, (b, g) in points.items()}
    layers: list[alt.Chart] = []
    for name, (bias, good) in points.items():
        place = audit.systems.index(name)
        layers += charts.cross(place, bias, good)
        layers.append(charts.points([{"x": bias.value, "y": good.value, "tip": tips[name]}], place, 110))
    across = f"OHR@{audit.k}: hot items shown and not wanted (less is better)"
    chart = alt.layer(*layers).encode(
        x=charts.axis(alt.X, "x", across, scale=charts.loose(14)),
        y=charts.axis(alt.Y, "y", f"{called} (more is better)", scale=charts.loose(14)),
    )
    return Figure(
        "tradeoff",
        _tradeoff_title(audit, accuracy, points),
        "Up is more accurate, left is less over-recommendation of hot items; the lines are 95 % intervals over users.",
        (charts.svg(chart, 270, f"Accuracy against over-recommendation. {'; '.join(tips.values())}."),),
        charts.legend(points, audit.systems),
        ("system", called, "95 % interval", f"OHR@{audit.k}", "95 % interval"),
        [
            (name, number(good.value, 4), interval(good, 4), number(bias.value, 4), interval(bias, 4))
            for name, (bias, good) in points.items()
        ],
    )


def _tradeoff_title(audit: Audit, accuracy: str, points: Mapping[str, tuple[Estimate, Estimate]]) -> str:
    good = max(points, key=lambda n: points[n][1].value)
    even = min(points, key=lambda n: points[n][0].value)
    if len(points) == 1:
        return f"Of the hot items that {brief(even)} shows, {percent(points[even][0].value)} are not wanted"
    if len(points) > 2:
        joint = " and" if good == even else f", {brief(even)}"
        return f"{brief(good)} has the highest {described(accuracy).title}{joint} the lowest OHR"
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
    held = [metric for row in rows for metric in row.metrics]
    metric = next((m for m in SLICE_CHART if m in held), held[0] if held else "")
    rows = [r for r in rows if metric in r.metrics and finite(r.metrics[metric].value)]
    sizes = {row.part: row.size for row in rows}
    if not sizes:
        return None
    largest = sorted(sizes, key=lambda part: -sizes[part])[:MOST_PARTS]
    shown = [row for row in rows if row.part in largest]
    called, left_out = titled(metric, audit.k), len(sizes) - len(largest)
    return Figure(
        f"slice-{n}",
        _slice_title(shown, audit.systems, metric, called),
        f"{called} by {clean(by)}, with 95 % intervals over users"
        + (f"; the {count(left_out, 'smallest part')} left out here." if left_out else "."),
        (_slice_drawing(audit, shown, metric, called, by),),
        charts.legend(dict.fromkeys(row.name for row in rows), audit.systems),
        (by, of, "system", called, "95 % interval"),
        [
            (r.part, f"{r.size:,}", r.name, number(r.metrics[metric].value, 4), interval(r.metrics[metric], 4))
            for r in rows[:MOST_ROWS]
        ],
    )


def _slice_drawing(audit: Audit, rows: Sequence[SliceRow], metric: str, called: str, by: str) -> Markup:
    parts = {row.part: clean(row.part, 40) for row in rows}
    layers: list[alt.Chart] = []
    for place, name in enumerate(audit.systems):
        own = [({"part": parts[r.part], "place": place}, r.metrics[metric]) for r in rows if r.name == name]
        ends = [at | {"x": e.low, "end": e.high} for at, e in own if finite(e.low, e.high)]
        dots = [at | {"x": e.value, "tip": f"{clean(name)}, {at['part']}: {called} {number(e.value)}"} for at, e in own]
        layers += [charts.interval_rules(ends, place, x2="end:Q")] if ends else []
        layers.append(charts.points(dots, place, 52))
    places = alt.Scale(domain=list(range(len(audit.systems))), paddingOuter=0.8)
    names = alt.Axis(title=None, ticks=False, domain=False, labelLimit=165)
    chart = alt.layer(*layers).encode(
        x=charts.axis(alt.X, "x", called, ticks=4, scale=charts.loose(12)),
        y=alt.Y("part:N", sort=list(parts.values()), axis=names),
        yOffset=alt.YOffset("place:O", scale=places),
    )
    spoken = "; ".join(f"{clean(r.name)}, {parts[r.part]}: {number(r.metrics[metric].value)}" for r in rows)
    height = 70 + len(parts) * max(26, 13 * len(audit.systems))
    return charts.svg(chart, height, f"{called} by {clean(by)}. {spoken}.")


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
    ends = [("highest", high), ("lowest", low)]
    if described(metric).higher_is_better is False:
        ends.reverse()
    places = []
    for word, part in ends:
        ties = sum(estimate.value == found[part].value for estimate in found.values())
        where = f"“{clean(part, 40)}”" if ties == 1 else f"{ties} of {len(found)} parts"
        places.append(f"{word} in {where}")
    return f"{subject} is {', '.join(places)}"


def _apart(low: Estimate, high: Estimate, parts: int) -> bool:
    """Whether two parts differ by more than chance, given that they are the highest and the lowest of `parts`."""
    if low.low is None or low.high is None or high.low is None or high.high is None:
        return False
    pairs = parts * (parts - 1) / 2
    wider = NormalDist().inv_cdf(1 - 0.025 / pairs) / NormalDist().inv_cdf(1 - 0.025)
    return high.value - low.value > wider * hypot(low.high - low.value, high.value - high.low)
