"""The charts of the pages: accuracy against bias of many methods, and a parameter's sweep beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import altair as alt
import vl_convert
from contest_field import Field, title

from evenhand.experiments.results import Document
from evenhand.paper.published import cells
from evenhand.paper.tables import grids

KINDS = ["LightGCN", "MF", "baseline", "blend"]
COLOURS = ["#1f6f8b", "#6b8f3a", "#8a8a8a", "#c0562f"]
SHAPES = ["square", "circle", "triangle-up", "diamond"]
LETTER, LINE = 5.6, 11.0
"""Width of a letter and height of a line of the labels, in pixels."""
ACROSS, UP = "ohr@5", "ndcg@5"
NAMED_IN_FACETS = ("blend", "ease", "als", "mf/auc-ns", "lightgcn/auc-ns", "mf/rns")
_AXIS = alt.Axis(format=".3~f", grid=False, tickCount=6)
Row = dict[str, Any]
Box = tuple[float, float, float, float]


def draw(field: Field) -> str:
    """One split: all methods on the left, the best half of them, larger, on the right."""
    rows = points(field)
    best = sorted(rows, key=lambda row: -row["y"])[: max(6, round(0.55 * len(rows)))]
    box = _domain(best)
    whole = _domain(rows)
    outside = [row for row in rows if not _inside(row, box)]
    frame = alt.Chart(alt.InlineData(values=[{"x": box[0], "x2": box[1], "y": box[2], "y2": box[3]}]))
    left = alt.layer(
        frame.mark_rect(fill="none", stroke="#999999", strokeDash=[3, 3]).encode(
            x=_x(whole), x2="x2:Q", y=_y(whole), y2="y2:Q"
        ),
        *_layers(rows, outside, whole, 330, 420),
    ).properties(width=330, height=420, title="all; the frame is the right picture")
    near = [row for row in rows if _inside(row, box)]
    right = alt.layer(*_layers(near, near, box, 480, 420)).properties(width=480, height=420, title="those of the frame")
    return _svg(alt.hconcat(left, right), f"{title(field.name)}: better is up and to the left")


def draw_many(found: Iterable[Field]) -> str:
    """A small panel a split, with the names that matter most."""
    panels = []
    for field in found:
        rows = sorted(points(field), key=lambda row: -row["y"])
        rows = rows[: max(6, round(0.75 * len(rows)))]
        domain = _domain(rows)
        named = [row for row in rows if row["name"] in NAMED_IN_FACETS]
        panel = alt.layer(*_layers(rows, named, domain, 260, 220))
        panels.append(panel.properties(width=260, height=220, title=title(field.name)))
    lines = [alt.hconcat(*panels[n : n + 3]) for n in range(0, len(panels), 3)]
    return _svg(alt.vconcat(*lines), "The best three quarters of each split; better is up and to the left")


def points(field: Field) -> list[Row]:
    """Everyone whose users were looked at, with the 95 % intervals over users."""
    found = []
    for name in field.runs:
        across, up = field.own(name, ACROSS), field.own(name, UP)
        if across is None or up is None:
            continue
        found.append(
            {
                "name": name,
                "kind": kind(name),
                "x": across.difference,
                "left": across.low,
                "right": across.high,
                "y": up.difference,
                "low": up.low,
                "high": up.high,
            }
        )
    return found


def kind(name: str) -> str:
    first = name.partition("/")[0].partition(":")[0]
    return {"mf": "MF", "lightgcn": "LightGCN", "blend": "blend"}.get(first, "baseline")


def _layers(rows: list[Row], named: list[Row], domain: Box, width: int, height: int) -> list[alt.Chart]:
    x, y = _x(domain), _y(domain)
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=KINDS, range=COLOURS))
    shape = alt.Shape("kind:N", title=None, scale=alt.Scale(domain=KINDS, range=SHAPES))
    base = alt.Chart(alt.InlineData(values=rows))
    rule: dict[str, Any] = {"strokeWidth": 1, "opacity": 0.35, "clip": True}
    placed = placed_labels(rows, named, domain, width, height)
    texts = alt.Chart(alt.InlineData(values=placed)).mark_text(align="left", baseline="middle", fontSize=10)
    lines = alt.Chart(alt.InlineData(values=[row for row in placed if row["far"]]))
    return [
        base.mark_rule(**rule).encode(x=_x(domain, "left"), x2="right:Q", y=y, color=colour),
        base.mark_rule(**rule).encode(x=x, y=_y(domain, "low"), y2="high:Q", color=colour),
        lines.mark_rule(strokeWidth=0.6, color="#999999").encode(
            x=_x(domain, "px"), y=_y(domain, "py"), x2="ex:Q", y2="ey:Q"
        ),
        base.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
        texts.encode(x=_x(domain, "tx"), y=_y(domain, "ty"), text="name:N"),
    ]


def placed_labels(rows: list[Row], named: list[Row], domain: Box, width: int, height: int) -> list[Row]:
    """Where each name goes so that it covers neither a mark nor another name, as near as can be."""

    def at(row: Row) -> tuple[float, float]:
        left, right, low, high = domain
        return (row["x"] - left) / (right - left) * width, (high - row["y"]) / (high - low) * height

    taken: list[Box] = [(x - 5, x + 5, y - 5, y + 5) for x, y in map(at, rows)]
    found = []
    for row in sorted(named, key=lambda row: -row["y"]):
        x, y = at(row)
        wide = LETTER * len(row["name"])
        best: tuple[float, Box] | None = None
        for reach in range(0, 90, 6):
            for side, drop in ((1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1), (0, -1), (0, 1)):
                start = x + side * (7 + reach * 0.5) - (wide if side < 0 else wide / 2 if side == 0 else 0)
                middle = y + drop * ((6 if side else 11) + reach)
                if drop == 0 and reach:
                    continue
                box = (start, start + wide, middle - LINE / 2, middle + LINE / 2)
                cost = reach + 40 * sum(_overlap(box, other) for other in taken) + 5 * _beyond(box, width, height)
                if best is None or cost < best[0]:
                    best = cost, box
        assert best is not None
        box = best[1]
        taken.append(box)
        end = min(max(x, box[0]), box[1]), (box[2] + box[3]) / 2
        far = abs(end[0] - x) + abs(end[1] - y) > 16
        edge = box[3] if end[1] < y else box[2]
        found.append(
            {"name": row["name"], "px": row["x"], "py": row["y"], "far": far}
            | dict(zip(("tx", "ty"), _back(box[0], end[1], domain, width, height), strict=True))
            | dict(zip(("ex", "ey"), _back(end[0], edge, domain, width, height), strict=True))
        )
    return found


def _back(x: float, y: float, domain: Box, width: int, height: int) -> tuple[float, float]:
    """From pixels to values."""
    left, right, low, high = domain
    return left + x / width * (right - left), high - y / height * (high - low)


def _overlap(a: Box, b: Box) -> float:
    """Shared area, in letters."""
    wide, tall = min(a[1], b[1]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[2], b[2])
    return wide * tall / (LETTER * LINE) if wide > 0 and tall > 0 else 0.0


def _beyond(box: Box, width: int, height: int) -> float:
    return max(0, -box[0]) + max(0, box[1] - width) + max(0, -box[2]) + max(0, box[3] - height)


def _inside(row: Row, box: Box) -> bool:
    return box[0] <= row["x"] <= box[1] and box[2] <= row["y"] <= box[3]


def _domain(rows: list[Row], margin: float = 0.08) -> Box:
    """Around the points, with some room."""
    x, y = [row["x"] for row in rows], [row["y"] for row in rows]
    wide, tall = (max(x) - min(x)) or 0.01, (max(y) - min(y)) or 0.01
    return (
        min(x) - margin * wide,
        max(x) + margin * wide,
        min(y) - margin * tall,
        max(y) + margin * tall,
    )


def _x(domain: Box, name: str = "x") -> alt.X:
    scale = alt.Scale(domain=list(domain[:2]), nice=False, zero=False)
    return alt.X(f"{name}:Q", title="OHR@5", scale=scale, axis=_AXIS)


def _y(domain: Box, name: str = "y") -> alt.Y:
    scale = alt.Scale(domain=list(domain[2:]), nice=False, zero=False)
    return alt.Y(f"{name}:Q", title="NDCG@5", scale=scale, axis=_AXIS)


def _svg(chart: alt.HConcatChart | alt.VConcatChart, headline: str) -> str:
    titled = chart.properties(title=alt.Title(headline, anchor="start", fontSize=13))
    styled = titled.configure(font="sans-serif").configure_view(stroke="#dddddd")
    styled = styled.configure_title(fontSize=11, fontWeight="normal").configure_legend(orient="top", symbolOpacity=1)
    return vl_convert.vegalite_to_svg(styled.to_dict())


GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}
OURS, PAPER = "#1f6f8b", "#c0562f"
WHO = ["ours", "paper"]
LABELS = {"precision": "precision", "ohr": "OHR", "hot_share": "hot negatives", "false_share": "false negatives"}
FIRST = "_first_epoch"


def picture(name: str) -> str:
    return f"reproduction-{name}.svg"


def draw_sweep(document: Document) -> str:
    """A panel a metric: ours as a line with the band of one more seed, the paper's numbers as squares."""
    part = document["identity"]["part"]
    rows = list(_points(document))
    panels = [
        _panel([row for row in rows if row["metric"] == metric], part, metric)
        for metric in dict.fromkeys(row["metric"] for row in rows)
    ]
    width = 2 if len(panels) == 4 else 3
    lines = [alt.hconcat(*panels[n : n + width]) for n in range(0, len(panels), width)]
    chart = alt.vconcat(*lines, background="white").configure(font="sans-serif").configure_view(stroke=None)
    return vl_convert.vegalite_to_svg(chart.to_dict())


