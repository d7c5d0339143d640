"""Options that several commands share, declared once with their help: single ones, and groups of them.

An option is its type with a sentence of help, and perhaps the panel where it is listed; a group is a dataclass that
reaches a command as one value. `as_command` puts all of that in Typer's words.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from evenhand.utils.errors import InputError

OVER_RANKS = ("train", "recommend", "evaluate", "audit", "data describe")
"""Commands that several processes under `torchrun` do together."""


def check_over_ranks(command: str) -> None:
    """Refuse under `torchrun` what only one process can do."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and command not in OVER_RANKS:
        known = ", ".join(OVER_RANKS)
        raise InputError(f"`evenhand {command}` runs in one process; over several runs: {known}.")


Data = Annotated[
    str, typer.Argument(help="A dataset's name (see `evenhand data list`), a file, a folder, s3://…, or - for stdin.")
]
DataDir = Annotated[str | None, "Where to look for a named dataset first.", "Reading"]
Resume = Annotated[bool, "Go on with the interrupted run in --out."]
Json = Annotated[bool, "Print one JSON document on stdout."]
Track = Annotated[str | None, "mlflow: put parameters, metrics and files on record there, as MLFLOW_… says."]
Force = Annotated[bool, "Write into a folder that already holds files."]
Explain = Annotated[bool, "Say first what will be done: engine, memory, ranks, protocol."]
Ks = Annotated[str, typer.Option("--k", "-k", help="List lengths, separated by commas.")]
Hot = Annotated[
    str | None,
    "Which items are hot. honest: the top 15 % by train interactions; paper: the same, counted in train, "
    "validation and test; a share of the items (0.2); or a number of train interactions (50).",
]

ModelFolder = Annotated[str, typer.Argument(help="A model folder that `evenhand train` wrote.")]
ItemsFile = Annotated[str | None, "A file of items, with their titles.", "Titles"]
Title = Annotated[str | None, "Column of titles in --items-file (default title).", "Titles"]
KnownToo = Annotated[
    str | None, typer.Option("--validation", help="Later interactions that count as known, just as train does.")
]
SPLITS = "random, per-user, leave-last-out, time or popularity-shift"

RecUser = Annotated[str | None, "Column of user ids in the lists; else user, or as --user.", "Reading"]
RecItem = Annotated[str | None, "Column of item ids in the lists; else item, or as --item.", "Reading"]


@dataclass(frozen=True)
class Reading:
    """How files of interactions are read."""

    panel = "Reading"
    user: Annotated[str, "Column of user ids."] = "user"
    item: Annotated[str, "Column of item ids."] = "item"
    rating: Annotated[str | None, "Column of ratings."] = None
    timestamp: Annotated[str | None, "Column of timestamps."] = None
    weight: Annotated[str | None, "Column of amounts, summed for each pair; refunds (negative) are taken off."] = None
    min_rating: Annotated[float | None, "Keep rows with at least this rating."] = None
    since: Annotated[str | None, "Keep rows from this date or number on."] = None
    until: Annotated[str | None, "Keep rows before this date or number."] = None
    strict: Annotated[bool, "Refuse rows without an id; else skip them."] = False
    header: Annotated[bool | None, "Whether a text file starts with names."] = None

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

    panel = "Filters"
    only: Annotated[str | None, "A file with a column of items; no others are recommended."] = None
    exclude: Annotated[str | None, "A file with a column of items that are never recommended."] = None
    exclude_pairs: Annotated[str | None, "A file of users and items: what not to recommend to whom."] = None
    filter: Annotated[str | None, "A file of items (csv, parquet…) for --where."] = None
    where: Annotated[
        str | None, "Recommend only items for which this is true, in SQL: \"stock > 0 and category = 'hat'\"."
    ] = None
    known: Annotated[bool, "Let items through that the user already has."] = False


@dataclass(frozen=True)
class Newcomers:
    """Items that were not in the log, and what is known of them."""

    panel = "New items"
    new_items: Annotated[str | None, "A file of items with attributes, known and new ones; the new ones join."] = None
    attributes: Annotated[
        str | None, "Its columns that count (default all): genre,title:text; or :category, :number, :vector."
    ] = None
    exposure: Annotated[float, "How much new items are shown together; 1: as much as known ones on average."] = 1.0

    def __post_init__(self) -> None:
        if self.new_items is None and (self.attributes is not None or self.exposure != 1):
            name = "exposure" if self.attributes is None else "attributes"
            raise InputError(f"--{name} is about --new-items; name the file too.")


@dataclass(frozen=True)
class Splitting:
    """Which interactions are held out, and what may be looked at when."""

    panel = "Split"
    test: Annotated[str | None, "A file of test interactions."] = None
    test_part: Annotated[str | None, "Which test part of a named dataset: random, randomised, uniform…"] = None
    split: Annotated[str, f"How test is drawn: {SPLITS}."] = "random"
    validation: Annotated[
        str | None, "How validation is drawn: the same words (default: as test; random for files)."
    ] = None
    test_from: Annotated[str | None, "Split by time: test is from this date or number on."] = None
    split_seed: Annotated[int, "Seed of the split; training seeds do not change it."] = 0
    protocol: Annotated[str, "honest: stop and choose on validation. paper: fixed epochs, best test epoch."] = "honest"


