"""`evenhand data`: which datasets there are, what is in one, and how to get it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.cli.flatten import flattened

app = typer.Typer(help="List, describe and fetch datasets.", no_args_is_help=True)


@app.command("list")
def list_(data_dir: opt.DataDir = None, json: opt.Json = False) -> None:
    """List the datasets known by name, and where each was found."""
    from evenhand.cli import show
    from evenhand.data.named import list_datasets

    found = list_datasets(data_dir)
    if json:
        show.print_json(
            {
                "datasets": [
                    {
                        "name": one.name,
                        "title": one.title,
                        "found": str(one.found) if one.found else None,
                        "how_to_get": one.how_to_get,
                    }
                    for one in found
                ]
            }
        )
        return
    places = ["built in" if one.name == "demo" else str(one.found or one.how_to_get) for one in found]
    show.print_listing(
        ("name", "what it is", "where"),
        [(one.name, one.title, place) for one, place in zip(found, places, strict=True)],
    )


@app.command("describe")
@flattened
def describe(
    data: opt.Data,
    reading: opt.Reading,
    json: opt.Json = False,
    data_dir: opt.DataDir = None,
) -> None:
    """Describe a dataset or a file: size, density, and how skewed its popularity is."""
    from evenhand.cli import inputs, show
    from evenhand.data.describe import describe as summarise

    found = summarise(inputs.read_file_or_name(data, data_dir, reading))
    if json:
        show.print_json(asdict(found))
        return
    screen = show.console()
    for label, value in (
        ("users", f"{found.users:,}"),
        ("items", f"{found.items:,}"),
        ("interactions", f"{found.pairs:,}"),
        ("density", f"{100 * found.density:.3g} %"),
        (
            "items per user",
            f"{found.activity_min:,} to {found.activity_max:,}, median {found.activity_median:g}",
        ),
        (
            "popularity",
            f"Gini {found.popularity_gini:.3f}; the hottest 15 % hold {100 * found.hot_share:.1f} %",
        ),
    ):
        screen.print(f"{label:15} {value}", highlight=False)
    show.print_notes(screen, found.notes)


@app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(help="A dataset's name.")],
    json: opt.Json = False,
) -> None:
    """Download a dataset into the cache folder, where its terms allow that."""
    from evenhand.cli import show
    from evenhand.data.named import fetch_dataset
    from evenhand.training.progress import download_bar

    with download_bar(name) as progress:
        folder = fetch_dataset(name, progress=progress)
    if json:
        show.print_json({"name": name, "folder": str(folder)})
    else:
        show.print_sentence(show.console(), f"{name} is in {folder}.")
