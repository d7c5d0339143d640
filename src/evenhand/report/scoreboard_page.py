"""The scoreboard as a page in Markdown, a page in HTML, and rows for a terminal; all from the document alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from evenhand.data.write import write_text
from evenhand.metrics.catalogue import MEASURED, SCOREBOARD
from evenhand.report.render import Cell, Column, Origin, Table, described, isolated, number, render, render_text
from evenhand.utils.text import visible

MARKS = {"validation": "", "test": "†", "unknown": "‡"}
"""By where a published number was chosen."""
LEGEND = {
    "†": "hyperparameters or epochs were chosen on the test part",
    "‡": "the split has no validation part, and the source does not say where they were chosen",
}
Row = Mapping[str, Any]


def scoreboard_markdown(board: Mapping[str, Any]) -> str:
    tests = [{**one, "set": _plain(one["set"])} for one in board["tests"]]
    shown = [one for one in tests if one["rows"]]
    names = dict.fromkeys(one["set"] for one in shown)
    return render_text(
        "scoreboard.md",
        legend=_legend(shown),
        glance=[_glance(one) for one in shown],
        sets={name: _set([one for one in shown if one["set"] == name]) for name in names},
        hardware=sorted({row["hardware"] for one in shown for row in one["rows"] if row["hardware"]}),
        sources=_sources(board, shown),
        absent=dict.fromkeys(f"{one['set']} ({one['test']})" for one in tests if not one["rows"]),
    )


def _legend(shown: Sequence[Row]) -> list[tuple[str, str]]:
    """What the marks of published rows mean, as far as they are used."""
    used = {row["chosen_on"] for one in shown for row in one["published"]}
    return [(MARKS[key], LEGEND[MARKS[key]]) for key in ("test", "unknown") if key in used]


def _sources(board: Mapping[str, Any], shown: Sequence[Row]) -> list[tuple[str, str, str]]:
    cited = {row["source"] for one in shown for row in one["published"]}
    return [(key, one["title"], one["url"]) for key, one in board["sources"].items() if key in cited]


def _best(one: Row) -> tuple[Row | None, Row | None]:
    """Of a test: the row of ours that validation chose, and the best published one."""
    ours = next((row for row in one["rows"] if row["name"] == one["choice"]), None)
    return ours, next((row for row in one["published"] if row["method"] == one["best_published"]), None)


def _glance(one: Row) -> tuple[str, ...]:
    ours, theirs = _best(one)
    ratio = "–"
    if ours and theirs and ours["metrics"]["ndcg"]["mean"] is not None:
        ratio = f"{100 * (ours['metrics']['ndcg']['mean'] / theirs['ndcg'] - 1):+.1f} %".replace("-", "−")
    mine = (f"`{_plain(ours['name'])}`", _accuracy(ours)) if ours else ("–", "–")
    return one["set"], one["test"], *mine, *((theirs["method"], _printed(theirs)) if theirs else ("–", "–")), ratio


def _set(tests: Sequence[Row]) -> dict[str, Any]:
    """One table for the tests of a data set: ours and the published rows, the most accurate in the first test first."""
    cells: dict[str, dict[int, tuple[str, str, str]]] = {}
    sources: dict[str, dict[str, None]] = {}
    rank: dict[str, tuple[int, float]] = {}
    failures = []
    for place, one in enumerate(tests):
        best = _highest(one)
        for row in one["rows"]:
            name = f"`{_plain(row['name'])}`"
            if row["status"] == "failed":
                cells.setdefault(name, {})[place] = ("failed", "", "")
                failures.append(f"{name}, {one['test']}: {_plain(row['problem'])}")
                continue
            ndcg = row["metrics"]["ndcg"]["mean"]
            accuracy = f"**{_accuracy(row)}**" if ndcg == best else _accuracy(row)
            cells.setdefault(name, {})[place] = (accuracy, _exposure(row), f"{_seconds(row):,.0f}, {_gigabytes(row)}")
            rank.setdefault(name, (place, -ndcg))
        for row in one["published"]:
            cells.setdefault(row["method"], {})[place] = (_printed(row), "", "")
            sources.setdefault(row["method"], {})[f"`{row['source']}`"] = None
            rank.setdefault(row["method"], (place, -(row["ndcg"] or 0.0)))
    heads = [(f"{one['test']}: recall / NDCG", "gap, top tenth", "s, GB") for one in tests]
    return {
        "notes": " ".join(f"*{one['test']}*: {one['note']}" for one in tests if one["note"]),
        "head": ["method", *chain(*heads), *(["source"] if sources else [])],
        "rows": [
            [
                name,
                *chain(*(cells[name].get(place, ("", "", "")) for place in range(len(tests)))),
                *([", ".join(sources.get(name, ()))] if sources else []),
            ]
            for name in sorted(cells, key=lambda name: rank.get(name, (len(tests), 0.0)))
        ],
        "failures": failures,
    }


def _highest(one: Row) -> float | None:
    return max((row["metrics"]["ndcg"]["mean"] for row in one["rows"] if row["metrics"]), default=None)


def scoreboard_rows(board: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Ours and the published rows as texts: data, test, method, recall, NDCG, gap, top tenth, seconds, memory."""
    for one in board["tests"]:
        if not one["rows"]:
            continue
        for row in _mixed(one):
            where = (one["set"], one["test"])
            if "printed" in row:
                name = f"{row['method']} ({row['source']}){MARKS[row['chosen_on']]}"
                yield (*where, name, _short(row["recall"]), _short(row["ndcg"]), "", "", "", "")
            elif row["status"] == "failed":
                yield (*where, row["name"], "failed", "", "", "", "", "")
            else:
                values = (_short(row["metrics"][name]["mean"]) for name in SCOREBOARD)
                top = _short(row["metrics"]["top_tenth_share"]["mean"], 2)
                yield (*where, row["name"], *values, top, f"{_seconds(row):,.0f}", _gigabytes(row))


