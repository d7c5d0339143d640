"""From option texts to the library's values: data and split, numbers, and how files for a model are read.

What a model was trained with is remembered, so that nobody has to say it again: columns, how to read, titles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evenhand.cli.options import Newcomers, Reading, Splitting
from evenhand.data.interactions import Interactions
from evenhand.data.reading.sources import find_files, given_parts, is_parquet, is_uri
from evenhand.data.splits import Split, given_split, split_spread
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count, one_line
from evenhand.utils.world import World

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from evenhand.data.spread_log import SpreadLog
    from evenhand.models.base import Model
    from evenhand.training.settings import ProtocolName

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


@dataclass(frozen=True, eq=False)
class Source:
    """The split that a command works on, and where it comes from."""

    split: Split
    """Over several processes a `SpreadSplit`, which has all that training asks of one."""
    files: tuple[Path, ...]
    """What was read; nothing for simulated data."""
    other_tests: dict[str, Interactions]
    """Further test parts, where the data has them."""


def load_source(data: str, data_dir: str | None, reading: Reading, splitting: Splitting) -> Source:
    """Read and split; options that would have no effect are refused."""
    protocol = protocol_name(splitting.protocol)
    _refuse_contradictions(data, reading, splitting)
    validation = VALIDATION_SHARE if protocol == "honest" else 0.0
    how = "time" if splitting.test_from is not None else splitting.split
    seed = splitting.split_seed
    if splitting.test is not None:
        train = read_file_or_name(data, data_dir, reading)
        test = read_file(splitting.test, reading, allow_small=True)
        split = given_split(train, test, validation=validation, validation_how=splitting.validation, seed=seed)
        return Source(split, (*files_of(data, data_dir), *files_of(splitting.test, None)), {})
    if is_dataset(data) and how == "random":
        from evenhand.data.datasets.load import demo_simulation, load_split

        split = load_split(
            data, data_dir, test_part=splitting.test_part, min_rating=reading.min_rating,
            test=TEST_SHARE, validation=validation, validation_how=splitting.validation, seed=seed,
        )  # fmt: skip
        unbiased = data == "demo" and splitting.test_part != "uniform"
        others = {"uniform exposure": demo_simulation().uniform_test} if unbiased else {}
        return Source(split, files_of(data, data_dir), others)
    parts = {} if is_dataset(data) or how != "random" or splitting.test_part == "random" else given_parts(data)
    if parts:
        return Source(_read_parts(parts, reading, splitting, validation), files_of(data, data_dir), {})
    asked: dict[str, Any] = {"test": TEST_SHARE, "validation": validation, "seed": seed, "how": how}
    asked |= {"validation_how": splitting.validation, "test_from": splitting.test_from}
    if World.current().joined:
        over = read_over_ranks(data, data_dir, reading)
        notes, split = over.notes, cast(Split, split_spread(over, **asked))
    else:
        log = read_file_or_name(data, data_dir, reading)
        notes, split = log.notes, log.split(**asked)
    return Source(replace(split, notes=(*notes, *split.notes)), files_of(data, data_dir), {})


def _read_parts(parts: dict[str, Path], reading: Reading, splitting: Splitting, validation: float) -> Split:
    """The split that a folder of train, test and perhaps validation files holds."""
    read = {name: read_file(str(path), reading, allow_small=name != "train") for name, path in parts.items()}
    given = read.get("validation")
    if given is not None and splitting.validation is not None:
        raise InputError(f"--validation has no effect: the folder holds {parts['validation'].name}; leave it out.")
    split = given_split(
        read["train"],
        read["test"],
        validation_part=given,
        validation=0.0 if given is not None else validation,
        validation_how=splitting.validation,
        seed=splitting.split_seed,
    )
    if given is None or validation:
        return split
    # The paper's protocol has no validation part, so what the folder has of it is trained on.
    return replace(
        split, train=split.consumed, validation=None, description=f"{split.description}, validation in train"
    )


def protocol_name(text: str) -> ProtocolName:
    if text not in ("honest", "paper"):
        raise unknown("protocol", text, ("honest", "paper"))
    return cast("ProtocolName", text)


def is_dataset(name: str) -> bool:
    """Whether a DATA argument means a dataset: a known name that is no file."""
    from evenhand.data.datasets.known import DATASETS

    return name in DATASETS and not Path(name).is_file()


def read_file_or_name(name: str, data_dir: str | None, reading: Reading) -> Interactions:
    from evenhand.data.datasets.known import DATASETS
    from evenhand.data.datasets.load import load_dataset

    if is_dataset(name):
        return load_dataset(name, data_dir, min_rating=reading.min_rating)
    if name != "-" and not Path(name).exists() and not Path(name).suffix and "/" not in name:
        raise unknown("dataset", name, DATASETS)
    return read_file(name, reading)


def read_over_ranks(name: str, data_dir: str | None, reading: Reading) -> SpreadLog:
    """The same for all processes that `torchrun` started: a folder of parquet files is read by all of them together."""
    from evenhand.data.reading.spread import read_spread
    from evenhand.data.spread_log import SpreadLog

    world = World.current()
    if world.size > 1 and not is_dataset(name) and is_parquet(name):
        return read_spread(name, world, **asdict(reading))
    with world.together():
        whole = read_file_or_name(name, data_dir, reading)
    if world.size > 1 and not is_dataset(name):
        whole = whole.with_notes("Each process read the whole log; of a folder of parquet files each reads a part.")
    return SpreadLog.of(whole, world)


def read_file(name: str, reading: Reading, *, allow_small: bool = False) -> Interactions:
    from evenhand.data.reading.read import read_interactions

    return read_interactions(name, **asdict(reading), allow_small=allow_small)


def integers(text: str, what: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise InputError(f"{what} takes whole numbers from 1 on, separated by commas, not '{text}'.")
    return numbers


def list_lengths(text: str) -> tuple[int, ...]:
    """The values of --k, ascending and once each."""
    from evenhand.metrics.lists import LONGEST_LIST

    lengths = tuple(sorted(set(integers(text, "--k"))))
    if lengths[-1] > LONGEST_LIST:
        raise InputError(f"--k takes lengths up to {LONGEST_LIST:,}, not {one_line(lengths[-1], 30)}.")
    return lengths


def _refuse_contradictions(data: str, reading: Reading, splitting: Splitting) -> None:
    from evenhand.data.split_rules import rule_named

    rule_named(splitting.split)
    rule_named(splitting.validation or splitting.split)
    if splitting.validation is not None and splitting.protocol == "paper":
        raise InputError("--validation belongs to the honest protocol; the paper's has no validation part.")
    if splitting.test is not None:
        for option, usual in (("split", "random"), ("test_part", None), ("test_from", None)):
            if getattr(splitting, option) not in (usual, ""):
                name = option.replace("_", "-")
                raise InputError(f"--{name} has no effect with a test file; leave one of them out.")
        return
    if splitting.test_from is not None and splitting.split not in ("random", "time"):
        raise InputError(f"--test-from splits by time, --split {splitting.split} does not; leave one of them out.")
    by_rule = "--test-from" if splitting.test_from else f"--split {splitting.split}"
    if splitting.test_part is not None and by_rule != "--split random":
        raise InputError(f"{by_rule} and --test-part exclude each other.")
    if not is_dataset(data):
        if splitting.test_part is not None:
            if not given_parts(data):
                raise InputError("--test-part belongs to datasets known by name; give a test file with --test.")
            if splitting.test_part not in ("given", "random"):
                raise unknown(f"test part of {data}", splitting.test_part, ("given", "random"))
        return
    for option, mine in asdict(reading).items():
        if option != "min_rating" and mine != getattr(Reading(), option):
            name = option.replace("_", "-")
            raise InputError(f"--{name} is for files; {data} is a dataset whose columns are known.")


def files_of(data: str, data_dir: str | None) -> tuple[Path, ...]:
    """The files on this machine behind a DATA argument."""
    from evenhand.data.datasets.load import list_datasets

    if not is_dataset(data):
        if data == "-" or is_uri(data):
            return ()
        return tuple(Path(file.path) for file in find_files(data))
    info = next(info for info in list_datasets(data_dir) if info.name == data)
    if info.found is None:
        return ()
    return tuple(info.found / file for file in info.files) if info.found.is_dir() else (info.found,)


_COLUMNS = ("user", "item", "rating", "timestamp", "weight")
_MADE = ("score", "rank", "seed", "title", "fallback")
"""Columns that lists have of their own."""


def stored_reading(model: Model) -> Reading:
    """How the log was read that the model was trained on; since and until were for that log alone."""
    data = model.info.get("data")
    stored = data.get("reading") if isinstance(data, Mapping) else None
    if not isinstance(stored, Mapping):
        return Reading()
    kinds: dict[str, Any] = dict.fromkeys(_COLUMNS, str)
    kinds |= {"min_rating": int | float, "header": bool, "strict": bool}
    return Reading(**{name: stored[name] for name, kind in kinds.items() if isinstance(stored.get(name), kind)})


def reading_for(source: str, given: Reading, context: typer.Context, model: Model) -> tuple[Reading, list[str]]:
    """How to read a file for a model: as it is said now, else as the training log was, where the file has the columns.

    Also a note on what was remembered and is not in the file.
    """
    from evenhand.data.reading.read import column_names

    said = {field.name for field in fields(Reading) if is_given(context, field.name)}
    stored, there = stored_reading(model), column_names(source)
    values: dict[str, Any] = {}
    absent: list[str] = []
    for name in ("header", "strict", "min_rating", *_COLUMNS):
        value = getattr(given if name in said else stored, name)
        if name in _COLUMNS and name not in said and value is not None and there and value not in there:
            if value != getattr(Reading(), name):
                absent.append(value)
            value = getattr(Reading(), name)
        values[name] = value
    if "min_rating" not in said and there and (values["rating"] or "rating") not in there:
        values["min_rating"] = None
    names = ", ".join(f"'{name}'" for name in absent)
    notes = [f"the training log had {names}, this file has not; read without."] if absent else []
    return replace(given, **values), notes


def column_for(source: str, role: str, given: str | None, model: Model) -> str:
    """The column of users or items in a file of ids: as said now, else as in the training log, else its role."""
    from evenhand.data.reading.read import column_names

    if given is not None:
        return given
    stored = getattr(stored_reading(model), role)
    return stored if stored in column_names(source) else role


def is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def with_own_names(table: pa.Table, model: Model) -> pa.Table:
    """Lists whose users and items are called as in the training log."""
    reading = stored_reading(model)
    own = {role: name for role, name in (("user", reading.user), ("item", reading.item)) if name not in _MADE}
    return table.rename_columns([own.get(name, name) for name in table.column_names])


def titles_for(model: Model, items_file: str | None, title: str | None, item: str | None = None) -> pa.Array | None:
    """The titles in a file, else those in the model."""
    column = "" if items_file is None else column_for(items_file, "item", item, model)
    found = titles_in(items_file, title, column, model.known.item_ids)
    return model.titles if found is None else found


def titles_in(items_file: str | None, title: str | None, item: str, item_ids: pa.Array) -> pa.Array | None:
    """What these items are called, by a file; None without one."""
    from evenhand.models.item_files import read_titles

    if items_file is not None:
        return read_titles(items_file, item_ids, item=item, title=title or "title")
    if title is not None:
        raise InputError("--title names a column of --items-file; give the file too.")
    return None


def with_newcomers(model: Model, newcomers: Newcomers, item: str | None = None) -> tuple[Model, list[str]]:
    """The model with the new items of --new-items, if that was given, and a note on them."""
    source = newcomers.new_items
    if source is None:
        return model, []
    column, exposure = column_for(source, "item", item, model), newcomers.exposure
    found = model.with_new_items(source, item=column, attributes=newcomers.attributes, exposure=exposure)
    if found is model:
        return model, [f"no item of {source} is new to the model."]
    said = found.info["new_items"]
    return found, [f"{count(said['items'], 'new item')} from {', '.join(said['attributes'])}."]
