"""What there is to choose from: `evenhand data` (list, describe, split and fetch), `methods` and `metrics`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenhand.cli import options as opt
from evenhand.cli import show
from evenhand.utils.errors import unknown

if TYPE_CHECKING:
    from evenhand.methods import Entry

data_app = typer.Typer(help="List, describe, split and fetch datasets.", no_args_is_help=True)
_ENCODERS = {
    "mf": ("inner products of learned vectors", "Koren et al. 2009"),
    "lightgcn": ("vectors averaged over the user-item graph", "He et al. 2020"),
}


@data_app.callback()
def _root(context: typer.Context) -> None:
    opt.check_over_ranks(f"data {context.invoked_subcommand}")


@data_app.command("list")
def list_(data_dir: opt.DataDir = None, json: opt.Json = False) -> None:
    """List the datasets known by name, and where each was found."""
    from evenhand.data.datasets.load import list_datasets

    found = list_datasets(data_dir)
    if json:
        keys = ("name", "title", "found", "how_to_get")
        values = ((one.name, one.title, str(one.found) if one.found else None, one.how_to_get) for one in found)
        show.print_json({"datasets": [dict(zip(keys, each, strict=True)) for each in values]})
        return
    places = ("built in" if one.name == "demo" else str(one.found or one.how_to_get) for one in found)
    rows = [(one.name, one.title, place) for one, place in zip(found, places, strict=True)]
    show.print_listing(("name", "what it is", "where"), rows)


@data_app.command("describe")
def describe(data: opt.Data, reading: opt.Reading, json: opt.Json = False, data_dir: opt.DataDir = None) -> None:
    """Describe a dataset or a file: size, density, and how skewed its popularity is."""
    from evenhand.cli import inputs
    from evenhand.data.describe import describe as summarise

    found = summarise(inputs.read_over_ranks(data, data_dir, reading))
    if json:
        show.print_json(asdict(found))
        return
    screen = show.console()
    for label, value in (
        ("users", f"{found.users:,}"),
        ("items", f"{found.items:,}"),
        ("interactions", f"{found.pairs:,}"),
        ("density", f"{100 * found.density:.3g} %"),
        ("items per user", f"{found.activity_min:,} to {found.activity_max:,}, median {found.activity_median:g}"),
        ("popularity", f"Gini {found.popularity_gini:.3f}; the hottest 15 % hold {100 * found.hot_share:.1f} %"),
    ):
        screen.print(f"{label:15} {value}", highlight=False)
    show.print_notes(found.notes)


@data_app.command("split")
def split(
    data: opt.Data,
    out: Annotated[str, "Folder for train, validation and test."],
    reading: opt.Reading,
    how: Annotated[str, typer.Option("--how", "--split", help=f"How test is drawn: {opt.SPLITS}.")] = "random",
    test: Annotated[float, typer.Option("--test-share", help="Share of the pairs in test.")] = 0.2,
    validation: Annotated[
        float, typer.Option("--validation-share", help="Share in validation; 0 writes no such file.")
    ] = 0.1,
    validation_how: Annotated[
        str | None, typer.Option("--validation", help="How validation is drawn; else as test is.")
    ] = None,
    test_from: Annotated[str | None, "Split by time: test is from this date or number on."] = None,
    gap: Annotated[str, "Split by time: leave out so much before each part (7d, 12h)."] = "0",
    split_seed: Annotated[int, "Seed of the split."] = 0,
    form: Annotated[str, typer.Option("--to", help="parquet, csv or tsv.")] = "csv",
    force: opt.Force = False,
    json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Divide a log into files of train, validation and test, to evaluate any recommender on."""
    from evenhand.cli import inputs
    from evenhand.data.write import ENDINGS, write_table
    from evenhand.utils.atomic import atomic_folder, check_folder

    if f".{form}" not in ENDINGS:
        raise unknown("form of a table", form, [ending.lstrip(".") for ending in ENDINGS])
    check_folder(Path(out), force)
    log = inputs.read_file_or_name(data, data_dir, reading)
    if test_from is not None and how == "random":
        how = "time"
    made = log.split(
        test=test,
        validation=validation,
        seed=split_seed,
        how=how,
        validation_how=validation_how,
        test_from=test_from,
        gap=gap if gap != "0" else 0.0,
    )
    parts = {name: part for name, part in made.parts().items() if len(part) or name != "validation"}
    files = [f"{name}.{form}" for name in parts]
    with atomic_folder(out, files, force=force) as place:
        for file, part in zip(files, parts.values(), strict=True):
            write_table(part.to_table(), place / file)
    sizes = {name: len(part) for name, part in parts.items()}
    if json:
        show.print_json({"folder": out, "split": made.description, "pairs": sizes})
        return
    show.print_notes([f"split {made.description}", *log.notes, *made.notes])
    counts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    show.print_sentence(f"Written to {out}/: {', '.join(files)} (pairs: {counts}).")


