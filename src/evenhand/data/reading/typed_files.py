"""Files whose columns have types: parquet, whole or in pieces of some row groups, and JSON lines.

Arrow makes a column of every key in a JSON file and follows brackets as deep as they go, so a few kilobytes could fill
the memory or end the process. That text is looked at first, which takes as long as parsing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from evenhand.data.reading.columns import Column, Loaded, NoRowsError, id_type, pick, typed
from evenhand.data.reading.sources import File
from evenhand.utils.errors import InputError
from evenhand.utils.text import first_line_of

_ROWS, _BUFFER = 2**17, 2**20
"""Rows that are decoded at once, and bytes of a column that are read at once."""
DEEPEST = 100
LONGEST = 1 << 20
"""Bytes of a line of JSON, which is also what is looked at at once."""
MOST_CELLS = 1 << 24
"""Of the table of a JSON file: lines times keys. More are allowed where the file is large enough to fill them."""
_PLAIN_KEY = re.compile(rb'"([^"]*+)"\s*+:')
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?', re.DOTALL)


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


class Footer(NamedTuple):
    """What a file says of itself, as JSON can carry it."""

    groups: tuple[int, ...]
    """The rows of each row group."""
    names: Mapping[str, str]
    """role → what the file calls it."""
    id_types: Mapping[str, str]
    """role → the `id_type` of its ids."""

    @staticmethod
    def of(file: File, columns: Sequence[Column]) -> Footer:
        with opened_parquet(file) as parquet:
            schema, footer = parquet.schema_arrow, parquet.metadata
            chosen = pick(columns, schema.names, file.label)
            return Footer(
                tuple(footer.row_group(group).num_rows for group in range(footer.num_row_groups)),
                {role: schema.names[place] for role, place in chosen.items()},
                {c.role: str(id_type(schema.types[chosen[c.role]])) for c in columns if c.kind == "id"},
            )


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


def read_json_lines(file: File) -> pa.Table:
    """All of the file; refused where a line is too long or too deep, or where keys are many."""
    from pyarrow import json

    _look_at(file)
    with file.open_text() as content:
        try:
            return json.read_json(content, read_options=json.ReadOptions(block_size=2 * LONGEST))
        except (pa.ArrowException, UnicodeError) as error:
            reason = first_line_of(error)
            raise InputError(f"{file.label} cannot be read as JSON lines, one object a line: {reason}.") from None


def _look_at(file: File) -> None:
    keys: set[bytes] = set()
    label, done, size = file.label, 0, 0
    with file.open_text() as content:
        while chunk := content.read(LONGEST):
            chunk += content.readline(LONGEST)
            lines = chunk.split(b"\n")
            if max(map(len, lines)) >= LONGEST:
                place = done + next(n for n, line in enumerate(lines, 1) if len(line) >= LONGEST)
                raise InputError(f"line {place} of {label} is longer than {LONGEST:,} bytes.")
            if (stray := _not_an_object(chunk, lines)) is not None:
                raise InputError(f"line {done + stray} of {label} is not a JSON object.")
            if _may_be_deep(chunk) and (deep := [n for n, line in enumerate(lines, 1) if _is_deep(line)]):
                raise InputError(f"line {done + deep[0]} of {label} is nested more than {DEEPEST} deep.")
            keys |= _keys(chunk)
            done, size = done + chunk.count(b"\n"), size + len(chunk)
            # Every key becomes a column over all lines, however few of them have it.
            if len(keys) * done > max(MOST_CELLS, 4 * size):
                raise InputError(
                    f"{label} has {len(keys):,} different keys in {done:,} lines, most of them in few lines; "
                    "keep only the columns that are needed."
                )
    if not size:
        raise NoRowsError(f"{label} is empty.")


def _not_an_object(chunk: bytes, lines: list[bytes]) -> int | None:
    """The first line that begins as something else; Arrow dies of one that is `null`."""
    if _objects(chunk) + lines.count(b"") == len(lines):
        return None
    begins = (line.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] for line in lines)
    return next((place for place, sign in enumerate(begins, 1) if sign not in (b"", b"{")), None)


def _objects(chunk: bytes) -> int:
    return chunk.startswith(b"{") + chunk.count(b"\n{")


def _keys(chunk: bytes) -> set[bytes]:
    if b"\\" in chunk:
        return {name for name, colon in _STRING.findall(chunk) if colon}
    return set(_PLAIN_KEY.findall(chunk))


def _may_be_deep(chunk: bytes) -> bool:
    """Whether a line could be nested that deep; of lines that hold one object and no list none can."""
    return chunk.count(b"[") + chunk.count(b"{") - _objects(chunk) >= DEEPEST


def _is_deep(line: bytes) -> bool:
    """Whether brackets are nested that deep, those in texts aside."""
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return False
    signs = np.frombuffer(_STRING.sub(b"", line), dtype=np.uint8)
    opens, closes = (np.isin(signs, list(pair)).astype(np.int64) for pair in (b"[{", b"]}"))
    return int(np.cumsum(opens - closes).max(initial=0)) > DEEPEST
