"""Writes docs/reproduction.md and its charts from the result files of `evenhand reproduce`.

    python scripts/reproduction_page.py [results] [docs/reproduction.md]

Everything on the page is read from the files: run it again whenever they change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from evenhand.paper.published import cells
from evenhand.paper.reproduce.claims import Claim, claims
from evenhand.paper.reproduce.recipes import DEFAULT_METHODS
from evenhand.paper.reproduce.record import Document, documents
from evenhand.paper.reproduce.request import SWEEPS, swept_values
from evenhand.paper.reproduce.table import LEGEND, grids, made_by, title

OPENING = """# The paper's tables, run again

Made by `scripts/reproduction_page.py` from the files in `results/`, which `evenhand reproduce` wrote; each
row there has its command, numbers, versions, hardware and seconds. How to run a part yourself:

    evenhand reproduce overall --dataset ml-100k --encoder mf --methods rns,auc-ns --seeds 10 --out results
    evenhand reproduce alpha --seeds 10 --out results
    evenhand reproduce errors --seeds 10 --out results
    evenhand reproduce claims --out results

A part that was interrupted goes on with the same command. With `--data-dir`, the folder's `paper_train.csv`
and `paper_test.csv` are the authors' split; without them a random fifth of the data is the test part.
"""
OURS, PAPER = "#1f6f8b", "#c0562f"
WHO = ["ours", "paper"]
IDENTITY = ("part", "encoder", "protocol")
LABELS = {
    "precision": "precision",
    "ohr": "OHR",
    "hot_share": "hot negatives",
    "false_share": "false negatives",
}


def main(results: str = "results", page: str = "docs/reproduction.md") -> None:
    found = documents(Path(results))
    if not found:
        sys.exit(f"{results} holds no result files of `evenhand reproduce`.")
    images = Path(page).parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    text = "\n".join([OPENING, *_absent(found), LEGEND, "", *_answers(found), *_sections(found, images)])
    Path(page).write_text(text.rstrip() + "\n", encoding="utf-8")
    print(f"written: {page}")


def _absent(found: dict[str, Document]) -> Iterator[str]:
    """What a reader may look for on this page in vain."""
    wanted = [("overall", encoder, how) for encoder in ("mf", "lightgcn") for how in ("paper", "honest")]
    wanted += [(sweep, "mf", "paper") for sweep in SWEEPS]
    missing = []
    for part, encoder, protocol in wanted:
        entries = {
            label
            for document in found.values()
            if all(
                document["identity"][k] == v for k, v in zip(IDENTITY, (part, encoder, protocol), strict=True)
            )
            for label in document["entries"]
        }
        rows = DEFAULT_METHODS if part == "overall" else swept_values(part)
        lacking = [row for row in rows if row not in entries]
        if lacking:
            which = "all" if len(lacking) == len(rows) else ", ".join(f"`{row}`" for row in lacking)
            missing.append(f"- `{part}`, {encoder}, protocol {protocol}: {which}")
    if missing:
        yield "Not measured yet on ML-100K, so not on this page:\n"
        yield from missing
        yield ""
    yield "On Yahoo!-R3 nothing was measured: its licence keeps it from us; the command reads your copy.\n"


def _answers(found: dict[str, Document]) -> Iterator[str]:
    yield "## What it says of the claims\n"
    answers = claims(found)
    for what in dict.fromkeys(claim.what for claim in answers):
        of_this = [claim for claim in answers if claim.what == what]
        yield f"### {what}\n"
        yield from _summaries(of_this)
        yield ""
        yield from _matrix([claim for claim in of_this if claim.other])


def _summaries(answers: list[Claim]) -> Iterator[str]:
    words = {True: "yes", False: "no", None: "cannot tell"}
    yield "| as claimed | measured |\n|---|---|"
    for claim in answers:
        if not claim.other:
            yield f"| {words[claim.holds]} | {claim.text} |"


def _matrix(answers: list[Claim]) -> Iterator[str]:
    """AUC-NS minus every other row, bold where the claim holds by both tests."""
    if not answers:
        return
    metrics = list(dict.fromkeys(claim.metric for claim in answers))
    found = {(claim.other, claim.metric): claim for claim in answers}
    yield "AUC-NS − the other row; bold where it is better beyond chance over seeds (Holm) and over users:\n"
    yield f"| against | {' | '.join(metrics)} |\n|{'---|' * (len(metrics) + 1)}"
    for other in dict.fromkeys(claim.other for claim in answers):
        yield f"| `{other}` | {' | '.join(_gap(found[other, metric]) for metric in metrics)} |"
    yield ""


def _gap(claim: Claim) -> str:
    if claim.gap is None:
        return "–"
    text = f"{claim.gap:+.4f}".replace("-", "−").replace("0.", ".", 1)
    return f"**{text}**" if claim.holds else text


def _sections(found: dict[str, Document], images: Path) -> Iterator[str]:
    for name, document in found.items():
        what = document["identity"]
        yield f"## {what['part']}: {title(document)}\n"
        yield f"Split: {what['split']}. File: `{name}.json`.\n"
        if what["part"] in SWEEPS:
            picture = images / f"reproduction-{name}.svg"
            picture.write_text(draw(document), encoding="utf-8")
            yield f"![ours with its spread over seeds, and the paper's numbers](images/{picture.name})\n"
        parts = [None, "errors"] if what["part"] == "overall" and 5 in what["ks"] else [None]
        for part in parts:
            for grid in grids(document, part):
                yield grid.markdown() + "\n"
        yield made_by(document["entries"]) + "\n"


def draw(document: Document) -> str:
    """A panel a metric: ours as a line with its spread over seeds, the paper's printed numbers as points."""
    part = document["identity"]["part"]
    rows = list(_points(document, part))
    panels = [
        _panel([row for row in rows if row["metric"] == metric], part, metric) for metric in _metrics(rows)
    ]
    chart = alt.hconcat(*panels).configure(font="sans-serif").configure_view(stroke=None)
    return vl_convert.vegalite_to_svg(chart.to_dict())


