"""`evenhand benchmark`: methods over a suite of data sets and tests, beside what is published."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.errors import InputError, RunError, unknown

if TYPE_CHECKING:
    from evenhand.experiments.suite import Suite, Test


def command(
    reading: opt.Reading,
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets of the suite, or your own logs: files or folders. Default: the whole suite."),
    ] = None,
    tests: Annotated[
        str | None, "iid, shift, time, exposure or given, separated by commas. Default: all that there are."
    ] = None,
    methods: Annotated[str | None, "Methods, separated by commas; lightgcn/dns names the encoder too."] = None,
    seeds: Annotated[int, "Seeds of methods that depend on them."] = 3,
    tune: Annotated[int, "Trials of each method's search on validation."] = 8,
    budget: Annotated[str | None, "Time of the recipe: 90s, 10m, 1h."] = None,
    out: Annotated[str, "Folder for scoreboard.md and scoreboard.html."] = "scoreboard",
    results: Annotated[str | None, "Folder where finished cells are kept. Default: OUT/results."] = None,
    device: Annotated[str, "auto, cpu or cuda."] = "auto",
    force: Annotated[bool, "Run finished cells again."] = False,
    json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Run methods over a suite of tests, and write one table with published numbers beside ours.

    Hyperparameters are chosen on validation drawn as the test is, each method is fitted again to train + validation,
    and test is looked at once. Finished cells are kept: the same command goes on where it was stopped, and other
    methods join what is there.
    """
    from evenhand.cli import show
    from evenhand.experiments.benchmark import METHODS, cells_of, run_benchmark, scoreboard
    from evenhand.experiments.results import Results, check_writable, writing
    from evenhand.experiments.suite import known_suite, tests_named
    from evenhand.methods import seconds_of
    from evenhand.report import Origin, scoreboard_markdown, scoreboard_rows, write_scoreboard_page
    from evenhand.training.settings import resolve_device
    from evenhand.utils.atomic import atomic_file
    from evenhand.utils.progress import is_quiet

    def say(line: str) -> None:
        if not is_quiet():
            print(line, file=sys.stderr, flush=True)

    if seeds < 1:
        raise InputError(f"--seeds takes a number of seeds from 1 on, not {seeds}.")
    texts = list(METHODS if methods is None else methods.split(","))
    if budget is not None:
        seconds = seconds_of(budget)
        if "recipe" not in (text.strip() for text in texts):
            raise InputError("--budget belongs to the recipe, which is not among the methods; leave it out.")
        texts = [f"recipe:budget={seconds:g}" if text.strip() == "recipe" else text for text in texts]
    kind = resolve_device(device).type
    cells_of((), texts, seeds, tune, kind, data_dir)
    page, kept = Path(out), Path(results or f"{out}/results")
    for folder in (page, kept):
        check_writable(folder)
    suite = known_suite()
    asked = _tests(suite, data or [], tests_named(tests), data_dir, reading)
    without = {test.key: why for test in asked if (why := test.missing(data_dir)) is not None}
    there = [test for test in asked if test.key not in without]
    if not there:
        raise InputError(f"there is no data for any of these tests: {next(iter(without.values()))}")
    for key, why in without.items():
        say(f"skipped {key[0]}, {key[1]}: {why}")
    cells = cells_of(there, texts, seeds, tune, kind, data_dir)
    finished, failed = run_benchmark(cells, kept, force=force, on_cell=say)
    board = scoreboard(Results(kept), suite, without, only=None if not data else asked)
    with writing(page):
        page.mkdir(parents=True, exist_ok=True)
        with atomic_file(page / "scoreboard.md") as partial:
            partial.write_text(scoreboard_markdown(board), encoding="utf-8")
        write_scoreboard_page(board, page / "scoreboard.html", Origin.of(sys.argv[1:], {}))
    if json:
        show.print_json(board)
    else:
        heads = ("data", "test", "method", "recall@20", "NDCG@20", "exposure gap", "top tenth", "seconds", "memory")
        show.print_listing(heads, scoreboard_rows(board))
        if failed:
            show.print_notes([f"{len(failed)} cells failed; they are marked, and tried again by the same command."])
        show.print_sentence(f"Written to {page}/: scoreboard.md, scoreboard.html")
    if failed and not finished and len(failed) == len(cells):
        raise RunError(f"every cell failed; the first because {next(iter(failed.values()))}")


def _tests(
    suite: Suite, data: list[str], tests: tuple[str, ...] | None, data_dir: str | None, reading: opt.Reading
) -> list[Test]:
    from evenhand.cli.inputs import is_dataset
    from evenhand.experiments.suite import dataset_tests, own_tests

    if not data:
        found = list(suite.named((), tests))
        if not found:
            raise InputError(f"no data set of the suite has the test {' or '.join(tests or ())}.")
        return found
    found = []
    for name in data:
        if suite.named([name]):
            found += suite.named([name], tests)
        elif Path(name).exists() or "/" in name or Path(name).suffix or name == "-":
            found += own_tests(name, tests, asdict(reading))
        elif is_dataset(name):
            found += dataset_tests(name, tests, data_dir)
        else:
            raise unknown("data set", name, {one.dataset or one.folder or one.set for one in suite.tests})
    keys = [test.key for test in found]
    if len(set(keys)) != len(keys):
        raise InputError("two of these have the same name; rename one of the files.")
    if not found:
        raise InputError(f"{' and '.join(data)} have no test {' or '.join(tests or ())}.")
    return found