def write_scoreboard_page(board: Mapping[str, Any], path: Path, origin: Origin | None = None) -> None:
    write_text(path, scoreboard_page(board, origin))


def scoreboard_page(board: Mapping[str, Any], origin: Origin | None = None) -> str:
    """The whole document: a table that can be sorted for each test."""
    shown = [one for one in board["tests"] if one["rows"]]
    rows = [row for one in shown for row in one["rows"]]
    return render(
        "scoreboard.html",
        facts=[
            ("data sets", len({one["set"] for one in shown})),
            ("tests", len(shown)),
            ("cells measured", sum(row["status"] == "measured" for row in rows)),
            ("published numbers", sum(len(one["published"]) for one in shown)),
        ],
        origin=origin,
        glance=_glance_table(shown),
        tests=[
            {
                "key": f"test-{place}",
                "title": f"{one['set']}: {one['test']}",
                "question": one["question"],
                "note": one["note"],
                "split": one["split"] or "",
                "table": _test_table(one),
                "failures": [f"{row['name']} failed: {row['problem']}" for row in one["rows"] if row["problem"]],
            }
            for place, one in enumerate(shown)
        ],
        absent=[
            f"{one['set']}, {one['test']}: {one['skipped'] or 'not run'}" for one in board["tests"] if not one["rows"]
        ],
        legend=_legend(shown),
        sources=_sources(board, shown),
        words=[
            *((described(name).title, described(name).meaning) for name in ("exposure_gap", "top_tenth_share")),
            ("seconds", "of the processor (on a GPU: of the clock), for search on validation, all seeds, evaluation"),
            ("memory", "the most that the method's own process held"),
        ],
    )


def _glance_table(tests: Sequence[Row]) -> Table:
    rows: list[Sequence[Cell | str]] = []
    for one in tests:
        ours, theirs = _best(one)
        ahead = ours is not None and theirs is not None and ours["metrics"]["ndcg"]["mean"] > theirs["ndcg"]
        rows.append(
            (
                Cell(one["set"], below=f"{one['test']}: {one['question']}"),
                Cell(isolated(ours["name"])) if ours else "–",
                Cell(_accuracy(ours), ours["metrics"]["ndcg"]["mean"], best=ahead) if ours else "–",
                Cell(isolated(theirs["method"])) if theirs else "–",
                Cell(_printed(theirs), theirs["ndcg"]) if theirs else "–",
            )
        )
    columns = ("Test", "Best on validation", "Recall / NDCG", "Best published", "Recall / NDCG")
    return Table("The best of ours and of others on each test", columns, rows)


