"""What a file of items says of them: groups to be fair to, and which rows meet a condition in SQL."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import codes_and_ids
from evenhand.data.reading.columns import Column, NoRowsError, source_label
from evenhand.data.reading.read import read_columns, read_table
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, first_line_of

_SHOWN = 5
"""How many ids a message names."""


def read_groups(source: str, data: Interactions, item: str = "item") -> tuple[int, ...]:
    """The group of every item of `data`, from `FILE:COLUMN`; groups are numbered in the order of their names.

    Every item must have just one group: without one a sampler could not draw it. Items and groups
    that do not occur in `data` are passed over.
    """
    file, colon, column = source.rpartition(":")
    if not colon or not file or not column:
        raise InputError(f"groups are given as FILE:COLUMN, not '{source}'.")
    table = read_columns(file, [Column("item", "id", item), Column("group", "id", column)])
    rows, ids = codes_and_ids(table["item"])
    groups, _ = codes_and_ids(table["group"])
    group_of = np.empty(len(ids), dtype=np.int64)
    group_of[rows] = groups
    torn = np.unique(rows[group_of[rows] != groups])
    if len(torn):
        raise InputError(f"{source_label(file)} gives several groups to {_some(ids.take(pa.array(torn)))}.")

    wanted = data.item_ids
    if ids.type != wanted.type:
        ids, wanted = ids.cast(pa.string()), wanted.cast(pa.string())
    place = pc.index_in(wanted, value_set=ids)
    missing = wanted.filter(place.is_null())
    if len(missing):
        raise InputError(f"{source_label(file)} gives no group to {_some(missing)} of {len(wanted):,}.")
    _, numbered = np.unique(group_of[np.asarray(place)], return_inverse=True)
    return tuple(numbered.tolist())


def _some(ids: pa.Array) -> str:
    """`7 items (a, b, c, d, e…)`."""
    names = ", ".join(str(name) for name in ids[:_SHOWN].to_pylist())
    return f"{count(len(ids), 'item')} ({names}{'…' if len(ids) > _SHOWN else ''})"


def items_where(source: Any, item: str, where: str) -> pa.Array:
    """The ids of the rows for which a condition such as `stock > 0 and category = 'hat'` is true, by DuckDB.

    `item` is the column of ids.
    """
    if find_spec("duckdb") is None:
        raise InputError("--where needs DuckDB; install it with: pip install 'evenhand[sql]'.")
    duckdb: Any = import_module("duckdb")
    try:
        table = read_table(source, item)
    except NoRowsError:
        return pa.array([], pa.string())
    row = "row"
    while row in table.column_names:
        row += "_"
    ids = table[item].cast(table[item].type.value_type)
    plain = table.set_column(table.column_names.index(item), item, ids)
    try:
        # A condition, not a statement; and it reads no file.
        with duckdb.connect(config={"enable_external_access": "false"}) as database:
            rows = database.from_arrow(plain.append_column(row, pa.array(np.arange(len(plain)))))
            found = rows.filter(where).project(f'"{row}"').fetchnumpy()[row]
    except duckdb.Error as problem:
        raise InputError(
            f'--where "{where}" on {source_label(source)}: {first_line_of(problem).rstrip("!")}.'
        ) from None
    return ids.take(pa.array(np.sort(np.asarray(found)))).combine_chunks().drop_null().unique()
