"""What else is known of users and items: columns of a file to slice by, and titles to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.audit.divisions import Division, by_values
from evenhand.audit.reference import Reference
from evenhand.data.reading.columns import Column, source_label
from evenhand.utils.errors import InputError
from evenhand.utils.text import count


@dataclass(frozen=True, eq=False)
class Attributes:
    """The divisions that were asked for, and the items' titles."""

    users: tuple[Division, ...] = ()
    items: tuple[Division, ...] = ()
    titles: pa.Array | None = None
    """string [n_items], null where there is none."""
    notes: tuple[str, ...] = ()


def read_attributes(
    reference: Reference,
    users_file: Any,
    items_file: Any,
    title: str | None,
    slice_by: tuple[str, ...],
    reading: Mapping[str, Any],
) -> Attributes:
    """Every column to slice by is looked for in both files; where both have it, both are sliced."""
    if slice_by and users_file is None and items_file is None:
        raise InputError("--slice-by needs the file that holds the column: --users-file or --items-file.")
    if title is not None and items_file is None:
        raise InputError("--title needs the file that holds the titles: --items-file.")
    _refuse_unused(users_file, bool(slice_by), "--slice-by")
    _refuse_unused(items_file, bool(slice_by or title), "--slice-by or --title")
    wanted = tuple(dict.fromkeys(slice_by))
    notes: list[str] = []
    of_users = _texts(users_file, "user", wanted, reference, reading, notes)
    titles = () if title is None else (title,)
    of_items = _texts(items_file, "item", (*wanted, *titles), reference, reading, notes)
    for column in (*wanted, *titles):
        if column not in of_items and (column in titles or column not in of_users):
            files = (items_file,) if column in titles else (users_file, items_file)
            given = [source for source in files if source is not None]
            raise _no_column(column, "title" if column in titles else "slice_by", given)
    both = {column for column in wanted if column in of_users and column in of_items}
    return Attributes(
        tuple(by_values(_called(c, "user", both), of_users[c].to_pylist()) for c in wanted if c in of_users),
        tuple(by_values(_called(c, "item", both), of_items[c].to_pylist()) for c in wanted if c in of_items),
        None if title is None else of_items[title],
        tuple(notes),
    )


def _refuse_unused(source: Any, used: bool, option: str) -> None:
    if source is not None and not used:
        raise InputError(f"{source_label(source)} is read for nothing; name a column of it with {option}.")


def _no_column(column: str, role: str, sources: list[Any]) -> InputError:
    """What the files have instead; of two files, the one with a column of a similar name."""
    from evenhand.data.reading.read import read_columns

    problems = []
    for source in sources:
        try:
            read_columns(source, [Column(role, "text", column, option=f"{role}= or --{role.replace('_', '-')}")])
        except InputError as problem:
            problems.append(problem)
    return next((one for one in problems if "did you mean" in str(one)), problems[0])


def _called(column: str, role: str, both: set[str]) -> str:
    return f"{role} {column}" if column in both else column


def _texts(
    source: Any,
    role: str,
    columns: Iterable[str],
    reference: Reference,
    reading: Mapping[str, Any],
    notes: list[str],
) -> dict[str, pa.Array]:
    """Of those columns that the file has: the text for every user or item of the vocabulary."""
    columns = list(dict.fromkeys(columns))
    if source is None or not columns:
        return {}
    table = _table(source, role, reading.get(role) or role, columns)
    ids = table["id"].combine_chunks()
    ids = ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids
    # Of repeated ids the first counts.
    codes, first = np.unique(np.asarray(ids.indices), return_index=True)
    known = ids.dictionary.take(pa.array(codes))
    wanted = reference.known.user_ids if role == "user" else reference.known.item_ids
    if known.type != wanted.type:
        known, wanted = known.cast(pa.string()), wanted.cast(pa.string())
    place = pc.index_in(wanted, value_set=known)
    if place.null_count == len(wanted):
        raise InputError(
            f"no {role} of {source_label(source)} is in train ('{known[0]}' is not, '{wanted[0]}' would be)."
        )
    found = {}
    for column in table.column_names[1:]:
        values = pa.chunked_array(table[column].take(pa.array(first)).chunks, pa.string()).combine_chunks()
        found[column] = values.take(place)
        if found[column].null_count:
            absent = count(found[column].null_count, role)
            notes.append(f"The file of {role}s has no {column} for {absent} of the audit.")  # without its folder
    return found


def _table(source: Any, role: str, id_column: str, columns: list[str]) -> pa.Table:
    """The ids, called as in train or just user or item, and those of the columns that there are."""
    from evenhand.data.reading.read import read_columns

    def wanted(name: str) -> list[Column]:
        ids = Column("id", "id", name, option=f"'{name}' in its header")
        return [ids, *(Column(column, "text") for column in columns)]

    try:
        return read_columns(source, wanted(role))
    except InputError:
        return read_columns(source, wanted(id_column))
