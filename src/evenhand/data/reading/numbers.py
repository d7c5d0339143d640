"""Ratings, scores and times as float64, null where missing.

A number may come as text, a time as a date; a value that is neither is named by its line rather than lost.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.columns import Loaded, is_string, quoted
from evenhand.utils.errors import InputError

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
