"""Recommendation lists as a person names them: what the file calls its columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evenhand.cli.options import Reading
from evenhand.utils.errors import InputError


def lists_of(recs: str, user: str | None, item: str | None, reading: Reading) -> Any:
    """The lists as something with columns user and item, whatever the file calls them.

    Columns that are not named are called user and item, or else as in the files of interactions.
    """
    if not user and not item and (reading.user, reading.item) == ("user", "item"):
        return recs
    import pyarrow as pa

    from evenhand.data.reading.read import Column, read_columns
    from evenhand.metrics.lists import COLUMNS

    def read(user: str, item: str) -> pa.Table:
        named = [Column("user", "id", user), Column("item", "id", item), *COLUMNS[2:], Column("name", "id")]
        return read_columns(recs, named)

    try:
        table = read(user or "user", item or "item")
        if not user and not item:
            return recs
    except InputError:
        try:
            table = read(user or reading.user, item or reading.item)
        except InputError as problem:
            raise _of_lists(problem) from None
    plain = (c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns)
    return pa.table(dict(zip(table.column_names, plain, strict=True)))


@contextmanager
def reading_lists() -> Iterator[None]:
    """What goes wrong in here is told with the options that lists have for their columns."""
    try:
        yield
    except InputError as problem:
        raise _of_lists(problem) from None


def _of_lists(problem: InputError) -> InputError:
    message = str(problem)
    for role in ("user", "item"):
        message = message.replace(f"{role}= or --{role}.", f"--rec-{role}.")
    return InputError(message)