def _test_table(one: Row) -> Table:
    best = _highest(one)
    columns = [
        Column("Method"),
        Column("Recall@20", described("recall").meaning, True),
        Column("NDCG@20", described("ndcg").meaning, True),
        Column("Exposure gap", described("exposure_gap").meaning, False),
        Column("Top tenth", described("top_tenth_share").meaning),
        *(Column("Seconds"), Column("Memory")),
    ]
    return Table(f"{one['set']}, {one['test']}", columns, [_html_row(row, best) for row in _mixed(one)], sortable=True)


def _html_row(row: Row, best: float | None) -> list[Cell | str]:
    empty = Cell("", float("nan"))
    if "printed" in row:
        mark = MARKS[row["chosen_on"]]
        name = Cell(isolated(row["method"]), below=f"published, {row['source']}{mark and ' ' + mark}")
        values = [Cell(_short(row[key]), float("nan") if row[key] is None else row[key]) for key in ("recall", "ndcg")]
        return [name, *values, *[empty] * 4]
    if row["status"] == "failed":
        return [Cell(isolated(row["name"]), below="failed"), *[Cell("–", float("nan"))] * 2, *[empty] * 4]
    details = [f"{row['trials']} trials"] if row["trials"] else []
    details += [f"{row['seeds']} seeds"] if row["seeds"] > 1 else []

    def measured(key: str, digits: int = 4) -> Cell:
        value = row["metrics"][key]["mean"]
        ends = row["intervals"].get(key) or (None, None)
        known = None not in ends
        below = f"{number(ends[0], digits)} – {number(ends[1], digits)}" if known else ""
        at = float("nan") if value is None else value
        return Cell(_short(value, digits), at, below, interval=known, best=key == "ndcg" and value == best)

    return [
        Cell(isolated(row["name"]), below=", ".join(details)),
        *(measured(key) for key in SCOREBOARD),
        measured("top_tenth_share", 2),
        Cell(number(_seconds(row), 1), _seconds(row), f"{number(row['seconds'], 1)} by the clock"),
        Cell(_gigabytes(row), row["memory_mb"] or 0),
    ]


def _mixed(one: Row) -> list[Row]:
    """Ours and the published rows of a test, the highest NDCG first, those without one last."""

    def place(row: Row) -> float:
        value = row["ndcg"] if "printed" in row else row["metrics"].get("ndcg", {}).get("mean")
        return -(value or 0.0)

    return sorted([*one["rows"], *one["published"]], key=place)


def _accuracy(row: Row) -> str:
    return " / ".join(_short(row["metrics"][name]["mean"]) for name in ("recall", "ndcg"))


def _printed(row: Row) -> str:
    return f"{_short(row['recall'])} / {_short(row['ndcg'])}{MARKS[row['chosen_on']]}"


def _exposure(row: Row) -> str:
    gap, top, ratio = (row["metrics"][name]["mean"] for name in MEASURED[2:5])
    return f"{_short(gap, 3)}, {_short(top, 2)} ({'–' if ratio is None else f'{ratio:.1f}'})"


def _seconds(row: Row) -> float:
    """Processor seconds, which other work on the machine does not change; on a GPU those of the clock."""
    return float(row["seconds"] if row["gpu_memory_mb"] or row["cpu_seconds"] is None else row["cpu_seconds"])


def _gigabytes(row: Row) -> str:
    main = f"{row['memory_mb'] / 1024:.1f}" if row["memory_mb"] else "–"
    return main + (f" + {row['gpu_memory_mb'] / 1024:.1f} GPU" if row["gpu_memory_mb"] else "")


def _short(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}".removeprefix("0")


def _plain(text: str) -> str:
    """A name or a reason that cannot break a table or be taken for markup."""
    return visible(text, 200).replace("|", "¦").replace("`", "'").replace("<", "‹")
