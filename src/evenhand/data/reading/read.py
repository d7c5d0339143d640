"""Tables from files and frames, with ids as small integers and mistakes named by file, column and line.

Logs come in many spellings and with many faults; everything past this module sees one clean form, and
nobody has to read a traceback to learn that line 17 lacks an item.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import (
    Column,
    Loaded,
    faults_reported,
    first_line_of,
    gather,
    pick,
    source_label,
    to_text,
)
from evenhand.data.reading.json_lines import read_json_lines
from evenhand.data.reading.text_files import TEXT_ENDINGS, load_text, text_ending
from evenhand.data.reading.values import compacted, encode_ids, to_numbers
from evenhand.utils.errors import InputError

__all__ = ["Column", "read_columns", "read_interactions", "source_label"]

PARQUET_ENDINGS = (".parquet", ".pq")
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_ROWS, _BUFFER = 2**17, 2**20
"""Rows of a parquet file that are decoded at once, and bytes of a column that are read at once."""


def read_interactions(
    source: Any,
    *,
    user: str = "user",
    item: str = "item",
    rating: str | None = None,
    timestamp: str | None = None,
    min_rating: float | None = None,
    header: bool | None = None,
    allow_small: bool = False,
) -> Interactions:
    """What `Interactions.read` does; `allow_small` also takes a table with one item, as a test file may be.

    `min_rating` acts as if the rows below it (or without a rating) were not in the source, so users and
    items that have only such rows leave the vocabulary too.
    """
    columns = [
        Column("user", "id", user),
        Column("item", "id", item),
        Column("rating", "number", rating),
        Column("timestamp", "time", timestamp),
    ]
    with faults_reported(source_label(source)):
        loaded = _load(source, columns, header)
        users, user_ids = encode_ids(loaded, "user")
        items, item_ids = encode_ids(loaded, "item")
        ratings = _numbers(loaded, "rating", "number")
        timestamps = _numbers(loaded, "timestamp", "time")
    notes: tuple[str, ...] = ()
    if min_rating is not None:
        keep, notes = _rated(loaded, ratings, min_rating)
        users, user_ids = compacted(users[keep], user_ids)
        items, item_ids = compacted(items[keep], item_ids)
        ratings, timestamps = (
            None if values is None else _unless_empty(values[keep]) for values in (ratings, timestamps)
        )
    if len(item_ids) < 2 and not allow_small:
        raise InputError(f"{loaded.label} holds one item only; evenhand needs at least two items.")
    if ratings is not None:
        with np.errstate(over="ignore"):  # beyond its range a rating is infinite
            ratings = ratings.astype(np.float32)
    del loaded
    pa.default_memory_pool().release_unused()
    return Interactions.from_codes(
        users, items, user_ids, item_ids, ratings=ratings, timestamps=timestamps, notes=notes
    )


def read_columns(source: Any, columns: Sequence[Column], *, header: bool | None = None) -> pa.Table:
    """The wanted columns of a file or Arrow-speaking table, named by their roles, in the given order.

    Ids come dictionary-encoded over their sorted unique values (int64 or string) and are never null;
    numbers and times come as float64, text as strings, null where missing. Optional columns may be absent
    from the result.
    A text file without a header holds `columns` by position, whatever their names.
    """
    with faults_reported(source_label(source)):
        loaded = _load(source, columns, header)
        kinds = {column.role: column.kind for column in columns}
        return pa.table({role: _clean(loaded, role, kinds[role]) for role in loaded.names})


def _clean(loaded: Loaded, role: str, kind: str) -> Any:
    if kind == "id":
        codes, ids = encode_ids(loaded, role)
        return pa.DictionaryArray.from_arrays(pa.array(codes), ids)
    return to_text(loaded, role) if kind == "text" else to_numbers(loaded, role, kind)


def _numbers(loaded: Loaded, role: str, kind: str) -> np.ndarray | None:
    """The numbers with NaN where missing; None where there is no such column or nothing in it."""
    if role not in loaded.names:
        return None
    column = to_numbers(loaded, role, kind)
    return None if column.null_count == len(column) else column.to_numpy()


def _unless_empty(numbers: np.ndarray) -> np.ndarray | None:
    return None if np.isnan(numbers).all() else numbers


def _rated(loaded: Loaded, ratings: np.ndarray | None, min_rating: float) -> tuple[np.ndarray, tuple[str, ...]]:
    """Which rows have that rating at least, and what to say of the others."""
    label = loaded.label
    if "rating" not in loaded.names:
        raise InputError(f"{label} has no rating column for min_rating; name it with rating= or --rating.")
    rating = np.full(len(loaded), np.nan) if ratings is None else ratings
    absent = int(np.isnan(rating).sum())
    keep = rating >= min_rating
    below = len(rating) - absent - int(keep.sum())
    if not keep.any():
        raise InputError(f"no row of {label} has a rating of at least {min_rating:g}; lower min_rating.")
    notes = []
    if below:
        notes.append(f"{below:,} of {len(rating):,} rows with a rating below {min_rating:g} were dropped.")
    if absent:
        notes.append(f"{absent:,} of {len(rating):,} rows without a rating were dropped.")
    return keep, tuple(notes)


def _load(source: Any, columns: Sequence[Column], header: bool | None) -> Loaded:
    if isinstance(source, str | os.PathLike):
        loaded = _load_file(Path(source), columns, header)
    elif hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        loaded = _load_frame(source, columns)
    else:
        raise InputError(f"cannot read {source_label(source)}; give a path or a table of pandas, polars or pyarrow.")
    if not len(loaded):
        raise InputError(f"{loaded.label} has column names but no rows; give a table with at least one row.")
    return loaded


def _load_frame(source: Any, columns: Sequence[Column]) -> Loaded:
    label = source_label(source)
    try:
        table = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{label} cannot be turned into an Arrow table: {'; '.join(map(str, error.args))}.") from None
    return _typed(table.to_batches(), table.column_names, columns, label)


def _load_parquet(path: Path, columns: Sequence[Column]) -> Loaded:
    import pyarrow.parquet as pq

    label = source_label(path)
    try:
        schema = pq.read_schema(path)
        chosen = pick(columns, schema.names, label)
        names = [schema.names[place] for place in chosen.values()]
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            in_file = [name for name in schema.names if name in names]
            batches = file.iter_batches(_ROWS, columns=in_file)
            return _typed(batches, in_file, columns, label)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(f"{label} cannot be read as a parquet file: {first_line_of(error)}.") from None


def _typed(batches: Iterable[pa.RecordBatch], names: Sequence[str], columns: Sequence[Column], label: str) -> Loaded:
    chosen = pick(columns, names, label)
    codes, table = gather(_sound(batches), chosen, columns)
    return Loaded(
        label=label,
        codes=codes,
        table=table,
        names={role: names[place] for role, place in chosen.items()},
        place=lambda row: f"row {row + 1}",
    )


def _sound(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, once it is certain that offsets lie within their data and that texts are texts."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _load_file(path: Path, columns: Sequence[Column], header: bool | None) -> Loaded:
    label = source_label(path)
    if path.is_dir():
        raise InputError(f"{label} is a folder; give one file.")
    if not path.exists():
        raise InputError(f"there is no file {label}.")
    if path.suffix.lower() in PARQUET_ENDINGS or _starts_like_parquet(path):
        return _load_parquet(path, columns)
    if text_ending(path) in JSON_ENDINGS:
        table = read_json_lines(path)
        return _typed(table.to_batches(), table.column_names, columns, label)
    return load_text(path, columns, header)


def _starts_like_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() not in TEXT_ENDINGS and file.read(4) == b"PAR1"
