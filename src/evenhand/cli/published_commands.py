"""Commands that print ours beside what is published: `evenhand benchmark` over a suite, `reproduce` for the paper."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import InputError, RunError, unknown
from evenhand.utils.text import one_line, visible

if TYPE_CHECKING:
    from evenhand.experiments.suite import Suite, Test
    from evenhand.paper.experiment import Experiment


def benchmark(
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


reproduce_app = typer.Typer(
    help="Run the paper's tables again with error bars; a grid that was interrupted goes on.", no_args_is_help=True
)
_ANSWERS = {True: "yes", False: "no", None: "?"}
Out = Annotated[str, typer.Option("--out", help="Folder of the results; what is finished there is not run again.")]
Methods = Annotated[str | None, "Methods and baselines, separated by commas; without it the paper's ten and some more."]
Values = Annotated[str | None, "Published values to run, separated by commas; without it all of them."]


@dataclass(frozen=True)
class Running:
    """What all parts have in common."""

    panel = None
    dataset: Annotated[str, "ml-100k, ml-1m or yahoo-r3."] = "ml-100k"
    encoder: Annotated[str, "mf or lightgcn."] = "mf"
    seeds: Annotated[int, "How many seeds train side by side."] = 10
    protocol: Annotated[str, "paper: best test epoch. honest: stop and choose on validation."] = "paper"
    settings: Annotated[str, "paper: its table. released: its code. tuned: ours, for each method."] = "paper"
    epochs: Annotated[int | None, "Epochs at most, else as in the settings."] = None
    until: Annotated[int | None, "Find the number of epochs: until this number brings no rise on a tenth of train."] = (
        None
    )
    device: Annotated[str, "auto, cpu or cuda."] = "auto"
    data_dir: Annotated[str | None, "Where the data lies; paper_train.csv and paper_test.csv there are the split."] = (
        None
    )
    time_limit: Annotated[float | None, "Stop after these minutes; the same command goes on."] = None


@reproduce_app.command("overall")
def overall(out: Out, running: Running, methods: Methods = None, k: opt.Ks = "5,10,20", json: opt.Json = False) -> None:
    """Accuracy and popularity bias of every method: the three large tables."""
    _methods("overall", out, running, methods, k, json)


@reproduce_app.command("errors")
def errors(out: Out, running: Running, methods: Methods = None, json: opt.Json = False) -> None:
    """MSE, FPR and FNR of every method: another look at the runs of `overall`, which it shares."""
    _methods("errors", out, running, methods, "5,10,20", json)


def _sweep_command(part: str, summary: str) -> None:
    @reproduce_app.command(part, help=f"AUC-NS for every published {summary}.")
    def sweep(out: Out, running: Running, values: Values = None, json: opt.Json = False) -> None:
        from evenhand.paper.experiment import SWEEP_KS, swept_values

        experiment = _experiment(part, running, SWEEP_KS)
        _run(part, experiment, swept_values(part, values), out, running, json)


_sweep_command("alpha", "α: how far the score's rank is trusted")
_sweep_command("beta", "β: how much popularity weighs")
_sweep_command("gamma", "γ: the range of false-positive rates")


@reproduce_app.command("show")
def show_results(
    name: Annotated[str | None, typer.Argument(help="One experiment; without it, which there are.")] = None,
    out: Annotated[str, "Folder of the results."] = "results",
    table: Annotated[str | None, "errors: MSE, FPR and FNR of an overall experiment."] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="Cutoff of experiments that the paper does not have.")] = 10,
    json: opt.Json = False,
) -> None:
    """Print finished results: every row beside the paper's, with what made it. Nothing is run."""
    from evenhand.experiments.results import Results, as_written
    from evenhand.paper.tables import markdown, overview

    results = Results(Path(out))
    names = list(dict.fromkeys(run.experiment for run in results.runs.values()))
    if not names:
        raise InputError(f"{out} holds no results; run `evenhand reproduce overall`.")
    if name is not None and name not in names:
        raise unknown("experiment", name, names)
    with as_written(Path(out)):
        if name is None:
            sizes = Counter(run.experiment for run in results.runs.values())
            lines = [f"{one:40} {sizes[one]:3} runs" for one in names]
            found: object = names
        elif "identity" in next(iter(results.of(name).values())).details:
            found = document = results.document(name)
            lines = markdown(document, table).split("\n")
        else:
            runs = [run for run in results.runs.values() if run.experiment == name]
            found = [{"run": run.id, **run.entry()} for run in runs]
            lines = overview(runs, k).split("\n")
    if json:
        show.print_json(found)
        return
    with show.reader_may_leave():
        print("\n".join(map(visible, lines)))


