"""The sweeps over α, β and γ: a chart, what it shows, and a table with one line a value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from evenhand.paper.published import cell, cells
from evenhand.paper.reproduce.claims import Claim
from evenhand.paper.reproduce.record import Document
from evenhand.paper.reproduce.request import SWEEPS
from evenhand.paper.reproduce.table import Pair, grids, short
from reproduction.files import GOOD, Answers, Results, Table, number, signed, table

OURS, PAPER = "#1f6f8b", "#c0562f"
WHO = ["ours", "paper"]
GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}
ASKED = {
    "alpha": "The paper sees an inverted U in precision, and an OHR that is level up to the best α and rises "
    "beyond it.",
    "beta": "The paper sees an inverted U in precision, a U in OHR, and ever more hot and false negatives as β grows.",
    "gamma": "The paper finds γ = .006 best for the top 5 and .1 for the top 10, as longer lists bear more errors.",
}
LABELS = {
    "precision": "precision",
    "ohr": "OHR",
    "hot_share": "hot negatives",
    "false_share": "false negatives",
}
FIRST = "_first_epoch"
FLAT = 0.002
ALIKE = 0.005
"""Closer than this, a printed false share is that of popularity alone; ours differ by more."""


def sweeps(results: Results, answers: Answers, images: str) -> Iterator[str]:
    yield "## The sweeps over α, β and γ\n"
    yield "ML-100K, MF; the other two parameters as published. In the charts the band is where one more"
    yield "of our seeds would lie (95 %): a square outside it is a number of the paper that our runs do"
    yield "not give. The best value is picked on the seeds it is tested with, which flatters it a little.\n"
    for part in SWEEPS:
        document = results.sweep(part)
        yield f"### {GREEK[part]}\n"
        if document is None:
            yield "Not measured yet.\n"
            continue
        name = next(name for name, one in results.found.items() if one is document)
        yield f"{ASKED[part]} {document['identity']['seeds']} seeds, `{name}.json`.\n"
        shown = f"{GREEK[part]}: ours with the band of one more seed, and the paper's numbers"
        yield f"![{shown}]({images}/{picture(name)})\n"
        yield from _findings(part, document, answers[name])
        if part == "beta":
            yield from _negatives(document, results.table("ml-100k", "mf"))
        yield ""
        yield _values(document)


def in_greek(text: str, part: str) -> str:
    """What a claim says, as the page writes it."""
    return text.replace("ohr@", "OHR@").replace(f" {part}", f" {GREEK[part]}")


def picture(name: str) -> str:
    return f"reproduction-{name}.svg"


def draw_all(results: Results, folder: Path) -> None:
    """The charts of all sweeps."""
    for name, document in results.found.items():
        if document["identity"]["part"] in SWEEPS:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / picture(name)).write_text(draw(document), encoding="utf-8")


def _findings(part: str, document: Document, claims: list[Claim]) -> Iterator[str]:
    words = {True: "As claimed", False: "Not as claimed", None: "Cannot tell"}
    for claim in claims:
        told = in_greek(claim.text, part)
        yield f"- {words[claim.holds]}. {told[0].upper()}{told[1:]}"
    grid = grids(document)[0]
    pairs = [pair for row in grid.rows.values() for pair in row if pair.verdict]
    within, near = (sum(pair.verdict == word for pair in pairs) for word in GOOD)
    yield f"- {within} of {len(pairs)} printed numbers lie in our band, {near} more within .01 of ours."
    means = {value: row[grid.columns.index("precision@5")].mean or 0.0 for value, row in grid.rows.items()}
    flat = [value for value, mean in means.items() if max(means.values()) - mean <= FLAT]
    yield f"- Precision@5 is within {short(FLAT)} of its best at {', '.join(flat)}."


def _negatives(document: Document, methods: Table | None) -> Iterator[str]:
    """Hot and false share at the published β, over the run and in its first epoch, beside the paper's."""
    shares = ("hot_share", "false_share")
    hot, false = (cell("beta", setting="0.01", metric=name).value for name in shares)
    found = document["entries"].get("0.01", {}).get("metrics", {})
    ours = [number(found.get(f"{name}{when}", {}).get("mean")) for when in ("", FIRST) for name in shares]
    yield (
        f"- Hot and false share of the negatives at β = .01: ours {ours[0]} and {ours[1]} over the run, "
        f"{ours[2]} and {ours[3]} in the first epoch; the paper has {short(hot)} and {short(false)}. What "
        "was tried to explain it: [claims.md](claims.md#the-negatives-behind-the-β-table)."
    )
    if methods is None:
        return
    printed: dict[str, dict[str, float]] = {}
    for one in cells("beta"):
        printed.setdefault(one.setting, {})[one.metric] = one.value
    gaps = []
    for row in printed.values():
        level = by_popularity_alone(methods, row["hot_share"])
        gaps += [] if level is None else [row["false_share"] - level]
    if gaps:
        alike = max(map(abs, gaps)) < ALIKE
        look = ": they look like negatives that follow popularity and hardly the user" if alike else ""
        yield (
            "- Negatives drawn by popularity alone lie on the line between `rns` and `pns`. The printed "
            f"false shares lie {signed(min(gaps))} to {signed(max(gaps))} from it, at their hot shares{look}."
        )


def by_popularity_alone(methods: Table, hot: float) -> float | None:
    """The false share on the straight line through those of uniform and popularity-based negatives."""
    ends = [methods.mean(label, name) for label in ("rns", "pns") for name in ("hot_share", "false_share")]
    known = [value for value in ends if value is not None]
    if len(known) < 4 or known[0] == known[2]:
        return None
    return known[1] + (known[3] - known[1]) * (hot - known[0]) / (known[2] - known[0])


def _values(document: Document) -> str:
    """One line a value; columns that no row has are left out."""
    grid = grids(document)[0]
    columns = zip(grid.columns, zip(*grid.rows.values(), strict=True), strict=True)
    shown = {key: pairs for key, pairs in columns if any(pair.mean is not None for pair in pairs)}
    rows = [[f"`{value}`", *(_cell(pairs[n]) for pairs in shown.values())] for n, value in enumerate(grid.rows)]
    heads = [
        _label(key) + (", ours / paper" if any(pair.cell for pair in pairs) else "") for key, pairs in shown.items()
    ]
    return table([GREEK[grid.first], *heads], rows)


def _cell(pair: Pair) -> str:
    ours, paper, _ = pair.texts()
    return f"{ours} / {paper}" if pair.cell else ours


def _label(key: str) -> str:
    name, _, k = key.partition("@")
    first = ", first epoch" if name.endswith(FIRST) else ""
    return LABELS[name.removesuffix(FIRST)] + (f"@{k}" if k else first)


def draw(document: Document) -> str:
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