def _metrics(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["metric"] for row in rows))


def _points(document: Document, part: str) -> Iterator[dict[str, Any]]:
    for cell in cells(part):
        key = f"{cell.metric}@{cell.k}" if cell.k else cell.metric
        place = {"metric": key, "x": float(cell.setting)}
        yield place | {"who": "paper", "y": cell.value, "low": cell.value, "high": cell.value}
        entry = document["entries"].get(cell.setting)
        if entry is None:
            continue
        ours = entry["metrics"][key]
        spread = ours["std"] or 0.0
        low, high = ours["mean"] - spread, ours["mean"] + spread
        yield place | {"who": "ours", "y": ours["mean"], "low": low, "high": high}


def _panel(rows: list[dict[str, Any]], part: str, metric: str) -> alt.LayerChart | alt.FacetChart:
    name, _, k = metric.partition("@")
    values = [row["x"] for row in rows]
    scale = alt.Scale(zero=False, nice=False, domain=[min(values), max(values)], padding=8)
    if part != "alpha":
        scale.type = "log"
    x = alt.X("x:Q", title=part, scale=scale, axis=alt.Axis(tickCount=4, format="~g", grid=False))
    y = alt.Y("y:Q", title=LABELS[name] + (f" in the top {k}" if k else ""), scale=alt.Scale(zero=False))
    colour = alt.Color("who:N", title=None, scale=alt.Scale(domain=WHO, range=[OURS, PAPER]))
    shape = alt.Shape("who:N", title=None, scale=alt.Scale(domain=WHO, range=["circle", "square"]))
    base = alt.Chart(alt.InlineData(values=rows))
    ours = base.transform_filter("datum.who == 'ours'")
    return alt.layer(
        ours.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(strokeWidth=1).encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=30).encode(x=x, y=y, color=colour, shape=shape),
    ).properties(width=230, height=170)


if __name__ == "__main__":
    main(*sys.argv[1:])
