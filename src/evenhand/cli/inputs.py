"""From option texts to the library's values: data and split, encoder, settings, methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evenhand.cli.options import Reading, Sampling, Splitting, Training
from evenhand.data.interactions import Interactions
from evenhand.data.reading.sources import find_files, given_parts, is_parquet, is_uri
from evenhand.data.splits import Split, given_split, split_spread
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import one_line
from evenhand.utils.world import World

if TYPE_CHECKING:
    from evenhand.data.spread_log import SpreadLog
    from evenhand.encoders import Encoder
    from evenhand.training.method import Method
    from evenhand.training.settings import ProtocolName, Settings

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
            data,
            data_dir,
            test_part=splitting.test_part,
            test=TEST_SHARE,
            validation=validation,
            validation_how=splitting.validation,
            seed=seed,
            min_rating=reading.min_rating,
        )
        unbiased = data == "demo" and splitting.test_part != "uniform"
        others = {"uniform exposure": demo_simulation().uniform_test} if unbiased else {}
        return Source(split, files_of(data, data_dir), others)
    parts = {} if is_dataset(data) or how != "random" or splitting.test_part == "random" else given_parts(data)
    if parts:
        return Source(_read_parts(parts, reading, splitting, validation), files_of(data, data_dir), {})
    asked: dict[str, Any] = {
        "test": TEST_SHARE,
        "validation": validation,
        "seed": seed,
        "how": how,
        "validation_how": splitting.validation,
        "test_from": splitting.test_from,
    }
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
    known: dict[str, ProtocolName] = {"honest": "honest", "paper": "paper"}
    if text not in known:
        raise unknown("protocol", text, known)
    return known[text]


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
    """`5,10,20` as numbers."""
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


def make_encoder(training: Training) -> Encoder:
    from evenhand.encoders import ENCODERS

    if training.encoder not in ENCODERS:
        raise unknown("encoder", training.encoder, ENCODERS)
    if training.layers is not None and training.encoder != "lightgcn":
        raise InputError(f"--layers belongs to lightgcn, not to {training.encoder}.")
    return ENCODERS[training.encoder](**_given(dim=training.dim, layers=training.layers))


def make_settings(training: Training, sampling: Sampling, protocol: ProtocolName) -> Settings:
    from evenhand.training.settings import Settings, resolve_device

    resolve_device(training.device)
    if training.seeds < 1:
        raise InputError(f"--seeds takes a number of seeds from 1 on, not {training.seeds}.")
    if training.patience is not None and protocol == "paper":
        raise InputError("--patience belongs to the honest protocol; the paper's trains all epochs.")
    if training.eval_users is not None and protocol == "paper":
        raise InputError("--eval-users belongs to the honest protocol; the paper's evaluates all users.")
    if sampling.sampler_scores is not None and training.encoder != "lightgcn":
        raise InputError(f"--sampler-scores belongs to lightgcn, not to {training.encoder}.")
    given = _given(**(asdict(training) | asdict(sampling)))
    values = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    if training.milestones is not None:
        values["milestones"] = integers(training.milestones, "--milestones")
    return Settings(**values).under(protocol)


def make_methods(
    asked: Iterable[str | Method], sampling: Sampling, encoder: Encoder, settings: Settings
) -> list[Method]:
    """The methods asked for, texts with the values of the options that concern them; item groups are not read yet."""
    from evenhand.methods import parse, parse_value, registered, with_negatives

    asked = list(asked)
    texts = [one for one in asked if isinstance(one, str) and one.strip()]
    if sampling.sampler is not None:
        texts = with_negatives(texts, sampling.sampler)
    given = _given(**asdict(replace(sampling, sampler_scores=None, sampler=None)))
    values = {key: parse_value(v) if isinstance(v, str) else v for key, v in given.items() if key != "groups"}
    methods = [one for one in asked if not isinstance(one, str)]
    methods += [parse(text, encoder, settings, shared=values) for text in texts]
    entries = [registered(text.strip().partition(":")[0]) for text in texts]
    known = {key for entry in entries if entry.is_trained for key in entry.parameters()}
    for key in given:
        if key not in known:
            raise InputError(f"--{key} has no effect on {', '.join(one.label for one in methods)}; leave it out.")
    return methods


def with_groups(methods: Sequence[Method], groups: str | None, items: Interactions, column: str) -> list[Method]:
    """The same methods, those that draw by groups of items with the groups of a file."""
    if groups is None:
        return list(methods)
    from evenhand.models.item_files import read_groups

    values = {"groups": read_groups(groups, items, column)}
    return [one.having(values) if "groups" in one.parameters() else one for one in methods]


def flags_given(training: Training, sampling: Sampling) -> set[str]:
    """Parameters that a person set by a flag, so that a search leaves them alone."""
    given = asdict(training) | asdict(sampling)
    return {name for name, value in given.items() if value is not None and value is not False}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _refuse_contradictions(data: str, reading: Reading, splitting: Splitting) -> None:
    from evenhand.data.split_rules import rule_named

    rule_named(splitting.split)
    rule_named(splitting.validation or splitting.split)
    if splitting.validation is not None and splitting.protocol == "paper":
        raise InputError("--validation belongs to the honest protocol; the paper's has no validation part.")
    if splitting.test is not None:
        without_effect = {
            "--split": splitting.split != "random",
            "--test-part": splitting.test_part,
            "--test-from": splitting.test_from,
        }
        for option, given in without_effect.items():
            if given:
                raise InputError(f"{option} has no effect with a test file; leave one of them out.")
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
