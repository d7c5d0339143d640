"""Writes docs/reproduction.md, its charts, and the table that opens docs/claims.md, from the result files
of `evenhand reproduce`.

    python scripts/reproduction_page.py [results] [docs/reproduction.md]

Everything on the page is read from the files: run it again whenever they change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from reproduction.costs import costs, on_ml_1m
from reproduction.files import Answers, Results, details
from reproduction.misses import misses
from reproduction.opening import opening
from reproduction.summary import answers, differences, protocols, summary
from reproduction.sweeps import draw_all, sweeps
from reproduction.verdicts import placed, verdicts

from evenhand.paper.reproduce.claims import Claim, claims
from evenhand.paper.reproduce.record import Document, documents
from evenhand.paper.reproduce.table import LEGEND, grids, made_by, title

IMAGES = "images"
CONTEST = ("contest-ml-100k-paper.svg", "contest-ml-1m-paper.svg")
TITLE = "# The paper's tables, run again\n"
MADE = """Made by `scripts/reproduction_page.py` from the files in `results/`, which `evenhand reproduce`
wrote. All claims of the paper, also those that need no training, are in [claims.md](claims.md); other
measurements in [results.md](results.md).
"""


def main(results: str = "results", page: str = "docs/reproduction.md") -> None:
    found = documents(Path(results))
    if not found:
        sys.exit(f"{results} holds no result files of `evenhand reproduce`.")
    images = Path(page).parent / IMAGES
    draw_all(Results(found), images)
    Path(page).write_text(text(Path(results), images), encoding="utf-8")
    print(f"written: {page}")
    claims_page = Path(page).with_name("claims.md")
    if claims_page.is_file():
        said = opened(claims_page.read_text(encoding="utf-8"), Path(results))
        claims_page.write_text(said, encoding="utf-8")
        print(f"written: the table of {claims_page}")


def opened(claims_page: str, folder: Path) -> str:
    """docs/claims.md with the table that opens it as the results have it."""
    results = Results(documents(folder))
    return placed(claims_page, verdicts(results, _answers(results)))


def _answers(results: Results) -> Answers:
    return {name: claims({name: document}) for name, document in results.found.items()}


def text(folder: Path, images: Path) -> str:
    """The whole page; `images` is only asked which of the contest's charts there are."""
    results = Results(documents(folder))
    found = _answers(results)
    parts = [
        TITLE,
        *opening(results, found),
        MADE,
        *summary(results),
        *answers(results, found),
        *protocols(results, found),
        *sweeps(results, found, IMAGES),
        *on_ml_1m(results),
        *_honest(folder, images),
        *misses(results),
        *costs(results),
        *_in_full(results, found),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _honest(folder: Path, images: Path) -> Iterator[str]:
    """Every method with the same budget of tuning, which another script tells."""
    yield "## The honest table\n"
    if find_spec("contest_tables") is None or not (folder / "contest").is_dir():
        yield "Every method tuned with the same budget on validation: not measured yet.\n"
        return
    yield import_module("contest_tables").honest_tables(folder).strip() + "\n"
    for name in CONTEST:
        if (images / name).is_file():
            yield f"![{name.removesuffix('.svg')}: accuracy against bias of every method]({IMAGES}/{name})\n"


def _in_full(results: Results, found: Answers) -> Iterator[str]:
    yield "## All tables in full\n"
    yield LEGEND + "\n"
    for name, document in results.found.items():
        summed_up = f"{document['identity']['part']}: {title(document)}"
        yield details(summed_up, _full(name, document, found[name]))


def _full(name: str, document: Document, said: list[Claim]) -> str:
    what = document["identity"]
    parts = [None, "errors"] if what["part"] == "overall" and 5 in what["ks"] else [None]
    tables = [grid.markdown() for part in parts for grid in grids(document, part)]
    source = f"Split: {what['split']}. File: `{name}.json`."
    return "\n\n".join(filter(None, [source, *tables, differences(said), made_by(document["entries"])]))


if __name__ == "__main__":
    main(*sys.argv[1:])
