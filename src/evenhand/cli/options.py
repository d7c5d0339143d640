"""Options that several commands share, declared once with their help: single ones, and groups of them.

A group is a dataclass that reaches a command as one value. Typer reads a command's signature and knows nothing of such
groups, so `flattened` shows it a parameter whose type is a dataclass as that class's fields.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from evenhand.utils.errors import InputError


def _option(help_text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


OVER_RANKS = ("train", "recommend", "evaluate", "audit", "data describe")
"""Commands that several processes under `torchrun` do together."""


def check_over_ranks(command: str) -> None:
    """Refuse under `torchrun` what only one process can do."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and command not in OVER_RANKS:
        known = ", ".join(OVER_RANKS)
        raise InputError(f"`evenhand {command}` runs in one process; over several runs: {known}.")


Data = Annotated[
    str,
    typer.Argument(help="A dataset's name (see `evenhand data list`), a file, a folder, s3://…, or - for stdin."),
]
DataDir = Annotated[str | None, _option("Where to look for a named dataset first.", "Reading")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the interrupted run in --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Track = Annotated[
    str | None, typer.Option(help="mlflow: put parameters, metrics and files on record there, as MLFLOW_… says.")
]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that already holds files.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say first what will be done: engine, memory, ranks, protocol.")
]
Ks = Annotated[str, typer.Option("--k", "-k", help="List lengths, separated by commas.")]
Hot = Annotated[
    str | None,
    typer.Option(
        help="Which items are hot. honest: the top 15 % by train interactions; paper: the same, counted in train, "
        "validation and test; a share of the items (0.2); or a number of train interactions (50)."
    ),
]

ModelFolder = Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")]
ItemsFile = Annotated[str | None, _option("A file of items, with their titles.", "Titles")]
Title = Annotated[str | None, _option("Column of titles in --items-file (default title).", "Titles")]
KnownToo = Annotated[
    str | None, typer.Option("--validation", help="Later interactions that count as known, just as train does.")
]
SPLITS = "random, per-user, leave-last-out, time or popularity-shift"

RecUser = Annotated[str | None, _option("Column of user ids in the lists; else user, or as --user.", "Reading")]
RecItem = Annotated[str | None, _option("Column of item ids in the lists; else item, or as --item.", "Reading")]


@dataclass(frozen=True)
class Reading:
    """How files of interactions are read."""

    user: Annotated[str, _option("Column of user ids.", "Reading")] = "user"
    item: Annotated[str, _option("Column of item ids.", "Reading")] = "item"
    rating: Annotated[str | None, _option("Column of ratings.", "Reading")] = None
    timestamp: Annotated[str | None, _option("Column of timestamps.", "Reading")] = None
    weight: Annotated[
        str | None, _option("Column of amounts, summed for each pair; refunds (negative) are taken off.", "Reading")
    ] = None
    min_rating: Annotated[float | None, _option("Keep rows with at least this rating.", "Reading")] = None
    since: Annotated[str | None, _option("Keep rows from this date or number on.", "Reading")] = None
    until: Annotated[str | None, _option("Keep rows before this date or number.", "Reading")] = None
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse rows without an id; else skip them.", rich_help_panel="Reading")
    ] = False
    header: Annotated[
        bool | None, _option("Whether a text file starts with names.", "Reading", "--header/--no-header")
    ] = None

    def __post_init__(self) -> None:
        two_columns(self.user, self.item)


@dataclass(frozen=True)
class ListReading(Reading):
    """How files of interactions and lists of ids are read; two lists may call their columns alike."""

    def __post_init__(self) -> None:
        pass


def two_columns(user: str, item: str) -> None:
    """A pair out of one column would be each user with themselves."""
    if user == item:
        raise InputError(f"--user and --item both name the column '{user}'; name one column for each.")


@dataclass(frozen=True)
class Filtering:
    """What may be recommended, to anyone or to one user."""

    only: Annotated[str | None, _option("A file with a column of items; no others are recommended.", "Filters")] = None
    exclude: Annotated[str | None, _option("A file with a column of items that are never recommended.", "Filters")] = (
        None
    )
    exclude_pairs: Annotated[
        str | None, _option("A file of users and items: what not to recommend to whom.", "Filters")
    ] = None
    filter: Annotated[str | None, _option("A file of items (csv, parquet…) for --where.", "Filters")] = None
    where: Annotated[
        str | None,
        _option("Recommend only items for which this is true, in SQL: \"stock > 0 and category = 'hat'\".", "Filters"),
    ] = None
    known: Annotated[
        bool,
        typer.Option("--known", help="Let items through that the user already has.", rich_help_panel="Filters"),
    ] = False


