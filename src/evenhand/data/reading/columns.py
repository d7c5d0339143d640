"""What a reader is asked for and what it hands back: columns by role, and how messages call them.

Text files, parquet files and frames meet here, so that ids and numbers are made the same way from each.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import Codes
from evenhand.utils.errors import InputError
from evenhand.utils.text import first_line_of, visible

_SHOWN, _COMPARED = 20, 1000
"""Names of columns that a message lists, and those among which a near one is looked for."""


class NoRowsError(InputError):
    """A source that is a table, but holds no row."""


@dataclass(frozen=True)
class Column:
    """One column to read: what it is for, what it holds, and what the source calls it."""

    role: str
    """Its name in the result, and the option by which a person names the source's column."""
    kind: Literal["id", "number", "time", "text", "any"]
    name: str | None = None
    """Its name in the source, where it must exist; None: optional, a column called `role` is taken."""
    option: str | None = None
    """How a person names the column, for messages; None: `role= or --role`."""


@dataclass(frozen=True)
class Loaded:
    """Any source as one table whose columns are named by role, not yet cleaned."""

    label: str
    codes: dict[str, Codes]
    """role → ids, for the columns of ids."""
    table: pa.Table
    """The other columns."""
    names: dict[str, str]
    """role → what the source calls it, for messages; in the order of the columns asked for."""
    place: Callable[[int], str]
    """row (from 0) → where a person finds it: 'line 17' or 'row 16'."""
    is_text: bool = False
    header: bool = True
    notes: tuple[str, ...] = ()

    def called(self, role: str) -> str:
        return f"column '{self.names[role]}' of {self.label}"

    def without(self, role: str) -> Loaded:
        """The same, once a column has been used: its memory is given back."""
        there = role in self.table.column_names
        return replace(self, table=self.table.drop_columns([role])) if there else self

    def __len__(self) -> int:
        return max([self.table.num_rows, *map(len, self.codes.values())])


def gather(
    batches: Iterable[pa.RecordBatch], chosen: dict[str, int], columns: Sequence[Column]
) -> tuple[dict[str, Codes], pa.Table]:
    """Take the chosen columns out of one batch after the other: ids as codes, the rest as it is."""
    codes = {column.role: Codes() for column in columns if column.kind == "id" and column.role in chosen}
    others: dict[str, list[pa.Array]] = {role: [] for role in chosen if role not in codes}
    for batch in batches:
        for role, place in chosen.items():
            take_in = codes[role].add if role in codes else others[role].append
            take_in(batch.column(place))
    # Without a batch there are no rows, which is reported before anyone asks for a type.
    table = pa.table({role: pa.chunked_array(parts or [pa.array([])]) for role, parts in others.items()})
    return codes, table


def typed(batches: Iterable[pa.RecordBatch], names: Sequence[str], columns: Sequence[Column], label: str) -> Loaded:
    """Batches whose columns are called `names`, as a table by role; they are checked first."""
    chosen = pick(columns, names, label)

    def sound() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            batch.validate(full=True)  # offsets lie within their data, and texts are texts
            yield batch

    codes, table = gather(sound(), chosen, columns)
    return Loaded(
        label=label,
        codes=codes,
        table=table,
        names={role: names[place] for role, place in chosen.items()},
        place=lambda row: f"row {row + 1}",
    )


def source_label(source: Any) -> str:
    """How messages call a source: a file by its path in quotes, anything else by its type."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if str(source) == "-" else f"'{os.fspath(source)}'"
    return f"the {type(source).__name__}"


def without_folder(label: str) -> str:
    """The same for notes, which go with results to other people: no folder of ours is named.

    >>> without_folder("'/home/me/log/'"), without_folder("the Table")
    ("'log'", 'the Table')
    """
    return re.sub(r"^'.*?([^/\\]+)[/\\]*'$", r"'\1'", label, flags=re.DOTALL)


def pick(columns: Sequence[Column], names: Sequence[str], label: str) -> dict[str, int]:
    """role → position of its column; says what there is when one that must exist does not."""
    chosen: dict[str, int] = {}
    for column in columns:
        name = column.role if column.name is None else column.name
        found = [place for place, there in enumerate(names) if there == name]
        if len(found) > 1:
            raise InputError(f"{label} has {len(found)} columns called '{name}'; rename all but one.")
        if found:
            chosen[column.role] = found[0]
        elif column.name is not None:
            raise _no_column(column.option or f"{column.role}= or --{column.role}", name, names, label)
    return chosen


def _no_column(option: str, name: str, names: Sequence[str], label: str) -> InputError:
    listed = ", ".join(quoted(there) for there in names[:_SHOWN])
    listed += f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    names = [there for there in names[:_COMPARED] if len(there) < 100]
    lowered = {there.lower(): there for there in names}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean '{quoted(lowered[near[0]])}'? Name it with {option}"
    elif any(there.strip().isdigit() for there in names):
        hint = "if the file starts without column names, say header=False (--no-header)"
    else:
        hint = f"name the right one with {option}"
    return InputError(f"{label} has no column '{name}' (it has {listed}); {hint}.")


def is_string(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def id_type(kind: pa.DataType) -> pa.DataType:
    """The type of ids, whatever width their writer gave them; null where every id is missing."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_string(kind):
        return pa.large_string()
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind


def to_text(loaded: Loaded, role: str) -> pa.ChunkedArray:
    """The column as strings, null where missing or empty."""
    column = loaded.table[role]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        texts = column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"{loaded.called(role)} has type {column.type}, which is not text.") from None
    return pc.if_else(pc.equal(pc.utf8_trim_whitespace(texts), ""), pa.scalar(None, pa.string()), texts)


def quoted(value: object) -> str:
    """What a source holds, as a message shows it: readable, and no longer than need be."""
    return visible(value, 60)


@contextmanager
def faults_reported(label: str) -> Iterator[None]:
    """Whatever a library finds wrong inside a source, the user hears of it in one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeError, zlib.error) as error:
        raise InputError(f"{label} cannot be read: {first_line_of(error)}.") from error