@data_app.command("fetch")
def fetch(name: Annotated[str, typer.Argument(help="A dataset's name.")], json: opt.Json = False) -> None:
    """Download a dataset into the cache folder, where its terms allow that."""
    from evenhand.data.datasets.load import fetch_dataset
    from evenhand.utils.progress import download

    with download(name) as progress:
        folder = fetch_dataset(name, progress=progress)
    if json:
        show.print_json({"name": name, "folder": str(folder)})
    else:
        show.print_sentence(f"{name} is in {folder}.")


def methods(json: opt.Json = False) -> None:
    """List methods, encoders and baselines, with their parameters (default and sensible range) and sources."""
    from evenhand.encoders import ENCODERS
    from evenhand.methods import BASELINES, METHODS, Entry
    from evenhand.training.settings import Settings

    encoders = [Entry(name, (kind,), *_ENCODERS.get(name, ("", "–"))) for name, kind in ENCODERS.items()]
    settings = [Entry("training", (Settings,), "how every method is trained", "–")]
    found = {"methods": METHODS.values(), "rivals": BASELINES.values(), "encoders": encoders, "settings": settings}
    if json:
        show.print_json({kind: [_document(entry) for entry in entries] for kind, entries in found.items()})
        return
    for kind, entries in found.items():
        kind = "baselines" if kind == "rivals" else kind  # its name in JSON documents from before
        headings = (kind.removesuffix("s"), "what it does", "parameters", "source")
        show.print_listing(headings, [_cells(entry) for entry in entries])
    show.print_sentence(
        "\nParameters: name=default (the range that `evenhand tune` searches; :log by orders of magnitude). "
        "METHOD@OTHER is the loss of one method with the negatives of another."
    )


def _document(entry: Entry) -> dict[str, Any]:
    from evenhand.experiments.search_space import declared

    ranges, fixed = declared(*entry.parts)
    return {
        "name": entry.name,
        "summary": entry.summary,
        "parameters": entry.parameters(),
        "ranges": {name: span.to_json() for name, span in ranges.items()},
        "fixed": fixed,
        "source": entry.source,
    }


def _cells(entry: Entry) -> tuple[str, ...]:
    from evenhand.experiments.search_space import declared

    ranges, _ = declared(*entry.parts)
    texts = [
        f"{name}={default}" + (f" ({ranges[name]})" if name in ranges else "")
        for name, default in entry.parameters().items()
    ]
    return entry.name, entry.summary, ", ".join(texts) or "–", entry.source


def metrics(json: opt.Json = False) -> None:
    """List every metric: meaning, formula, which way is better, range and average."""
    from evenhand.metrics.catalogue import METRICS

    if json:
        show.print_json({"metrics": [metric.to_json() for metric in METRICS.values()]})
        return

    def end(value: float) -> str:
        return "∞" if math.isinf(value) else f"{value:g}"

    rows = [
        (
            f"{one.name} {one.arrow}".rstrip(),
            one.group,
            one.meaning,
            one.formula,
            one.average,
            f"{end(one.low)}…{end(one.high)}",
        )
        for one in METRICS.values()
    ]
    show.print_listing(("metric", "group", "what it says", "formula", "average", "range"), rows)
    show.print_sentence(
        "\n↑ higher is better, ↓ lower. Averages: users (mean over all), served (over users with a list), paper (over "
        "all, an empty denominator as 0), defined (over users with a denominator), pooled (of sums over all users), "
        "items (of every item's slots). docs/metrics.md defines the symbols."
    )