@dataclass(frozen=True)
class Newcomers:
    """Items that were not in the log, and what is known of them."""

    new_items: Annotated[
        str | None, _option("A file of items with attributes, known and new ones; the new ones join.", "New items")
    ] = None
    attributes: Annotated[
        str | None,
        _option("Its columns that count (default all): genre,title:text; or :category, :number, :vector.", "New items"),
    ] = None
    exposure: Annotated[
        float, _option("How much new items are shown together; 1: as much as known ones on average.", "New items")
    ] = 1.0

    def __post_init__(self) -> None:
        if self.new_items is None and (self.attributes is not None or self.exposure != 1):
            name = "exposure" if self.attributes is None else "attributes"
            raise InputError(f"--{name} is about --new-items; name the file too.")


@dataclass(frozen=True)
class Splitting:
    """Which interactions are held out, and what may be looked at when."""

    test: Annotated[str | None, _option("A file of test interactions.", "Split")] = None
    test_part: Annotated[
        str | None, _option("Which test part of a named dataset: random, randomised, uniform…", "Split")
    ] = None
    split: Annotated[str, _option(f"How test is drawn: {SPLITS}.", "Split")] = "random"
    validation: Annotated[
        str | None, _option("How validation is drawn: the same words (default: as test; random for files).", "Split")
    ] = None
    test_from: Annotated[str | None, _option("Split by time: test is from this date or number on.", "Split")] = None
    split_seed: Annotated[int, _option("Seed of the split; training seeds do not change it.", "Split")] = 0
    protocol: Annotated[
        str, _option("honest: stop and choose on validation. paper: fixed epochs, best test epoch.", "Split")
    ] = "honest"


@dataclass(frozen=True)
class Training:
    """The encoder and how it is trained; None leaves the library's default."""

    encoder: Annotated[str, _option("mf or lightgcn.", "Training")] = "mf"
    seeds: Annotated[int, _option("How many seeds train side by side.", "Training")] = 3
    epochs: Annotated[int | None, _option("Epochs at most (default 200).", "Training")] = None
    dim: Annotated[int | None, _option("Length of the vectors (default 64).", "Training")] = None
    layers: Annotated[int | None, _option("Hops of LightGCN (default 2).", "Training")] = None
    batch: Annotated[int | None, _option("Positives a step (default 1024).", "Training")] = None
    lr: Annotated[float | None, _option("Learning rate of Adam (default: by encoder and loss).", "Training")] = None
    l2: Annotated[float | None, _option("L2 on the rows of a batch (default: settled on validation).", "Training")] = (
        None
    )
    weight_decay: Annotated[
        float | None, _option("L2 on every row at every step instead, as in the paper.", "Training")
    ] = None
    milestones: Annotated[
        str | None, _option("Epochs after which the rate falls to a tenth: 20,60,80.", "Training")
    ] = None
    patience: Annotated[
        int | None,
        _option(
            "Stop after this number of epochs without a better validation NDCG, but not before three times as many "
            "(default 20).",
            "Training",
        ),
    ] = None
    eval_users: Annotated[
        int | None, _option("Evaluate each epoch on this number of validation users; test takes all.", "Training")
    ] = None
    updates: Annotated[str | None, _option("Which rows a step moves: auto, dense or sparse.", "Training")] = None
    engine: Annotated[str | None, _option("auto, or torch: the plain one.", "Training")] = None
    device: Annotated[str, _option("auto, cpu or cuda.", "Training")] = "auto"
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="On a GPU, repeat to the bit.", rich_help_panel="Training")
    ] = False


@dataclass(frozen=True)
class Sampling:
    """Parameters for every method that knows them; None leaves the method's default."""

    sampler: Annotated[str | None, _option("Negatives of this method for all: as METHOD@NAME.", "Sampler")] = None
    alpha: Annotated[str | None, _option("Trust in the score rank: ½ to 1, or auto (default 0.75).", "Sampler")] = None
    beta: Annotated[float | None, _option("Weight of popularity, from 0 (default 0.01).", "Sampler")] = None
    gamma: Annotated[float | None, _option("Range of false-positive rates, 0 to 1 (default 0.006).", "Sampler")] = None
    candidates: Annotated[int | None, _option("Pool size of dns and auc-ns (default 5).", "Sampler")] = None
    probes: Annotated[int | None, _option("Probes a side that estimate the gain (default 10).", "Sampler")] = None
    ecdf: Annotated[str | None, _option("Score rank: exact, or from this many shared draws.", "Sampler")] = None
    sampler_scores: Annotated[
        str | None, _option("Scores a sampler sees in LightGCN: propagated or raw.", "Sampler")
    ] = None
    groups: Annotated[str | None, _option("fairstatic: FILE:COLUMN that groups the items.", "Sampler")] = None


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer should see it: every field of its dataclass parameters is an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _fields_as_parameters(groups[name])
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def quietable(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option --quiet."""
    inner = flattened(command)
    hint = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]

    @functools.wraps(inner)
    def call(*, quiet: bool, **given: Any) -> None:
        from evenhand.utils import progress

        progress.quiet(quiet)
        inner(**given)

    parameters = [*inspect.signature(inner).parameters.values(), _parameter("quiet", hint, False)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _fields_as_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        _parameter(
            field.name,
            hints[field.name],
            inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group)
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    # By keyword only, so that options without a default may follow those with one.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
