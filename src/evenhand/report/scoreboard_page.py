"""The scoreboard as a page in Markdown, a page in HTML, and rows for a terminal; all from the document alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.audit.document import write_text
from evenhand.metrics.catalogue import MEASURED, SCOREBOARD
from evenhand.report.render import Cell, Column, Origin, Table, described, isolated, number, render
from evenhand.utils.text import visible

MARKS = {"validation": "", "test": "†", "unknown": "‡"}
"""By where a published number was chosen."""
LEGEND = {
    "†": "hyperparameters or epochs were chosen on the test part",
    "‡": "the split has no validation part, and the source does not say where they were chosen",
}
_OPENING = """
# Scoreboard: accuracy and exposure beside what others published

`evenhand benchmark` wrote this page from the recorded cells. A cell is one method on one test: its hyperparameters
were searched on validation, which is drawn as the test is, it was fitted again to train + validation, and test was
looked at once. Methods that depend on a seed have the mean over seeds. Each kind of test asks a question: *iid*, who
predicts the log; *shift*, who finds each item its users (test items drawn uniformly); *time*, who predicts what comes
next; *exposure*, who shows what users would like if shown at random.

    evenhand benchmark --data-dir data                                          # what of the suite is on this machine
    evenhand benchmark gowalla --methods recipe --budget 10m --data-dir data    # more cells join the recorded ones
    evenhand benchmark mylog.csv --tests iid,shift,time --methods popular,ease,recipe

- **gap**: the exposure gap@20, the share of slots that would have to go to another popularity tenth for exposure to
  follow the test's demand. **top tenth**: the share of slots of the most popular tenth of the items. Lower is not
  better by itself: in brackets stands that share over the same items' share of demand, which is 1 where it is even.
- **s**: processor seconds of everything, search and all seeds included (on a GPU: seconds); **GB**: the most memory
  that its process held.
"""


def scoreboard_markdown(board: Mapping[str, Any]) -> str:
    """The whole page."""
    tests = [{**one, "set": _plain(one["set"])} for one in board["tests"]]
    shown, absent = ([one for one in tests if bool(one["rows"]) is there] for there in (True, False))
    used = {row["chosen_on"] for one in shown for row in one["published"]}
    marks = [f"**{MARKS[key]}**: {LEGEND[MARKS[key]]}." for key in ("test", "unknown") if key in used]
    hardware = sorted({row["hardware"] for one in shown for row in one["rows"] if row["hardware"]})
    legend = "\n".join(f"- {line}" for line in marks)
    parts = [_OPENING.strip() + (f"\n{legend}" if legend else ""), "## At a glance", _glance(shown)]
    for name in dict.fromkeys(one["set"] for one in shown):
        parts += [f"## {name}", *_set([one for one in shown if one["set"] == name])]
    parts += ["## Sources", *([f"Measured on: {'; '.join(hardware)}."] if hardware else [])]
    cited = {row["source"] for one in shown for row in one["published"]}
    lines = [f"- `{key}`: {one['title']}, {one['url']}" for key, one in board["sources"].items() if key in cited]
    parts += ["\n".join(lines)] if lines else []
    if absent:
        names = ", ".join(dict.fromkeys(f"{one['set']} ({one['test']})" for one in absent))
        parts.append(f"In the suite and not measured here: {names}.")
    return "\n\n".join(parts) + "\n"


def _glance(tests: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "data",
        "test",
        "best on validation",
        "recall@20 / NDCG@20",
        "best published",
        "recall@20 / NDCG@20",
        "NDCG",
    )
    rows = []
    for one in tests:
        ours = next((row for row in one["rows"] if row["name"] == one["choice"]), None)
        theirs = next((row for row in one["published"] if row["method"] == one["best_published"]), None)
        value = None if ours is None else ours["metrics"]["ndcg"]["mean"]
        ratio = (
            "–" if theirs is None or value is None else f"{100 * (value / theirs['ndcg'] - 1):+.1f} %".replace("-", "−")
        )
        rows.append(
            (
                one["set"],
                one["test"],
                "–" if ours is None else f"`{_plain(ours['name'])}`",
                "–" if ours is None else _accuracy(ours),
                "–" if theirs is None else theirs["method"],
                "–" if theirs is None else _printed(theirs),
                ratio,
            )
        )
    return _table(head, rows)


def _set(tests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One table for the tests of a data set: ours and the published rows, the most accurate in the first test first."""
    notes = [f"*{one['test']}*: {one['note']}" for one in tests if one["note"]]
    if notes:
        yield textwrap.fill(" ".join(notes), 120, break_long_words=False, break_on_hyphens=False)
    cells: dict[str, dict[int, tuple[str, str, str]]] = {}
    sources: dict[str, list[str]] = {}
    rank: dict[str, tuple[int, float]] = {}
    failures = []
    for place, one in enumerate(tests):
        best = max((row["metrics"]["ndcg"]["mean"] for row in one["rows"] if row["metrics"]), default=None)
        for row in one["rows"]:
            name = f"`{_plain(row['name'])}`"
            if row["status"] == "failed":
                cells.setdefault(name, {})[place] = ("failed", "", "")
                failures.append(f"{name}, {one['test']}: {_plain(row['problem'])}")
                continue
            ndcg = row["metrics"]["ndcg"]["mean"]
            accuracy = f"**{_accuracy(row)}**" if ndcg == best else _accuracy(row)
            cells.setdefault(name, {})[place] = (accuracy, _exposure(row), _cost(row))
            rank.setdefault(name, (place, -ndcg))
        for row in one["published"]:
            cells.setdefault(row["method"], {})[place] = (_printed(row), "", "")
            sources.setdefault(row["method"], []).append(f"`{row['source']}`")
            rank.setdefault(row["method"], (place, -(row["ndcg"] or 0.0)))
    head = ["method"]
    for one in tests:
        head += [f"{one['test']}: recall / NDCG", "gap, top tenth", "s, GB"]
    cited = bool(sources)
    order = sorted(cells, key=lambda name: rank.get(name, (len(tests), 0.0)))
    rows = [
        [
            name,
            *(text for place in range(len(tests)) for text in cells[name].get(place, ("", "", ""))),
            *([", ".join(dict.fromkeys(sources.get(name, [])))] if cited else []),
        ]
        for name in order
    ]
    yield _table([*head, *(["source"] if cited else [])], rows)
    if failures:
        yield "\n".join(f"- failed: {line}" for line in failures)


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
    """Write the HTML page, whole or not at all."""
    write_text(path, scoreboard_page(board, origin))


