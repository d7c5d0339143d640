"""Charts of an audit: accuracy against over-recommendation and by parts of users or items, and who gets the slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from statistics import NormalDist

import altair as alt
from markupsafe import Markup

from evenhand.audit.result import Audit, Confusion, Exposure, SliceRow
from evenhand.metrics.catalogue import SLICE_CHART
from evenhand.metrics.statistics import Estimate
from evenhand.report import charts
from evenhand.report.charts import Figure, Rows, finite
from evenhand.report.render import brief, clean, described, interval, listing, number, percent, titled
from evenhand.utils.text import count

MOST_PARTS, MOST_ROWS = 12, 120
"""A chart of slices shows the largest parts; the table below it shows more."""
PARTS = {
    charts.HOT: "hot, wanted and shown",
    charts.HOT_ERROR: "hot, error",
    charts.COLD_ERROR: "cold, error",
    charts.COLD: "cold, wanted and shown",
}
"""The parts of a bar of the confusion, by colour."""
CONFUSION = (
    *("shown and wanted, hot", "shown, not wanted, hot", "shown, not wanted, cold", "shown and wanted, cold"),
    *("wanted, not shown, hot", "wanted, not shown, cold"),
)
"""What the table behind it counts."""


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
    return [figure for n, kind in enumerate(kinds) if (figure := _slice_figure(audit, n, *kind))]


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


def exposure_figure(audit: Audit) -> Figure | None:
    """Where slots go and where demand is, by tenths of the items."""
    shown = [e for e in audit.exposure if e.share]
    if not shown:
        return None
    source = "test" if audit.demand.get("test") else "train"
    wanted = audit.demand.get(source) or ()
    layers = []
    if wanted:
        tips = [f"{_tenth(n)}: {percent(s)} of the {source} interactions" for n, s in enumerate(wanted, 1)]
        bars = charts.chart(_by_tenth(wanted, tips)).mark_bar(color=charts.DEMAND, stroke=charts.DEMAND_EDGE)
        layers.append(bars.encode(description="tip:N"))
    for n, e in enumerate(shown):
        tips = [f"{clean(e.name)}: {percent(s)} of its slots go to the {_tenth(n)}" for n, s in enumerate(e.share, 1)]
        rows = _by_tenth(e.share, tips)
        layers += _line_with_marks(rows, rows, audit.systems.index(e.name), charts.beneath(n, len(shown)))
    tenths = alt.Axis(title="Tenths of the items, the most popular first", labelAngle=0, ticks=False, labelPadding=9)
    chart = alt.layer(*layers).encode(
        x=alt.X("tenth:O", axis=tenths), y=charts.axis(alt.Y, "share", "Share", share=True, domain=False)
    )
    spoken = "; ".join(f"{clean(e.name)} gives it {percent(e.share[0])} of its slots" for e in shown)
    demand = f" draws {percent(wanted[0])} of the demand;" if wanted else ":"
    columns = [wanted, *(e.share for e in shown)] if wanted else [e.share for e in shown]
    demanded = ((charts.patch(charts.DEMAND), f"demand: interactions in {source}"),) if wanted else ()
    return Figure(
        "exposure",
        _exposure_title(shown, wanted),
        "Each point is the share of the slots that a tenth of the items gets; "
        "lists that follow demand would run along the tops of the bars.",
        (charts.svg(chart, 250, f"Shares by tenths of the items. The most popular tenth{demand} {spoken}."),),
        demanded + charts.legend((e.name for e in shown), audit.systems),
        ("tenth of the items", *(("demand",) if wanted else ()), *(e.name for e in shown)),
        [(str(n), *map(percent, shares)) for n, shares in enumerate(zip(*columns, strict=False), 1)],
    )


def _exposure_title(shown: Sequence[Exposure], wanted: Sequence[float]) -> str:
    shares = [e.share[0] for e in shown]
    fills = f"{percent(min(shares))} to {percent(max(shares))} of the slots"
    if len(shown) <= 2:
        fills = " and ".join(f"{percent(e.share[0])} of {brief(e.name)}’s slots" for e in shown)
    draws = f"; it draws {percent(wanted[0])} of the demand" if wanted else ""
    return f"The most popular tenth of the items fills {fills}{draws}"


def _by_tenth(shares: Sequence[float], tips: Sequence[str]) -> Rows:
    return [{"tenth": n, "share": s, "tip": tip} for n, (s, tip) in enumerate(zip(shares, tips, strict=True), 1)]


def _line_with_marks(rows: Rows, marks: Rows, place: int, beneath: int) -> list[alt.Chart]:
    return [charts.line(rows, place, beneath), charts.points(marks, place, 48 + 70 * beneath)]


def _tenth(n: int) -> str:
    return f"{n}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(n, 'th') } tenth"


def lorenz_figure(audit: Audit) -> Figure | None:
    """How concentrated the slots are on few items."""
    curves = [e for e in audit.exposure if len(e.lorenz) > 1]
    if not curves:
        return None
    even = charts.chart([{"items": 0, "slots": 0}, {"items": 1, "slots": 1}])
    layers = [even.mark_line(color=charts.MUTED, strokeWidth=1, strokeDash=[3, 3], aria=False)]
    for n, curve in enumerate(curves):
        rows = [{"items": x, "slots": y} for x, y in curve.lorenz]
        place, beneath = audit.systems.index(curve.name), charts.beneath(n, len(curves))
        layers += _line_with_marks(rows, _lorenz_marks(curve), place, beneath)
    whole = alt.Scale(domain=[0, 1])
    chart = alt.layer(*layers).encode(
        x=charts.axis(alt.X, "items", "Share of the items, the least shown first", share=True, scale=whole),
        y=charts.axis(alt.Y, "slots", "Share of the slots", share=True, scale=whole),
    )
    halves = [(brief(c.name), items_that_fill(c, 0.5)) for c in curves]
    spoken = "; ".join(f"{name}: half of the slots go to {percent(share)} of the items" for name, share in halves)
    ends = halves if len(halves) <= 2 else [min(halves, key=lambda h: h[1]), max(halves, key=lambda h: h[1])]
    found = [f"{percent(share)}{'' if n else ' of the items'} under {name}" for n, (name, share) in enumerate(ends)]
    return Figure(
        "lorenz",
        f"Half of the slots go to {listing(found)}",
        "The further a curve sags below the dashed line of equal exposure, the fewer items share the slots.",
        (charts.svg(chart, 280, f"Lorenz curves of exposure. {spoken}."),),
        charts.legend((c.name for c in curves), audit.systems),
        ("system", "items that fill half of the slots", "items that fill nine tenths of them"),
        [(c.name, *(percent(items_that_fill(c, s)) for s in (0.5, 0.9))) for c in curves],
    )


def _lorenz_marks(curve: Exposure) -> Rows:
    """Where half and nine tenths of the slots are spent: marks that carry tips and tell the curves apart."""
    rows = []
    for slots in (0.5, 0.9):
        items = items_that_fill(curve, slots)
        tip = f"{clean(curve.name)}: {percent(items)} of the items fill {percent(slots)} of the slots"
        rows.append({"items": 1 - items, "slots": 1 - slots, "tip": tip})
    return rows


def items_that_fill(curve: Exposure, slots: float) -> float:
    """The share of items, most shown first, that together get this share of the slots."""
    left = 1 - slots
    for (x0, y0), (x1, y1) in zip(curve.lorenz, curve.lorenz[1:], strict=False):
        if y1 >= left and y1 > y0:
            return 1 - (x0 + (x1 - x0) * (left - y0) / (y1 - y0))
    return 0.0


def confusion_figure(audit: Audit) -> Figure | None:
    """Two sets of bars: errors among the slots, and among what was wanted, hot and cold."""
    found = [c for c in audit.confusion if c.k == audit.k and any(_shown(c)) and any(_wanted(c))]
    if not found:
        return None
    return Figure(
        "confusion",
        _confusion_title(found),
        "Hatched parts are errors: above, items that were shown and not wanted; "
        "below, items that were wanted and not shown.",
        (
            _bars([(clean(c.name), _shown(c)) for c in found], "Share of the recommended slots", "slots"),
            _bars([(clean(c.name), _wanted(c)) for c in found], "Share of the wanted items", "wanted items"),
        ),
        tuple((charts.patch(colour), words) for colour, words in PARTS.items()),
        ("system", *CONFUSION),
        [(c.name, *(f"{n:,}" for n in (*_shown(c), c.missed_hot, c.missed_cold))) for c in found],
    )


def _shown(c: Confusion) -> list[int]:
    return [c.hits_hot, c.wrong_hot, c.wrong_cold, c.hits_cold]


def _wanted(c: Confusion) -> list[int]:
    return [c.hits_hot, c.missed_hot, c.missed_cold, c.hits_cold]


def _confusion_title(found: Sequence[Confusion]) -> str:
    shares = [(brief(c.name), c.wrong_hot / sum(_shown(c))) for c in found]
    least, most = min(shares, key=lambda s: s[1]), max(shares, key=lambda s: s[1])
    fills = f"{percent(least[1])} of the slots of {least[0]}, {percent(most[1])} of those of {most[0]}"
    if len(shares) <= 2:
        fills = listing([f"{percent(share)} of {name}’s slots" for name, share in shares])
    return f"Hot items that were not wanted fill {fills}"


def _bars(systems: Sequence[tuple[str, Sequence[int]]], title: str, of: str) -> Markup:
    """A stacked bar a system with its name above it, so that long names and small screens get along."""
    pitch = 46 if len(systems) <= 4 else 38
    rows = [row for place, (name, parts) in enumerate(systems) for row in _parts(place, name, parts, of)]
    place = alt.Y("place:O", axis=None)
    bars = charts.chart(rows).mark_bar(stroke=charts.PAPER, strokeWidth=1.5)
    bars = bars.encode(
        y=alt.Y("place:O", axis=None, scale=alt.Scale(paddingInner=0.52, paddingOuter=0.26)),
        x=charts.axis(alt.X, "from", title, share=True, grid=False, domain=False, scale=alt.Scale(domain=[0, 1])),
        x2="to:Q",
        fill=alt.Fill("part:O", legend=None, scale=alt.Scale(domain=[0, 1, 2, 3], range=list(PARTS))),
        description="tip:N",
    )
    behind = charts.chart([row for row in rows if row["text"]]).encode(x=alt.X("middle:Q"), y=place)
    box = behind.mark_rect(width=34, height=15, color=charts.PAPER, cornerRadius=3, aria=False)
    numbers = behind.mark_text(aria=False).encode(text="text:N")
    names = charts.chart([row for row in rows if row["part"] == 0])
    named = names.mark_text(align="left", dy=-(0.24 * pitch + 10), limit=charts.WIDTH - 20, aria=False)
    named = named.encode(x=alt.value(0), y=place, text="name:N")
    spoken = "; ".join(
        f"{name}: " + ", ".join(f"{percent(n / sum(ns))} {what}" for n, what in zip(ns, PARTS.values(), strict=True))
        for name, ns in systems
    )
    return charts.svg(alt.layer(bars, box, numbers, named), 48 + pitch * len(systems), f"{title}. {spoken}.")


def _parts(place: int, name: str, parts: Sequence[int], of: str) -> Rows:
    total, begin = sum(parts), 0.0
    rows = []
    for part, (n, what) in enumerate(zip(parts, PARTS.values(), strict=True)):
        share = n / total
        rows.append(
            {
                "place": place,
                "name": name,
                "part": part,
                "from": begin,
                "to": begin + share,
                "middle": begin + share / 2,
                "text": percent(share) if share >= 0.09 else "",  # a narrower part has no room for its number
                "tip": f"{name}: {n:,} of {total:,} {of} ({percent(share)}): {what}",
            }
        )
        begin += share
    return rows
