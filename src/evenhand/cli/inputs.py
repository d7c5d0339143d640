"""From option texts to the library's values: data and split, encoder, settings, methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, given_split
from evenhand.errors import InputError, unknown

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


def load_data(
    name: str,
    *,
    test: str | None,
    protocol: str,
    how: str,
    split_seed: int,
    data_dir: str | None,
    test_part: str | None,
    columns: Mapping[str, Any],
) -> tuple[Split, dict[str, Interactions]]:
    """The split that a command works on, and further test parts where the data has them."""
    from evenhand.data.named import demo_simulation, load_split

    if protocol not in ("honest", "paper"):
        raise unknown("protocol", protocol, ("honest", "paper"))
    validation = VALIDATION_SHARE if protocol == "honest" else 0.0
    if test is not None:
        train = read_file_or_name(name, data_dir, columns)
        held_out = read_file(test, columns, allow_small=True)
        return given_split(train, held_out, validation=validation, seed=split_seed), {}
    if is_dataset(name) and (how == "random" or test_part):
        split = load_split(
            name,
            data_dir,
            test_part=test_part,
            test=TEST_SHARE,
            validation=validation,
            seed=split_seed,
            min_rating=columns.get("min_rating"),
        )
        return split, {"uniform exposure": demo_simulation().uniform_test} if name == "demo" else {}
    log = read_file_or_name(name, data_dir, columns)
    split = log.split(test=TEST_SHARE, validation=validation, seed=split_seed, how=how)
    return replace(split, notes=(*log.notes, *split.notes)), {}


def is_dataset(name: str) -> bool:
    """Whether a DATA argument means a dataset: a known name that is no file."""
    from evenhand.data.catalogue import DATASETS

    return name in DATASETS and not Path(name).is_file()


def read_file_or_name(name: str, data_dir: str | None, columns: Mapping[str, Any]) -> Interactions:
    from evenhand.data.catalogue import DATASETS
    from evenhand.data.named import load_dataset

    if is_dataset(name):
        return load_dataset(name, data_dir, min_rating=columns.get("min_rating"))
    if not Path(name).exists() and not Path(name).suffix and "/" not in name:
        raise unknown("dataset", name, DATASETS)
    return read_file(name, columns)


def read_file(name: str, columns: Mapping[str, Any], *, allow_small: bool = False) -> Interactions:
    from evenhand.data.read import read_interactions

    return read_interactions(name, **columns, allow_small=allow_small)


def integers(text: str, what: str) -> tuple[int, ...]:
    """`5,10,20` as numbers."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise InputError(f"{what} takes whole numbers from 1 on, separated by commas, not '{text}'.")
    return numbers


def make_encoder(name: str, dim: int | None, layers: int | None) -> Any:
    from evenhand.encoders import ENCODERS

    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    given = {key: value for key, value in (("dim", dim), ("layers", layers)) if value is not None}
    if "layers" in given and name != "lightgcn":
        raise InputError(f"--layers belongs to lightgcn, not to {name}.")
    return ENCODERS[name](**given)


def make_settings(**given: Any) -> Any:
    from evenhand.training.settings import Settings

    if given.get("milestones") is not None:
        given["milestones"] = integers(given["milestones"], "--milestones")
    return Settings(**{key: value for key, value in given.items() if value is not None})


def sampler_values(
    alpha: str | None, ecdf: str | None, groups: str | None, items: Interactions, **numbers: Any
) -> dict[str, Any]:
    """Sampler parameters given by flag; every method takes those that it knows."""
    from evenhand.methods import parse_value

    values = {key: value for key, value in numbers.items() if value is not None}
    for key, text in (("alpha", alpha), ("ecdf", ecdf)):
        if text is not None:
            values[key] = parse_value(key, text)
    if groups is not None:
        from evenhand.data.groups import read_groups

        values["groups"] = read_groups(groups, items)
    return values
