"""Fills the marked blocks of docs/beyond.md, and draws its charts, from the files of the contest.

    python scripts/beyond_page.py results/contest docs

What is between `<!-- contest:NAME -->` and `<!-- /contest:NAME -->` is replaced; the rest is written by hand.
Comparisons between users are kept in `over_users.json` beside the results, so that the page can be made again
without the users' own values.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import contest_charts
from contest_results import contest_folder, fields, together
from contest_tables import OURS, against_blend, markdown, short, signed, tables

PAGE = "beyond.md"
UNIFORM = "uniform_exposure.json"
RANDOM = ("ml-100k-random-0", "ml-100k-random-1", "ml-100k-random-2")
DRAWN = ("ml-100k-paper", "ml-1m-paper")
TESTS = ("biased", "uniform")


def main(results: str = "results/contest", docs: str = "docs") -> None:
    page = Path(docs) / PAGE
    if not Path(results).is_dir():
        sys.exit(f"{results} is no folder with results of benchmarks/contest.py.")
    found = fields(Path(results), update=True)
    text = page.read_text(encoding="utf-8")
    for name, block in {
        "tables": tables(found),
        "blend": against_blend(found, together(Path(results), OURS, RANDOM)),
        "uniform": uniform(contest_folder(Path(results)) / UNIFORM),
    }.items():
        text = replaced(text, name, block)
    images = Path(docs) / "images"
    images.mkdir(parents=True, exist_ok=True)
    drawings = {field.name: contest_charts.draw(field) for field in found if field.name in DRAWN}
    if small := [field for field in found if field.name.startswith("ml-100k")]:
        drawings["ml-100k-splits"] = contest_charts.draw_many(small)
    for name, drawing in drawings.items():
        (images / f"contest-{name}.svg").write_text(drawing, encoding="utf-8")
    shown = [
        f"![Accuracy against bias: {name}](images/contest-{name}.svg)"
        for name in (*DRAWN, "ml-100k-splits")
        if (images / f"contest-{name}.svg").exists()
    ]
    text = replaced(text, "charts", "\n\n".join(shown) or "Not drawn yet.")
    page.write_text(text, encoding="utf-8")
    print(f"written: {page}")


def replaced(text: str, name: str, block: str) -> str:
    """The page with other words between two marks; a page without them is left as it is."""
    pattern = rf"(<!-- contest:{name} -->\n).*?(<!-- /contest:{name} -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text, flags=re.DOTALL)


def uniform(path: Path) -> str:
    """The table of benchmarks/uniform_exposure.py, the best by the random test first."""
    if not path.exists():
        return "Not measured yet."
    found = json.loads(path.read_text(encoding="utf-8"))
    values, gaps = found["values"], found["minus_rns"]
    means = {name: {key: sum(each) / len(each) for key, each in measured.items()} for name, measured in values.items()}
    ranks = {key: _ranks(means, key) for key in ("biased ndcg@10", "uniform ndcg@10")}
    heads = [
        "contender",
        *(f"{label}@{k}, {where}" for where in TESTS for label, k in (("NDCG", 10), ("precision", 5))),
        *(f"OHR@5, {where}" for where in TESTS),
        "liked@5",
        "rank: biased → uniform",
    ]
    measures = [f"{test} {measure}" for test in TESTS for measure in ("ndcg@10", "precision@5")]
    keys = [*measures, *(f"{test} ohr@5" for test in TESTS), "liked@5"]
    rows = []
    for name in sorted(means, key=lambda one: ranks["uniform ndcg@10"][one]):
        moved = f"{ranks['biased ndcg@10'][name]} → {ranks['uniform ndcg@10'][name]}"
        rows.append([f"`{name}`", *(short(means[name][key]) for key in keys), moved])
    tested = ("biased ndcg@10", "uniform ndcg@10", "liked@5")
    differing = [
        [f"`{name}`", *(_gap(gaps[name].get(key)) for key in tested)]
        for name in sorted(gaps, key=lambda one: ranks["uniform ndcg@10"][one])
    ]
    told = (
        f"`{found['command']}`: {found['worlds']} worlds of 1,000 users × 1,500 items and 60,000 pairs, "
        f"{found['seconds']:,} seconds on {found['hardware']}, torch {found['versions']['torch']}, "
        f"{found['date']}. Means over worlds, the best by the random test first:"
    )
    minus = "Each − `rns`, paired over worlds, 95 % intervals; bold where Holm's p is at most .05:"
    headed = ["contender", "NDCG@10, biased", "NDCG@10, uniform", "liked@5"]
    return "\n\n".join([told, markdown(heads, rows), minus, markdown(headed, differing)])


def _ranks(means: dict[str, dict[str, float]], key: str) -> dict[str, int]:
    order = sorted(means, key=lambda name: -means[name][key])
    return {name: place for place, name in enumerate(order, start=1)}


def _gap(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    text = f"{signed(found['difference'])} ({signed(found['low'])} to {signed(found['high'])})"
    return f"**{text}**" if found["holm_p"] <= 0.05 else text


if __name__ == "__main__":
    main(*sys.argv[1:])