def scoreboard_page(board: Mapping[str, Any], origin: Origin | None = None) -> str:
    """The whole document: a table that can be sorted for each test."""
    shown = [one for one in board["tests"] if one["rows"]]
    rows = [row for one in shown for row in one["rows"]]
    used = {row["chosen_on"] for one in shown for row in one["published"]}
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
        legend=[(MARKS[key], LEGEND[MARKS[key]]) for key in ("test", "unknown") if key in used],
        sources=[
            (one["title"], one["url"])
            for key, one in board["sources"].items()
            if any(row["source"] == key for test in shown for row in test["published"])
        ],
        words=[
            *((described(name).title, described(name).meaning) for name in ("exposure_gap", "top_tenth_share")),
            (
                "seconds",
                "of the processor (on a GPU: of the clock), for search on validation, all seeds, evaluation",
            ),
            ("memory", "the most that the method's own process held"),
        ],
    )


def _glance_table(tests: Sequence[Mapping[str, Any]]) -> Table:
    rows: list[Sequence[Cell | str]] = []
    for one in tests:
        ours = next((row for row in one["rows"] if row["name"] == one["choice"]), None)
        theirs = next((row for row in one["published"] if row["method"] == one["best_published"]), None)
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


def _test_table(one: Mapping[str, Any]) -> Table:
    best = max((row["metrics"]["ndcg"]["mean"] for row in one["rows"] if row["metrics"]), default=None)
    columns = [
        Column("Method"),
        Column("Recall@20", described("recall").meaning, True),
        Column("NDCG@20", described("ndcg").meaning, True),
        Column("Exposure gap", described("exposure_gap").meaning, False),
        Column("Top tenth", described("top_tenth_share").meaning),
        Column("Seconds"),
        Column("Memory"),
    ]
    return Table(f"{one['set']}, {one['test']}", columns, [_html_row(row, best) for row in _mixed(one)], sortable=True)


def _html_row(row: Mapping[str, Any], best: float | None) -> list[Cell | str]:
    empty = Cell("", float("nan"))
    if "printed" in row:
        mark = MARKS[row["chosen_on"]]
        name = Cell(isolated(row["method"]), below=f"published, {row['source']}{mark and ' ' + mark}")
        values = [Cell(_short(row[key]), float("nan") if row[key] is None else row[key]) for key in ("recall", "ndcg")]
        return [name, *values, empty, empty, empty, empty]
    if row["status"] == "failed":
        return [Cell(isolated(row["name"]), below="failed"), *[Cell("–", float("nan"))] * 2, empty, empty, empty, empty]
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


def _mixed(one: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Ours and the published rows of a test, the highest NDCG first, those without one last."""

    def place(row: Mapping[str, Any]) -> float:
        value = row["ndcg"] if "printed" in row else row["metrics"].get("ndcg", {}).get("mean")
        return -(value or 0.0)

    return sorted([*one["rows"], *one["published"]], key=place)


def _accuracy(row: Mapping[str, Any]) -> str:
    return " / ".join(_short(row["metrics"][name]["mean"]) for name in ("recall", "ndcg"))


def _printed(row: Mapping[str, Any]) -> str:
    return f"{_short(row['recall'])} / {_short(row['ndcg'])}{MARKS[row['chosen_on']]}"


def _exposure(row: Mapping[str, Any]) -> str:
    gap, top, ratio = (row["metrics"][name]["mean"] for name in MEASURED[2:5])
    return f"{_short(gap, 3)}, {_short(top, 2)} ({'–' if ratio is None else f'{ratio:.1f}'})"


def _cost(row: Mapping[str, Any]) -> str:
    return f"{_seconds(row):,.0f}, {_gigabytes(row)}"


def _seconds(row: Mapping[str, Any]) -> float:
    """Processor seconds, which other work on the machine does not change; on a GPU those of the clock."""
    return float(row["seconds"] if row["gpu_memory_mb"] or row["cpu_seconds"] is None else row["cpu_seconds"])


def _gigabytes(row: Mapping[str, Any]) -> str:
    main = f"{row['memory_mb'] / 1024:.1f}" if row["memory_mb"] else "–"
    return main + (f" + {row['gpu_memory_mb'] / 1024:.1f} GPU" if row["gpu_memory_mb"] else "")


def _short(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}".removeprefix("0")


def _plain(text: str) -> str:
    """A name or a reason that cannot break a table or be taken for markup."""
    return visible(text, 200).replace("|", "¦").replace("`", "'").replace("<", "‹")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
