"""Ids of any kind as small codes over a sorted vocabulary.

An id must read the same from a csv file, a parquet file and a frame, or the parts of one log would not meet.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import recode, used
from evenhand.data.reading.columns import Loaded, is_string
from evenhand.utils.errors import InputError


def encode_ids(loaded: Loaded, role: str) -> tuple[np.ndarray, pa.Array]:
    """(int32 code of each row, sorted unique ids that occur); the codes are the caller's to use up."""
    values, codes = loaded.codes[role].finish()
    ids = _as_ids(loaded, role, values, bool(len(codes)) and codes.min() < 0)
    empty = np.asarray(pc.is_null(ids) if pa.types.is_integer(ids.type) else pc.equal(ids.fill_null(""), ""))
    if empty.any() or codes.min() < 0:
        # The extra last entry answers for code -1, a null.
        missing = np.append(empty, True)[codes]
        if missing.any():
            where = loaded.place(int(missing.argmax()))
            raise InputError(f"{loaded.called(role)} has no id in {where}; fill it in or drop such rows.")
    vocabulary = ids.filter(pa.array(used(codes, len(ids)))).unique()
    vocabulary = vocabulary.take(pc.sort_indices(vocabulary))
    recode(codes, np.asarray(pc.index_in(ids, value_set=vocabulary).fill_null(-1)))
    return codes, vocabulary


def _as_ids(loaded: Loaded, role: str, values: pa.Array, absent: bool) -> pa.Array:
    """The values in a type that can be an id: integers or strings."""
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if is_string(kind):
        return _integers_if_exact(values) if loaded.is_text else values.cast(pa.string())
    if pa.types.is_integer(kind):
        return _int64_or_string(values)
    if pa.types.is_floating(kind):
        try:
            whole = values.cast(pa.int64())
        except pa.ArrowInvalid:
            whole = None
        if whole is not None and not whole.null_count and not absent:
            return whole
        raise InputError(
            f"{loaded.called(role)} has type {kind} with missing or fractional values; "
            "drop the rows without an id and convert the column to integers or strings."
        )
    raise InputError(f"{loaded.called(role)} has type {kind}; ids must be integers or strings.")


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


def compacted(codes: np.ndarray, ids: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The same rows over only those ids that occur in them; the codes may be changed in place."""
    occur = used(codes, len(ids))
    if not occur.all():
        ids = ids.filter(pa.array(occur))
        recode(codes, np.cumsum(occur) - 1)
    return codes, ids


def codes_and_ids(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes and ids of an id column as `read_columns` returns it, perhaps with rows left out since."""
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return compacted(np.array(array.indices, dtype=np.int32), array.dictionary)