@reproduce_app.command("claims")
def claims(out: Annotated[str, "Folder of the results."], json: opt.Json = False) -> None:
    """What the results of a folder say of the paper's claims."""
    from evenhand.experiments.results import as_written, documents
    from evenhand.paper.claims import claims as read_claims

    with as_written(Path(out)):
        found = read_claims(documents(Path(out)))
    if not found:
        raise InputError(f"{out} holds no results that could be compared; run `evenhand reproduce overall`.")
    if json:
        show.print_json([asdict(claim) for claim in found])
        return
    with show.reader_may_leave():
        for what in dict.fromkeys(claim.what for claim in found):
            print(one_line(what))
            for claim in found:
                if claim.what == what:
                    print(f"  {_ANSWERS[claim.holds]:3}  {one_line(claim.text)}")


def _methods(table: str, out: str, running: Running, methods: str | None, k: str, json: bool) -> None:
    from evenhand.cli import inputs
    from evenhand.paper.experiment import DEFAULT_METHODS

    experiment = _experiment("overall", running, inputs.list_lengths(k))
    if methods is None and running.settings == "tuned":
        from evenhand.paper.published import TUNED

        asked: Sequence[str] = tuple(TUNED.get((running.dataset, running.encoder), {"auc-ns": None}))
    else:
        asked = DEFAULT_METHODS if methods is None else methods.split(",")
    _run(table, experiment, asked, out, running, json)


def _experiment(part: str, running: Running, ks: tuple[int, ...]) -> Experiment:
    from evenhand.paper.experiment import Experiment
    from evenhand.training.settings import resolve_device

    resolve_device(running.device)
    chosen = {name: value for name, value in vars(running).items() if name in Experiment.__dataclass_fields__}
    return Experiment(part, ks=ks, **chosen)


def _run(table: str, experiment: Experiment, asked: Sequence[str], out: str, running: Running, json: bool) -> None:
    from evenhand.experiments.results import check_writable, writing
    from evenhand.paper.experiment import load_published_split
    from evenhand.paper.reproduce import recipes_for, reproduce
    from evenhand.paper.tables import grids, markdown
    from evenhand.utils.atomic import write_atomically
    from evenhand.utils.progress import tasks

    folder = Path(out)
    total = len(recipes_for(experiment, asked))
    check_writable(folder)
    split = load_published_split(experiment.dataset, running.data_dir, experiment.protocol)
    with tasks(total) as bars:
        outcome = reproduce(
            experiment,
            split,
            asked,
            folder,
            device=running.device,
            minutes=running.time_limit,
            tell=lambda line: print(one_line(line), file=sys.stderr, flush=True),
            bars=bars,
        )
    document = outcome.document
    page = folder / f"{table}{experiment.name.removeprefix(experiment.part)}.md"
    with writing(page):
        write_atomically(page, markdown(document, table).encode())
    if json:
        show.print_json(document)
    else:
        with show.reader_may_leave():
            for grid in grids(document, table):
                print("\n".join(map(visible, grid.markdown().split("\n"))), end="\n\n")
            print(one_line(f"Written to {folder} and {page.name}."))
    if outcome.failed:
        raise RunError(f"these could not be trained: {'; '.join(f'{n}: {p}' for n, p in outcome.failed.items())}")
    if outcome.missing:
        print(f"still to do: {', '.join(outcome.missing)}; the same command goes on.", file=sys.stderr)