@dataclass(frozen=True)
class Training:
    """The encoder and how it is trained; None leaves the library's default."""

    panel = "Training"
    encoder: Annotated[str, "mf or lightgcn."] = "mf"
    seeds: Annotated[int, "How many seeds train side by side."] = 3
    epochs: Annotated[int | None, "Epochs at most (default 200)."] = None
    dim: Annotated[int | None, "Length of the vectors (default 64)."] = None
    layers: Annotated[int | None, "Hops of LightGCN (default 2)."] = None
    batch: Annotated[int | None, "Positives a step (default 1024); fewer on small logs."] = None
    lr: Annotated[float | None, "Learning rate of Adam (default: by encoder and loss)."] = None
    l2: Annotated[float | None, "L2 on the rows of a batch (default: settled on validation)."] = None
    weight_decay: Annotated[float | None, "L2 on every row at every step instead, as in the paper."] = None
    milestones: Annotated[str | None, "Epochs after which the rate falls to a tenth: 20,60,80."] = None
    patience: Annotated[
        int | None,
        "Stop after this number of epochs without a better validation NDCG, but not before three times as many "
        "(default 20).",
    ] = None
    eval_users: Annotated[int | None, "Evaluate each epoch on this number of validation users; test takes all."] = None
    updates: Annotated[str | None, "Which rows a step moves: auto, dense or sparse."] = None
    engine: Annotated[str | None, "auto, or torch: the plain one."] = None
    device: Annotated[str, "auto, cpu or cuda."] = "auto"
    deterministic: Annotated[bool, "On a GPU, repeat to the bit."] = False


@dataclass(frozen=True)
class Sampling:
    """Parameters for every method that knows them; None leaves the method's default."""

    panel = "Sampler"
    sampler: Annotated[str | None, "Negatives of this method for all: as METHOD@NAME."] = None
    alpha: Annotated[str | None, "Trust in the score rank: ½ to 1, or auto (default 0.75)."] = None
    beta: Annotated[float | None, "Weight of popularity, from 0 (default 0.01)."] = None
    gamma: Annotated[float | None, "Range of false-positive rates, 0 to 1 (default 0.006)."] = None
    candidates: Annotated[int | None, "Pool size of dns and auc-ns (default 5)."] = None
    probes: Annotated[int | None, "Probes a side that estimate the gain (default 10)."] = None
    ecdf: Annotated[str | None, "Score rank: exact, or from this many shared draws."] = None
    sampler_scores: Annotated[str | None, "Scores a sampler sees in LightGCN: propagated or raw."] = None
    groups: Annotated[str | None, "fairstatic: FILE:COLUMN that groups the items."] = None


@dataclass(frozen=True)
class Work:
    """What `compare`, `train` and `tune` have in common."""

    panel = None
    data: Data
    training: Training
    sampling: Sampling
    splitting: Splitting
    reading: Reading
    force: Force = False
    json: Json = False
    track: Track = None
    data_dir: DataDir = None


def as_command(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer should see it: every field of its dataclass parameters is an option, and --quiet another."""
    parameters = [*_options(command), _parameter("quiet", Annotated[bool, "Show no progress."], False)]

    @functools.wraps(command)
    def call(*, quiet: bool, **given: Any) -> None:
        from evenhand.utils import progress

        progress.quiet(quiet)
        command(**_arguments(command, given))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _options(owner: Callable[..., Any], panel: str | None = None) -> list[inspect.Parameter]:
    """The options of a command or a group; a parameter that is a group stands for those of the group."""
    hints, found = get_type_hints(owner, include_extras=True), []
    for name, parameter in inspect.signature(owner).parameters.items():
        group: Any = hints[name] if is_dataclass(hints[name]) else None
        if group is not None:
            found += _options(group, group.panel)
        else:
            found.append(_parameter(name, hints[name], parameter.default, panel))
    return found


def _arguments(owner: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """What a command or a group is called with, out of the values of all options."""
    hints: dict[str, Any] = get_type_hints(owner)
    return {
        name: hints[name](**_arguments(hints[name], given)) if is_dataclass(hints[name]) else given[name]
        for name in inspect.signature(owner).parameters
    }


def _parameter(name: str, hint: Any, default: Any, panel: str | None = None) -> inspect.Parameter:
    """An option whose type has a sentence beside it is called after its parameter; a truth value is a plain flag."""
    said, *own_panel = getattr(hint, "__metadata__", (None,))
    if isinstance(said, str):
        kind = hint.__origin__
        names = [f"--{name.replace('_', '-')}"] if kind is bool and default is False else []
        hint = Annotated[kind, typer.Option(*names, help=said, rich_help_panel=(*own_panel, panel)[0])]
    # By keyword only, so that options without a default may follow those with one.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
