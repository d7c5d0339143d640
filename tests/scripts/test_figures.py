"""Words against files: every figure that was written into README.md or docs/ by hand has a row in results/figures.csv.

A figure is a number outside generated blocks, code, links and versions that has a decimal point or a unit, or stands in
a cell of a table that holds numbers alone. A row is one measurement with all its figures, as printed and as often. Its
kind says what `source` is:

    recorded    where results/ has each figure: `RUN METRIC`, a mean over seeds, or `RUN METRIC - RUN METRIC`; `paper/…`
                is a printed cell of the paper, `published/…` a number of the suite. They are computed again here
    tested      the test that works it out again
    measured    the command that printed it
    by hand     why there is no command: take such a figure as a remark
    given       why it is no measurement: a setting, a limit, a definition, a size

`sed -n 36,86p docs/hostile-input.md | python tests/scripts/test_figures.py` prints what these lines hold, for a row.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evenhand.experiments.results import Results
from evenhand.experiments.suite import known_suite
from evenhand.paper.published import cell

ROOT = Path(__file__).parents[2]
KINDS = ("recorded", "tested", "measured", "by hand", "given")
NUMBER = r"(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)"
UNIT = r"(?:%|(?:[mµ]?s|min|seconds?|minutes?|hours?|[kKMGT]i?B|times|million|a second)\b)"
SIGNED = re.compile(rf"(?<![\w.,^/])[+−-]?{NUMBER}(?!\w|\.\d)")
WITH_UNIT = re.compile(rf"(?:(?:,| to| and|, and)\s{NUMBER})*\s?{UNIT}")
IN_NUMBERS = re.compile(rf"\b(?:to|of)\b|{UNIT}|[^A-Za-z]")
SOFTWARE = "torch|Python|Triton|numba|numpy|pyarrow|Optuna|RecBole|implicit|Apache|Version"
NO_FIGURE = re.compile(
    r"<!-- results:(\S+) -->.*?<!-- /results:\1 -->|^( *)```.*?^\2```|^    [^\n]*|`[^`\n]*`|\]\([^)\n]*\)"
    rf"|\b(?:{SOFTWARE})(?:'s)?[\s-][\d.]+\d|[αβγλτ]\s=?\s?{NUMBER}|\b0 to [1∞]|\b95 %",
    re.DOTALL | re.MULTILINE,
)
"""Blocks, code, links, versions, hyperparameters by their letter, ranges of metrics, and the level of intervals."""


def printed(text: str) -> Iterator[str]:
    """Every figure of a page."""
    text = NO_FIGURE.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)
    for found in SIGNED.finditer(text):
        line = text.rfind("\n", 0, found.start()) + 1
        around = text[max(line, text.rfind("|", line, found.start())) : text.find("|", found.end())]
        alone = text[line] == "|" and not IN_NUMBERS.sub("", around)
        if "." in found[0] or alone or WITH_UNIT.match(text, found.end()):
            yield found[0]


def rows(root: Path = ROOT) -> list[dict[str, str]]:
    with (root / "results" / "figures.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def differences(root: Path) -> list[str]:
    """What stands on a page and in no row, or in a row and on no page."""
    recorded = Counter((row["page"], figure) for row in rows(root) for figure in row["figures"].split())
    pages = {root / "README.md", *(root / "docs").glob("*.md")} - {root / "docs" / "scoreboard.md"}
    found = Counter((p.relative_to(root).as_posix(), one) for p in pages for one in printed(p.read_text("utf-8")))
    return sorted(
        f"{page}: {figure} {what}"
        for what, left in (("has no row", found - recorded), ("is in a row only", recorded - found))
        for page, figure in left.elements()
    )


def value(name: str, results: Results) -> float:
    """What is recorded under the name that a row gives."""
    if " - " in name:
        first, second = name.split(" - ")
        return value(first, results) - value(second, results)
    run, _, metric = name.rpartition(" ")
    where, *rest = run.split("/")
    if where == "paper" and rest[0] == "beta":
        return cell("beta", setting=rest[1], metric=metric).value
    if where == "paper":
        (dataset, encoder, method), (metric, k) = rest, metric.split("@")
        return cell("performance", dataset, encoder, method, k, metric=metric).value
    if where == "published":
        (one,) = (
            one
            for t in known_suite().tests
            if "-".join(t.key) == rest[0]
            for one in t.published
            if one.method == rest[1]
        )
        return float(getattr(one, metric))
    return float(results.runs[run].summary(metric)["mean"])


def wrong(row: dict[str, str], results: Results) -> list[str]:
    """The figures of a row that are not what is recorded, rounded as they are printed."""
    pairs = zip(row["figures"].split(), row["source"].split("; "), strict=True)
    found = [(figure, f"{abs(value(name, results)):.{len(figure.partition('.')[2])}f}") for figure, name in pairs]
    return [f"{row['page']}: {ours} is {true}" for ours, true in found if ours.lstrip("+−-0") != true.lstrip("0")]


def test_every_figure_has_a_row_and_every_row_its_figures() -> None:
    assert differences(ROOT) == [], "mend the page, or its row in results/figures.csv"


def test_recorded_figures_are_those_of_the_results() -> None:
    results, recorded = Results(ROOT / "results"), [row for row in rows() if row["kind"] == "recorded"]
    assert [one for row in recorded for one in wrong(row, results)] == []
    assert wrong(recorded[0] | {"figures": ".06 .04"}, results) == ["docs/claims.md: .04 is 0.03"]


def test_every_row_says_what_it_is_and_where_it_comes_from() -> None:
    for row in rows():
        assert row["kind"] in KINDS
        assert all(row[name] for name in ("what", "source", "figures")), row
        assert row["date"] or row["kind"] != "measured", row
        for path in re.findall(r"(?:benchmarks|checks|scripts|tests)/[\w/]+\.py", row["source"]):
            assert (ROOT / path).is_file(), path


def test_what_is_a_figure() -> None:
    page = """
Took 35, 67 and 86 s on 2 cores, 1,213 MB, `0.5`, torch 2.13, α .75, version 0.7.3, [a](b-1.5), precision −.0033.
<!-- results:x -->
.4321
<!-- /results:x -->

    a command --lr 0.1

| 5 epochs | 1,024 | 7 of 18 | .29 (.16 to .39) | `als` 3 |
"""
    assert list(printed(page)) == ["35", "67", "86", "1,213", "−.0033", "1,024", "7", "18", ".29", ".16", ".39"]


def test_a_changed_digit_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "figures.csv").write_text("page,figures\nREADME.md,1.5 2.5\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("It took 1.5 and 2.6 s.", encoding="utf-8")
    assert differences(tmp_path) == ["README.md: 2.5 is in a row only", "README.md: 2.6 has no row"]


if __name__ == "__main__":
    print(*printed(sys.stdin.read()))
