"""Tables from files, folders and frames, with ids as small integers and mistakes named by file, column and line.

Logs come in many spellings and with many faults; everything past this module sees one clean form. What a log holds
beyond that (rows without an id, repeats, refunds) is counted and reported.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.reading import cleaning
from evenhand.data.reading.cleaning import ReadOptions, compacted, encode_ids, to_numbers
from evenhand.data.reading.codes import Codes
from evenhand.data.reading.columns import (
    Column,
    Loaded,
    NoRowsError,
    faults_reported,
    id_type,
    pick,
    source_label,
    to_text,
    typed,
    without_folder,
)
from evenhand.data.reading.sources import JSON_ENDINGS, PARQUET_ENDINGS, TEXT_ENDINGS, File, find_files
from evenhand.data.reading.text_files import load_text, read_json_lines, text_column_names
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, first_line_of

_ROWS, _BUFFER = 2**17, 2**20
"""Rows of a parquet file that are decoded at once, and bytes of a column that are read at once."""


def read_interactions(source: Any, asked: ReadOptions | None = None, **options: Any) -> Interactions:
    """What `Interactions.read` does, with `ReadOptions` as a whole or one by one.

    Rows that are left out count as if they were not in the source: users and items that have only such rows leave
    the vocabulary too.
    """
    asked = asked or ReadOptions(**options)
    with faults_reported(source_label(source)):
        loaded = _load(source, asked.columns, asked.header)
        users, user_ids = encode_ids(loaded, "user", strict=asked.strict)
        items, item_ids = encode_ids(loaded, "item", strict=asked.strict)
        numbers: dict[str, np.ndarray | None] = {}
        for column in asked.columns[2:]:
            numbers[column.role] = _numbers(loaded, column.role, column.kind)
            loaded = loaded.without(column.role)
    label, notes = loaded.label, loaded.notes
    keep = (users >= 0) & (items >= 0)
    cleaned = cleaning.skipped(cleaning.wanted_rows(loaded, keep, numbers, asked))
    ratings, least = numbers["rating"], asked.min_rating
    if least is not None and not (ratings is not None and (ratings >= least).any()):
        raise cleaning.no_such_rating(label, least)
    if asked.weight is not None:
        amounts = numbers.pop("weight")
        more, said = cleaning.net_purchases(users, items, len(item_ids), amounts, keep, label)
        keep, cleaned = keep & more, cleaned + said
    if not keep.any():
        raise InputError(f"no row of {label} is left: {'; '.join(cleaned)}.")
    if not keep.all():
        users, user_ids = compacted(users[keep], user_ids)
        items, item_ids = compacted(items[keep], item_ids)
        kept = {role: values[keep] for role, values in numbers.items() if values is not None}
        numbers = {role: None if np.isnan(kept.get(role, np.nan)).all() else kept[role] for role in numbers}
    asked.check_items(len(item_ids), label)
    ratings = numbers["rating"]
    if ratings is not None:
        with np.errstate(over="ignore"):  # beyond its range a rating is infinite
            ratings = ratings.astype(np.float32)
    del loaded, keep
    pa.default_memory_pool().release_unused()
    return Interactions.from_codes(
        (users, items), (user_ids, item_ids), ratings, numbers["timestamp"], notes=notes, cleaned=cleaned
    )


def as_interactions(source: Any, **options: Any) -> Interactions:
    """Interactions as they are, and what a file or table holds, however small."""
    if isinstance(source, Interactions):
        return source
    return read_interactions(source, **{"allow_small": True} | options)


def read_columns(
    source: Any, columns: Sequence[Column], *, header: bool | None = None, strict: bool = True
) -> pa.Table:
    """The wanted columns of a file or Arrow-speaking table, named by their roles, in the given order.

    Ids come dictionary-encoded over their sorted unique values (int64 or string) and are never null;
    numbers and times come as float64, text as strings, null where missing. Optional columns may be absent
    from the result.
    A text file without a header holds `columns` by position, whatever their names. Unless `strict`, blank ids are
    null.
    """
    with faults_reported(source_label(source)):
        loaded = _load(source, columns, header)
        kinds = {column.role: column.kind for column in columns}
        return pa.table({role: _clean(loaded, role, kinds[role], strict) for role in loaded.names})


def read_ids(source: Any, role: str, column: str) -> pa.Array:
    """The ids in one column, each once, in the order of their first appearance; an empty file holds none."""
    try:
        ids = read_columns(source, [Column(role, "id", column)], strict=False)[role]
    except NoRowsError:
        return pa.array([], pa.string())
    return ids.cast(ids.type.value_type).unique().drop_null()


def read_table(source: Any, item: str) -> pa.Table:
    """Every column under its own name, with types as they are found; the ids of the items as everywhere else."""
    columns = [Column(name, "any", name) for name in column_names(source) if name != item]
    return read_columns(source, [Column(item, "id", item, option="--item"), *columns], strict=False)


def column_names(source: Any) -> list[str]:
    """What the columns of a file, or of the first file of a folder, are called; of standard input nothing is known."""
    if not isinstance(source, str | os.PathLike):
        return list(pa.table(source).column_names)
    if str(source) == "-":
        return []
    file = find_files(source)[0]
    with faults_reported(file.label):
        if _is_parquet(file):
            with opened_parquet(file) as parquet:
                return list(parquet.schema_arrow.names)
        return read_json_lines(file).column_names if file.ending in JSON_ENDINGS else text_column_names(file)


def _clean(loaded: Loaded, role: str, kind: str, strict: bool = True) -> Any:
    if kind == "any":
        return loaded.table[role]
    if kind == "id":
        codes, ids = encode_ids(loaded, role, strict=strict)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), ids)
    return to_text(loaded, role) if kind == "text" else to_numbers(loaded, role, kind)


def _numbers(loaded: Loaded, role: str, kind: str) -> np.ndarray | None:
    """The numbers with NaN where missing; None where there is no such column or nothing in it."""
    if role not in loaded.names:
        return None
    column = to_numbers(loaded, role, kind)
    return None if column.null_count == len(column) else column.to_numpy()


def _load(source: Any, columns: Sequence[Column], header: bool | None) -> Loaded:
    if isinstance(source, str | os.PathLike):
        files = find_files(source)
        one = len(files) == 1
        loaded = _load_file(files[0], columns, header) if one else _load_parts(source, files, columns, header)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        loaded = _load_frame(source, columns)
    else:
        raise InputError(f"cannot read {source_label(source)}; give a path or a table of pandas, polars or pyarrow.")
    if not len(loaded):
        raise NoRowsError(f"{loaded.label} has column names but no rows; give a table with at least one row.")
    return loaded


def _load_file(file: File, columns: Sequence[Column], header: bool | None) -> Loaded:
    if _is_parquet(file):
        return load_parquet(file, columns)
    if file.ending in JSON_ENDINGS:
        table = read_json_lines(file)
        return typed(table.to_batches(), table.column_names, columns, file.label)
    return load_text(file, columns, header)


def _load_parts(source: Any, files: Sequence[File], columns: Sequence[Column], header: bool | None) -> Loaded:
    """The files of a folder one after the other, as one log; files without rows are passed over."""
    kinds = {column.role: column.kind for column in columns}
    codes: dict[str, Codes] = {}
    types: dict[str, pa.DataType] = {}
    names: dict[str, str] = {}
    tables: list[pa.Table] = []
    parts: list[tuple[str, Callable[[int], str]]] = []
    """Of each file its label and its places, but not its rows, which are in `codes` and `tables` by now."""
    is_text = True
    for file in files:
        try:
            part = _load_file(file, columns, header)
        except NoRowsError:
            continue
        if not (rows := len(part)):
            continue
        for role, own in part.codes.items():
            ids = _joinable(own, types.get(role))
            if types.setdefault(role, ids.dictionary.type) != ids.dictionary.type:
                raise InputError(
                    f"{part.called(role)} has ids of type {ids.dictionary.type}, those before it {types[role]}; "
                    "write all files alike."
                )
            codes.setdefault(role, Codes()).add(ids)
        others = {role: _clean(part, role, kinds[role]) for role in part.names if role not in part.codes}
        # An Arrow table knows its number of rows by a column only.
        tables.append(pa.table({"": pa.nulls(rows), **others}))
        parts.append((part.label, part.place))
        names |= part.names
        is_text &= part.is_text
    if not parts:
        raise NoRowsError(f"{source_label(source)} holds no rows.")
    ends = list(accumulate(table.num_rows for table in tables))

    def place(row: int) -> str:
        which = bisect_right(ends, row)
        label, in_file = parts[which]
        return f"{in_file(row - (ends[which - 1] if which else 0))} of {label}"

    table = pa.concat_tables(tables, promote_options="default").drop_columns([""])
    return Loaded(
        label=source_label(source),
        codes=codes,
        table=table,
        names={role: names[role] for role in kinds if role in names},
        place=place,
        is_text=is_text,
        notes=(f"{without_folder(source_label(source))} holds {count(len(parts), 'file')}, read as one log.",),
    )


def _joinable(own: Codes, known: pa.DataType | None) -> pa.DictionaryArray:
    """The ids of one file, in a type that does not depend on how wide its writer made it."""
    values, codes = own.finish()
    kind = id_type(values.type)
    values = values.cast(known or pa.large_string() if pa.types.is_null(kind) else kind)
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)


def _load_frame(source: Any, columns: Sequence[Column]) -> Loaded:
    label = source_label(source)
    try:
        table = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{label} cannot be turned into an Arrow table: {'; '.join(map(str, error.args))}.") from None
    return typed(table.to_batches(), table.column_names, columns, label)


def _is_parquet(file: File) -> bool:
    """By its name, or by how it begins where the name is not known."""
    if file.ending in (*PARQUET_ENDINGS, *TEXT_ENDINGS):
        return file.ending in PARQUET_ENDINGS
    with file.open() as content:
        return content.read(4) == b"PAR1"


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
