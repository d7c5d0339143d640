"""Rows of an item file by a condition in SQL, as `stock > 0 and category = 'hat'`; DuckDB evaluates it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.reading.columns import NoRowsError, source_label
from evenhand.data.reading.read import read_table
from evenhand.utils.errors import InputError
from evenhand.utils.text import first_line_of


def items_where(source: Any, item: str, where: str) -> pa.Array:
    """The ids of the rows for which the condition is true; `item` is the column of ids."""
    if find_spec("duckdb") is None:
        raise InputError("--where needs DuckDB; install it with: pip install 'evenhand[sql]'.")
    duckdb: Any = import_module("duckdb")
    try:
        table = read_table(source, item)
    except NoRowsError:
        return pa.array([], pa.string())
    ids = table[item].combine_chunks()
    ids = ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids
    row = "row"
    while row in table.column_names:
        row += "_"
    plain = table.set_column(table.column_names.index(item), item, ids.cast(ids.type.value_type))
    try:
        # A condition, not a statement; and it reads no file.
        with duckdb.connect(config={"enable_external_access": "false"}) as database:
            rows = database.from_arrow(plain.append_column(row, pa.array(np.arange(len(plain)))))
            found = rows.filter(where).project(f'"{row}"').fetchnumpy()[row]
    except duckdb.Error as problem:
        raise InputError(
            f'--where "{where}" on {source_label(source)}: {first_line_of(problem).rstrip("!")}.'
        ) from None
    return plain[item].take(pa.array(np.sort(np.asarray(found)))).combine_chunks().drop_null().unique()
