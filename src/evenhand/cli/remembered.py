"""The options that a model was trained with, so that nobody has to say it again: columns, how to read, titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import typer

from evenhand.cli.options import Newcomers, Reading
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.models.base import Model

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
    from evenhand.models.item_files import read_titles

    if items_file is None:
        if title is not None:
            raise InputError("--title names a column of --items-file; give the file too.")
        return model.titles
    column = column_for(items_file, "item", item, model)
    return read_titles(items_file, model.known.item_ids, item=column, title=title or "title")


def with_newcomers(model: Model, newcomers: Newcomers, item: str | None = None) -> tuple[Model, list[str]]:
    """The model with the new items of --new-items, if that was given, and a note on them."""
    source = newcomers.new_items
    if source is None:
        return model, []
    found = model.with_new_items(
        source,
        item=column_for(source, "item", item, model),
        attributes=newcomers.attributes,
        exposure=newcomers.exposure,
    )
    if found is model:
        return model, [f"no item of {source} is new to the model."]
    said = found.info["new_items"]
    return found, [f"{count(said['items'], 'new item')} from {', '.join(said['attributes'])}."]
