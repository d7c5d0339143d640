"""Cleans the columns of any source: ids as codes over a sorted vocabulary, ratings and times as float64.

An id must read the same from a csv file, a parquet file and a frame, or the parts of one log would not match. A
number may come as text, a time as a date; a value that is neither is named by its line.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import recode, used
from evenhand.data.reading.columns import Loaded, is_string, quoted
from evenhand.utils.errors import InputError


def encode_ids(loaded: Loaded, role: str, *, strict: bool = True) -> tuple[np.ndarray, pa.Array]:
    """(int32 code of each row, sorted unique ids that occur); the codes are the caller's to use up.

    A row without an id is an error, or, unless `strict`, has the code -1; then blanks are no id either.
    """
    codes, ids = clean_ids(loaded, role, strict=strict)
    vocabulary = ids.filter(pa.array(used(codes, len(ids)) & np.asarray(ids.is_valid()))).unique()
    vocabulary = vocabulary.take(pc.sort_indices(vocabulary))
    recode(codes, np.asarray(pc.index_in(ids, value_set=vocabulary).fill_null(-1)))
    return codes, vocabulary


def clean_ids(loaded: Loaded, role: str, *, strict: bool) -> tuple[np.ndarray, pa.Array]:
    """(int32 code of each row, the ids in the order they came in, null where that is none)."""
    values, codes = loaded.codes[role].finish()
    if is_string(values.type):
        values = values.cast(pa.string())
        shown = values if strict else pc.utf8_trim_whitespace(values)
        values = pc.if_else(pc.equal(shown.fill_null(""), ""), pa.scalar(None, values.type), values)
    ids = _as_ids(loaded, role, values)
    if strict and (ids.null_count or codes.min() < 0):
        # The extra last entry answers for code -1, a null.
        missing = np.append(np.asarray(ids.is_null()), True)[codes]
        if missing.any():
            where = loaded.place(int(missing.argmax()))
            raise InputError(f"{loaded.called(role)} has no id in {where}; fill it in or drop such rows.")
    return codes, ids


def _as_ids(loaded: Loaded, role: str, values: pa.Array) -> pa.Array:
    """The values in a type that can be an id: integers or strings."""
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if is_string(kind):
        return _integers_if_exact(values) if loaded.is_text else values
    if pa.types.is_integer(kind):
        return _int64_or_string(values)
    if pa.types.is_floating(kind):
        # A frame turns integers into floats where some are missing.
        try:
            return pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values).cast(pa.int64())
        except pa.ArrowInvalid:
            raise InputError(
                f"{loaded.called(role)} has type {kind} with fractional values; convert it to integers or strings."
            ) from None
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


MISSING_NUMBERS = ["", "na", "nan", "null", "none"]
WANTED = {"number": "a number", "time": "a number or an ISO date"}
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def to_numbers(loaded: Loaded, role: str, kind: str) -> pa.ChunkedArray:
    column = loaded.table[role]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_string(column.type):
        column = _parse_strings(column, loaded, role, kind)
    if kind == "time" and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return _seconds(column)
    try:
        return column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(f"{loaded.called(role)} has type {column.type}, which is not {WANTED[kind]}.") from None


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(ticks, float(TICKS_PER_SECOND[column.type.unit]))


def _parse_strings(column: pa.ChunkedArray, loaded: Loaded, role: str, kind: str) -> pa.ChunkedArray:
    texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    absent = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(MISSING_NUMBERS, pa.large_string()))
    texts = pc.if_else(absent, pa.scalar(None, pa.large_string()), texts)
    targets = [pa.float64()]
    if kind == "time":
        targets += [pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")]
    first = texts.drop_null().slice(0, 1)
    # One column is written in one way: the first value says which.
    target = next((target for target in targets if _parses(first, target)), targets[0])
    if _parses(texts, target):
        return texts.cast(target)
    row = _first_that_fails(texts, target)
    wanted = "a date like those above" if target != pa.float64() else WANTED[kind]
    hint = "; if the first line holds column names, say header=True (--header)"
    raise InputError(
        f"{loaded.called(role)} has '{quoted(column[row])}' in {loaded.place(row)}, which is not {wanted}"
        f"{hint if row == 0 and not loaded.header else ''}."
    )


def _parses(texts: pa.ChunkedArray, target: pa.DataType) -> bool:
    try:
        texts.cast(target)
    except pa.ArrowInvalid:
        return False
    return True


def _first_that_fails(texts: pa.ChunkedArray, target: pa.DataType) -> int:
    """The first row that cannot be cast, by halving: a row-by-row search would parse unlike Arrow does."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _parses(texts.slice(low, middle - low), target) else (low, middle)
    return low


def as_moment(value: str | float, times: np.ndarray, what: str) -> float:
    """A number as it is, or an ISO date (UTC where it names no time zone) in the unit of `times`."""
    text = str(value).strip()
    dated = _largest(times) >= _EARLIEST
    with suppress(ValueError):
        number = float(text)
        if np.isfinite(number) and not (dated and text.isdigit() and len(text) in (4, 8)):
            return number
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or text.isdigit():
        raise InputError(f"{what} is '{quoted(text)}', which is neither a number nor a date such as 2026-09-01.")
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return date.timestamp() * ticks_per_second(times)


def as_span(value: str | float, times: np.ndarray) -> float:
    """A number as it is, or a span such as 7d, 12h, 30m or 90s in the unit of `times`."""
    text = str(value).strip()
    seconds = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}.get(text[-1:])
    try:
        span = float(text) if seconds is None else float(text[:-1]) * seconds * ticks_per_second(times)
    except ValueError:
        span = -1.0
    if not 0 <= span < np.inf:
        raise InputError(f"'{quoted(text)}' is no span of time; give a number, or 7d, 12h, 30m, 90s.")
    return span


def ticks_per_second(times: np.ndarray) -> float:
    """Whether times are in seconds, milli-, micro- or nanoseconds since 1970, by the size of the largest."""
    largest = _largest(times)
    if largest < _EARLIEST:
        raise InputError(f"the timestamps (up to {largest:g}) are no dates; give numbers in their own unit.")
    return next((ticks for ticks in (1.0, 1e3, 1e6) if largest < 1e11 * ticks), 1e9)


_EARLIEST = 1e8
"""Times up to here cannot be distinguished from plain numbers: as seconds they end in 1973."""


def _largest(times: np.ndarray) -> float:
    return float(np.nanmax(np.abs(times), initial=0.0))
