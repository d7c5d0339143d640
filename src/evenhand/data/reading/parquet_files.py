"""Parquet files: whole, or as pieces of some of their row groups, for processes that share out a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from evenhand.data.reading.columns import Column, Loaded, first_line_of, is_string, pick, typed
from evenhand.data.reading.files import File
from evenhand.utils.errors import InputError

_ROWS, _BUFFER = 2**17, 2**20
"""Rows that are decoded at once, and bytes of a column that are read at once."""


@contextmanager
def opened_parquet(file: File) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; what is wrong with it is reported in one sentence."""
    import pyarrow.parquet as pq

    try:
        with file.open() as content, pq.ParquetFile(content, buffer_size=_BUFFER, pre_buffer=False) as parquet:
            yield parquet
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(f"{file.label} cannot be read as a parquet file: {first_line_of(error)}.") from None


def load_parquet(file: File, columns: Sequence[Column]) -> Loaded:
    with opened_parquet(file) as parquet:
        in_file = _wanted(parquet, columns, file.label)
        return typed(parquet.iter_batches(_ROWS, columns=in_file), in_file, columns, file.label)


@dataclass(frozen=True)
class Footer:
    """What a file says of itself, as JSON can carry it."""

    groups: tuple[int, ...]
    """The rows of each row group."""
    names: Mapping[str, str]
    """role → what the file calls it."""
    id_types: Mapping[str, str]
    """role → the type of its ids, whatever width the writer gave them; empty where every id is missing."""

    @staticmethod
    def of(file: File, columns: Sequence[Column]) -> Footer:
        with opened_parquet(file) as parquet:
            schema, footer = parquet.schema_arrow, parquet.metadata
            chosen = pick(columns, schema.names, file.label)
            return Footer(
                tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups)),
                {role: schema.names[place] for role, place in chosen.items()},
                {c.role: _id_type(schema.types[chosen[c.role]]) for c in columns if c.kind == "id"},
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def pieces(file: File, columns: Sequence[Column], groups: Sequence[int], first_row: int) -> Iterator[Loaded]:
    """The rows of these row groups, some at a time; `first_row` is the number of the first one in the file."""
    with opened_parquet(file) as parquet:
        in_file = _wanted(parquet, columns, file.label)
        # The other processes have the other cores, and Arrow's threads keep memory of their own.
        for batch in parquet.iter_batches(_ROWS, row_groups=list(groups), columns=in_file, use_threads=False):
            if len(batch):
                one = typed([batch], in_file, columns, file.label)
                yield replace(one, place=partial(_place, file.label, first_row))
                first_row += len(batch)


def _place(label: str, before: int, row: int) -> str:
    return f"row {before + row + 1} of {label}"


def _wanted(parquet: Any, columns: Sequence[Column], label: str) -> list[str]:
    """The names of the columns to read, in the order of the file."""
    there = parquet.schema_arrow.names
    wanted = {there[place] for place in pick(columns, there, label).values()}
    return [name for name in there if name in wanted]


def _id_type(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return ""
    if is_string(kind):
        return "large_string"
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return "int64"
    return "double" if pa.types.is_floating(kind) else str(kind)
