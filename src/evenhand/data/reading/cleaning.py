"""Cleans the columns of any source, and says which of its rows count.

An id must read the same from a csv file, a parquet file and a frame, or the parts of one log would not match. A
number may come as text, a time as a date; a value that is neither is named by its line. Rows count that have ids, lie
within a span of time, are rated high enough, and were not refunded; what is left out is counted, each row for the
first reason that applies, and said in a few words.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.reading.codes import pair_keys, recode, used
from evenhand.data.reading.columns import Column, Loaded, is_string, quoted
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

_NOTHING = 1e-9
"""Sums of amounts are rounded; what is left of a pair counts from this share of the amounts on."""


@dataclass(frozen=True)
class ReadOptions:
    """How a log is read: what `Interactions.read` takes."""

    user: str = "user"
    item: str = "item"
    rating: str | None = None
    timestamp: str | None = None
    weight: str | None = None
    min_rating: float | None = None
    since: str | float | None = None
    until: str | float | None = None
    header: bool | None = None
    strict: bool = False
    allow_small: bool = False
    """Whether a table with one item will do, as a test file may be."""

    @property
    def columns(self) -> list[Column]:
        """Users and items first."""
        return [
            Column("user", "id", self.user),
            Column("item", "id", self.item),
            Column("rating", "number", self.rating),
            Column("timestamp", "time", self.timestamp),
            *([Column("weight", "number", self.weight)] if self.weight is not None else []),
        ]

    def check_items(self, n_items: int, label: str) -> None:
        if n_items < 2 and not self.allow_small:
            raise InputError(f"{label} holds one item only; evenhand needs at least two items.")


def wanted_rows(
    loaded: Loaded,
    keep: np.ndarray,
    numbers: Mapping[str, np.ndarray | None],
    asked: ReadOptions,
    all_times: np.ndarray | None = None,
) -> dict[str, int]:
    """Unmark the rows of `keep` that do not count; for each reason, how many rows it was the first to leave out.

    Dates are understood in the unit of `all_times`, where the rows are a piece of a log; else in that of their own.
    """
    left_out = {"without an id": len(keep) - int(keep.sum())}

    def leave_out(rows: np.ndarray, why: str) -> None:
        left_out[why] = int((keep & rows).sum())
        np.logical_and(keep, ~rows, out=keep)

    if asked.since is not None or asked.until is not None:
        times = _column_for(loaded, numbers, "timestamp", "since or until")
        unit = times if all_times is None else all_times
        leave_out(np.isnan(times), "without a timestamp")
        if asked.since is not None:
            leave_out(times < as_moment(asked.since, unit, "since"), f"before {asked.since}")
        if asked.until is not None:
            leave_out(times >= as_moment(asked.until, unit, "until"), f"from {asked.until} on")
    if asked.min_rating is not None:
        ratings = _column_for(loaded, numbers, "rating", "min_rating")
        leave_out(ratings < asked.min_rating, f"with a rating below {asked.min_rating:g}")
        leave_out(np.isnan(ratings), "without a rating")
    return left_out


def skipped(left_out: Mapping[str, int]) -> list[str]:
    """What to say of rows that were left out.

    >>> skipped({"without an id": 1, "without a rating": 0})
    ['1 row without an id skipped']
    """
    return [f"{count(n, 'row')} {why} skipped" for why, n in left_out.items() if n]


def no_such_rating(label: str, min_rating: float) -> InputError:
    return InputError(f"no row of {label} has a rating of at least {min_rating:g}; lower min_rating.")


def _column_for(loaded: Loaded, numbers: Mapping[str, np.ndarray | None], role: str, option: str) -> np.ndarray:
    if role not in loaded.names:
        raise InputError(f"{loaded.label} has no {role} column for {option}; name it with {role}= or --{role}.")
    values = numbers[role]
    return np.full(len(loaded), np.nan) if values is None else values


def net_purchases(
    users: np.ndarray, items: np.ndarray, n_items: int, amounts: np.ndarray | None, keep: np.ndarray, label: str
) -> tuple[np.ndarray, list[str]]:
    """bool [n_rows]: the rows of positive amount whose pair is positive in sum; and what to say of the others."""
    if amounts is None:
        raise InputError(f"the weight column of {label} holds no number.")
    cleaned: list[str] = []
    absent = np.isnan(amounts) & keep
    if absent.any():
        cleaned.append(f"{count(int(absent.sum()), 'row')} without an amount skipped")
    rows = np.flatnonzero(keep & ~absent)
    _, pair = np.unique(pair_keys(users[rows], items[rows], n_items), return_inverse=True)
    own = amounts[rows]
    bought = np.bincount(pair, own) > _NOTHING * np.bincount(pair, np.abs(own))
    if not bought.all():
        cleaned.append(f"{count(int((~bought).sum()), 'pair')} netted to zero")
    wanted = np.zeros(len(users), dtype=bool)
    wanted[rows] = bought[pair] & (own > 0)
    return wanted, cleaned


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
        # Text is an integer if it is just how that one is written, as '007' is not.
        exact = loaded.is_text and pc.all(pc.match_substring_regex(values.drop_null(), r"^(0|-?[1-9][0-9]*)$")).as_py()
        return _int64_or_string(values) if exact else values
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


def looked_up(ids: pa.Array, vocabulary: pa.Array) -> pa.Array:
    """Where each id stands in a vocabulary, null where it does not; ids of two types are compared by their text."""
    if ids.type != vocabulary.type:
        ids, vocabulary = ids.cast(pa.string()), vocabulary.cast(pa.string())
    return pc.index_in(ids, value_set=vocabulary)


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
