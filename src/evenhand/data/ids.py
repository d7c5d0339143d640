"""Ids of any kind as small codes over a sorted vocabulary.

An id must read the same from a csv file, a parquet file and a frame, or the parts of one log would not meet.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.columns import Loaded, is_string
from evenhand.errors import InputError


def encode_ids(loaded: Loaded, role: str) -> pa.DictionaryArray:
    column = _id_column(loaded, role)
    values, codes = _dictionary(column)
    if loaded.is_text:
        ids = _integers_if_exact(values)
    elif pa.types.is_integer(values.type):
        ids = _int64_or_string(values)
    else:
        ids = values.cast(pa.string())
    empty = pc.is_null(ids) if pa.types.is_integer(ids.type) else pc.equal(ids.fill_null(""), "")
    # The extra last entry answers for code -1, a null.
    missing = np.append(np.asarray(empty), True)[codes]
    if missing.any():
        where = loaded.place(int(missing.argmax()))
        raise InputError(f"{loaded.called(role)} has no id in {where}; fill it in or drop such rows.")
    vocabulary = pc.unique(ids)
    vocabulary = vocabulary.take(pc.sort_indices(vocabulary))
    codes = np.asarray(pc.index_in(ids, value_set=vocabulary))[codes]
    return _compact(codes, vocabulary)


def _id_column(loaded: Loaded, role: str) -> pa.ChunkedArray:
    """The column in a type that can be an id: integers or strings, dictionary-encoded or not."""
    column = loaded.table[role]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind) or is_string(kind):
        return column
    if pa.types.is_floating(kind):
        try:
            whole = column.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            whole = None
        if whole is not None and not whole.null_count:
            return whole
        raise InputError(
            f"{loaded.called(role)} has type {kind} with missing or fractional values; "
            "drop the rows without an id and convert the column to integers or strings."
        )
    raise InputError(f"{loaded.called(role)} has type {kind}; ids must be integers or strings.")


def _dictionary(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """(values, code of each row), with code -1 for null."""
    if str(column.type) == "string_view":
        column = column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.num_chunks > 1:
        column = column.unify_dictionaries()
    codes = [np.asarray(chunk.indices.cast(pa.int32()).fill_null(-1)) for chunk in column.chunks]
    return column.chunk(0).dictionary, np.concatenate(codes)


def _integers_if_exact(values: pa.Array) -> pa.Array:
    """int64 if every text is just how that integer is written ('007' is not), else the texts."""
    exact = pc.all(pc.match_substring_regex(values.drop_null(), r"^(0|-?[1-9][0-9]*)$")).as_py()
    if not exact:
        return values
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values


def _int64_or_string(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        return values.cast(pa.string())


def _compact(codes: np.ndarray, ids: pa.Array) -> pa.DictionaryArray:
    """The same rows over only those ids that occur in them."""
    used = np.bincount(codes, minlength=len(ids)) > 0
    if not used.all():
        ids, codes = ids.filter(pa.array(used)), (np.cumsum(used) - 1)[codes]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), ids)


def codes_and_ids(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    compact = _compact(np.asarray(array.indices), array.dictionary)
    return np.asarray(compact.indices), compact.dictionary