def _points(document: Document) -> Iterator[dict[str, Any]]:
    """Ours for every metric the sweep's table has, the paper's where it prints one."""
    grid = grids(document)[0]
    printed = {(c.setting, f"{c.metric}@{c.k}" if c.k else c.metric): c.value for c in cells(grid.first)}
    for key in (key for key in grid.columns if not key.endswith(FIRST)):
        for value, pairs in grid.rows.items():
            pair = pairs[grid.columns.index(key)]
            reach = pair.reach or 0.0
            place = {"metric": key, "x": float(value)}
            if pair.mean is not None:
                low, high = pair.mean - reach, pair.mean + reach
                yield place | {"who": "ours", "y": pair.mean, "low": low, "high": high}
        for (setting, metric), height in printed.items():
            if metric == key:
                yield {"metric": key, "x": float(setting), "who": "paper", "y": height}


def _panel(rows: list[dict[str, Any]], part: str, metric: str) -> alt.LayerChart | alt.FacetChart:
    values = sorted({row["x"] for row in rows})
    scale = alt.Scale(zero=False, nice=False, domain=[values[0], values[-1]], padding=8)
    ticks = alt.Axis(tickCount=5, format="~g", grid=False)
    if part != "alpha":
        scale.type = "log"
        ticks.values = [place for place in (0.001, 0.01, 0.1) if values[0] <= place <= values[-1]]
    x = alt.X("x:Q", title=GREEK[part], scale=scale, axis=ticks)
    y = alt.Y("y:Q", title=_label(metric), scale=alt.Scale(zero=False), axis=alt.Axis(format=".3~f"))
    legend = alt.Legend(orient="top", symbolOpacity=1)
    colour = alt.Color("who:N", title=None, scale=alt.Scale(domain=WHO, range=[OURS, PAPER]), legend=legend)
    shape = alt.Shape("who:N", title=None, scale=alt.Scale(domain=WHO, range=["circle", "square"]))
    base = alt.Chart(alt.InlineData(values=rows))
    ours = base.transform_filter("datum.who == 'ours'")
    return alt.layer(
        ours.mark_area(opacity=0.2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=1).encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=35, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
    ).properties(width=230, height=170)


def _label(key: str) -> str:
    name, _, k = key.partition("@")
    first = ", first epoch" if name.endswith(FIRST) else ""
    return LABELS[name.removesuffix(FIRST)] + (f"@{k}" if k else first)
