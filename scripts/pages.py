"""Write every number of the docs that rests on results/: blocks between marks, and charts.

    python scripts/pages.py [--results results] [--root .]

What stands between `<!-- results:NAME -->` and `<!-- /results:NAME -->` is replaced, the rest is written by hand;
docs/scoreboard.md is written whole.
A test compares the pages with the results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import bias_block
import charts
import contest_blocks
import contest_field
import reproduction_blocks
import scoreboard_block
from page_text import replaced
from reproduction_tables import Experiments

from evenhand.experiments.benchmark import scoreboard
from evenhand.experiments.results import Results
from evenhand.experiments.suite import known_suite
from evenhand.paper.experiment import SWEEPS
from evenhand.report import scoreboard_markdown


def pages(results: Path, root: Path) -> dict[str, str]:
    """Every page with its blocks as the results have them."""
    found: dict[str, str] = {}
    made_of = (reproduction_blocks.blocks(Experiments.read(results)), contest_blocks.blocks(results))
    for blocks in (*made_of, bias_block.blocks(results), scoreboard_block.blocks(results)):
        for path, made in blocks.items():
            text = found.get(path) or (root / path).read_text(encoding="utf-8")
            for name, block in made.items():
                text = replaced(text, name, block)
            found[path] = text
    return found | {"docs/scoreboard.md": scoreboard_markdown(scoreboard(Results(results), known_suite()))}


def drawings(results: Path) -> dict[str, str]:
    """Every chart by the name of its file."""
    experiments, fields = Experiments.read(results), contest_field.fields(results)
    sweeps = [one for part in SWEEPS if (one := experiments.sweep(part)) is not None]
    found = {charts.picture(one.name): charts.draw_sweep(one.document) for one in sweeps}
    found |= {f"contest-{name}.svg": charts.draw(fields[name]) for name in contest_blocks.PAPER}
    small = [field for name, field in fields.items() if name.startswith("ml-100k") and field.runs]
    return found | {"contest-ml-100k-splits.svg": charts.draw_many(small)}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--results", type=Path, default=Path("results"))
    options.add_argument("--root", type=Path, default=Path())
    asked = options.parse_args()
    for path, text in pages(asked.results, asked.root).items():
        (asked.root / path).write_text(text, encoding="utf-8")
    for name, drawing in drawings(asked.results).items():
        (asked.root / "docs" / "images" / name).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
