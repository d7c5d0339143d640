"""Tables from files and frames, with ids as small integers and mistakes named by file, column and line.

Logs come in many spellings and with many faults; everything past this module sees one clean form, and
nobody has to read a traceback to learn that line 17 lacks an item.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError

PARQUET_ENDINGS = (".parquet", ".pq")
TEXT_ENDINGS = {".csv": ",", ".tsv": "\t", ".dat": "::", ".data": "\t", ".inter": "\t", ".txt": "\t"}
"""Text files we know by name, and the separator to expect first."""
HEADERLESS_ENDINGS = (".dat", ".data")
SEPARATORS = ("\t", "::", ",", ";", "|")
UNIT_SEPARATOR = "\x1f"
"""Stands in for `::`, since Arrow splits at single characters only."""
MISSING_NUMBERS = ["", "na", "nan", "null", "none"]
WANTED = {"number": "a number", "time": "a number or an ISO date"}
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Column:
    """One column to read: what it is for, what it holds, and what the source calls it."""

    role: str
    """Its name in the result, and the option by which a person names the source's column."""
    kind: Literal["id", "number", "time"]
    name: str | None = None
    """Its name in the source, where it must exist; None: optional, a column called `role` is taken."""


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
    table = read_columns(
        source,
        [
            Column("user", "id", user),
            Column("item", "id", item),
            Column("rating", "number", rating),
            Column("timestamp", "time", timestamp),
        ],
        header=header,
    )
    notes: tuple[str, ...] = ()
    if min_rating is not None:
        table, notes = _keep_rated(table, min_rating, source_label(source))
    users, user_ids = _codes_and_ids(table["user"])
    items, item_ids = _codes_and_ids(table["item"])
    if len(item_ids) < 2 and not allow_small:
        raise InputError(f"{source_label(source)} holds one item only; evenhand needs at least two items.")
    return Interactions.from_pairs(
        users,
        items,
        ratings=_optional_numbers(table, "rating"),
        timestamps=_optional_numbers(table, "timestamp"),
        user_ids=user_ids,
        item_ids=item_ids,
        notes=notes,
    )


def read_columns(source: Any, columns: Sequence[Column], *, header: bool | None = None) -> pa.Table:
    """The wanted columns of a file or Arrow-speaking table, named by their roles, in the given order.

    Ids come dictionary-encoded over their sorted unique values (int64 or string) and are never null;
    numbers and times come as float64, null where missing. Optional columns may be absent from the result.
    A text file without a header holds `columns` by position, whatever their names.
    """
    loaded = _load(source, columns, header)
    if not loaded.table.num_rows:
        raise InputError(f"{loaded.label} has column names but no rows; give a table with at least one row.")
    kinds = {column.role: column.kind for column in columns}
    arrays = {
        role: _encode_ids(loaded, role) if kinds[role] == "id" else _to_numbers(loaded, role, kinds[role])
        for role in loaded.table.column_names
    }
    return pa.table(arrays)


def source_label(source: Any) -> str:
    """How messages call a source: a file by its path in quotes, anything else by its type."""
    if isinstance(source, str | os.PathLike):
        return f"'{os.fspath(source)}'"
    return f"the {type(source).__name__}"


# Loading: any source becomes one table whose columns are named by role.


@dataclass(frozen=True)
class _Loaded:
    label: str
    table: pa.Table
    names: dict[str, str]
    """role → what the source calls it, for messages."""
    place: Callable[[int], str]
    """row (from 0) → where a person finds it: 'line 17' or 'row 16'."""
    is_text: bool = False
    header: bool = True


def _load(source: Any, columns: Sequence[Column], header: bool | None) -> _Loaded:
    if isinstance(source, str | os.PathLike):
        return _load_file(Path(source), columns, header)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _load_frame(source, columns)
    raise InputError(
        f"cannot read {source_label(source)}; give a path or a table of pandas, polars or pyarrow."
    )


def _load_frame(source: Any, columns: Sequence[Column]) -> _Loaded:
    label = source_label(source)
    try:
        table = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"{label} cannot be turned into an Arrow table: {'; '.join(map(str, error.args))}."
        ) from None
    return _typed(table, _pick(columns, table.column_names, label), label)


def _load_parquet(path: Path, columns: Sequence[Column]) -> _Loaded:
    import pyarrow.parquet as pq

    label = source_label(path)
    try:
        schema = pq.read_schema(path)
        chosen = _pick(columns, schema.names, label)
        names = [schema.names[place] for place in chosen.values()]
        strings = [name for name in names if _is_string(schema.field(name).type)]
        table = pq.ParquetFile(path, read_dictionary=strings).read(columns=names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{label} cannot be read as a parquet file: {_first_line_of(error)}.") from None
    return _typed(table, _pick(columns, table.column_names, label), label)


def _typed(table: pa.Table, chosen: dict[str, int], label: str) -> _Loaded:
    return _Loaded(
        label=label,
        table=pa.table({role: table.column(place) for role, place in chosen.items()}),
        names={role: table.column_names[place] for role, place in chosen.items()},
        place=lambda row: f"row {row + 1}",
    )


def _load_file(path: Path, columns: Sequence[Column], header: bool | None) -> _Loaded:
    label = source_label(path)
    if path.is_dir():
        raise InputError(f"{label} is a folder; give one file.")
    if not path.exists():
        raise InputError(f"there is no file {label}.")
    try:
        if path.suffix.lower() in PARQUET_ENDINGS or _starts_like_parquet(path):
            return _load_parquet(path, columns)
        return _load_text(path, columns, header)
    except (OSError, EOFError) as error:
        raise InputError(f"{label} cannot be read: {_first_line_of(error)}.") from None


def _starts_like_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() not in TEXT_ENDINGS and file.read(4) == b"PAR1"


def _pick(columns: Sequence[Column], names: Sequence[str], label: str) -> dict[str, int]:
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
            raise _no_column(column.role, name, names, label)
    return chosen


def _no_column(role: str, name: str, names: Sequence[str], label: str) -> InputError:
    lowered = {there.lower(): there for there in names}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean '{lowered[near[0]]}'? Name it with {role}= or --{role}"
    elif any(there.strip().isdigit() for there in names):
        hint = "if the file starts without column names, say header=False (--no-header)"
    else:
        hint = f"name the right one with {role}= or --{role}"
    return InputError(f"{label} has no column '{name}' (it has {', '.join(names)}); {hint}.")


# Delimited text.


class _SingleSeparator(io.RawIOBase):
    """A byte stream in which every `::` reads as one control character, wherever the chunks break."""

    def __init__(self, source: IO[bytes], chunk: int = 1 << 20) -> None:
        self._source, self._chunk = source, chunk
        self._held, self._ready = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            chunk = self._source.read(self._chunk)
            if not chunk and not self._held:
                return 0
            text = self._held + chunk
            # An odd colon at the end may be the first half of a separator, unless the file ends here.
            odd = (len(text) - len(text.rstrip(b":"))) % 2 if chunk else 0
            end = len(text) - odd
            self._held = text[end:]
            self._ready = memoryview(text[:end].replace(b"::", UNIT_SEPARATOR.encode()))
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


@dataclass(frozen=True)
class _Text:
    """How one text file is to be read."""

    path: Path
    label: str
    separator: str
    header: bool
    fields: tuple[str, ...]
    """The fields of the first line that is not empty."""
    start: int
    """Where the rows begin, in bytes."""

    @property
    def delimiter(self) -> str:
        return UNIT_SEPARATOR if self.separator == "::" else self.separator

    @property
    def quoted(self) -> bool:
        return self.separator != "::"

    def rows(self, file: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(_SingleSeparator(file)) if self.separator == "::" else file

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, fields) of each record, header included: slow, so only for explaining a mistake."""
        with _open(self.path) as file:
            lines = io.TextIOWrapper(self.rows(file), "utf-8-sig", errors="replace", newline="")
            quote = '"' if self.quoted else None
            reader = csv.reader(lines, delimiter=self.delimiter, quotechar=quote)
            line = 1
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1

    def place(self, row: int) -> str:
        try:
            line, _ = next(islice(self.records(), row + self.header, None))
        except (StopIteration, csv.Error):
            return f"row {row + 1}"
        return f"line {line}"


def _load_text(path: Path, columns: Sequence[Column], header: bool | None) -> _Loaded:
    text = _survey(path, header)
    if text.header:
        names = [name.strip() for name in text.fields]
        chosen = _pick(columns, names, text.label)
    else:
        names = [column.role for column in columns][: len(text.fields)]
        chosen = _pick_by_position(columns, text)
    ids = {str(chosen[column.role]) for column in columns if column.kind == "id" and column.role in chosen}
    table = _parse(text, [str(place) for place in chosen.values()], ids)
    return _Loaded(
        label=text.label,
        table=table.rename_columns(list(chosen)),
        names={role: names[place] for role, place in chosen.items()},
        place=text.place,
        is_text=True,
        header=text.header,
    )


def _pick_by_position(columns: Sequence[Column], text: _Text) -> dict[str, int]:
    n_fields = len(text.fields)
    if any(column.name is not None for column in columns[n_fields:]):
        order = ", ".join(column.role for column in columns)
        have = _count(n_fields, "column")
        raise InputError(f"{text.label} has {have} in its first line; without a header it must hold {order}.")
    return {column.role: place for place, column in enumerate(columns[:n_fields])}


def _survey(path: Path, header: bool | None) -> _Text:
    """Look at the first line to learn how the file is written."""
    label = source_label(path)
    with _open(path) as file:
        start = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        file.seek(start)
        line = file.readline(1 << 20)
        while line and not line.strip(b"\r\n"):
            start, line = file.tell(), file.readline(1 << 20)
        after = file.tell()
    if not line:
        raise InputError(f"{label} is empty.")
    try:
        first = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        first = "\0"
    if "\0" in first:
        raise InputError(f"{label} is not UTF-8 text; give a csv, tsv, dat or parquet file.")
    ending = _text_ending(path)
    separator = _separator(first, ending)
    if separator is None:
        raise InputError(f"cannot tell what kind of file {label} is; name it .csv, .tsv, .dat or .parquet.")
    header = ending not in HEADERLESS_ENDINGS if header is None else header
    fields = first.split("::") if separator == "::" else _csv_fields(first, separator, label)
    return _Text(path, label, separator, header, tuple(fields), after if header else start)


def _text_ending(path: Path) -> str:
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _separator(first: str, ending: str) -> str | None:
    expected = TEXT_ENDINGS.get(ending)
    order = SEPARATORS if expected is None else (expected, *SEPARATORS)
    return next((separator for separator in order if separator in first), expected)


def _csv_fields(line: str, separator: str, label: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error as error:
        raise InputError(f"the first line of {label} cannot be read: {_first_line_of(error)}.") from None


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _parse(text: _Text, include: list[str], ids: set[str]) -> pa.Table:
    """Columns are called by their position, so that odd or repeated names in the file do no harm."""
    with _open(text.path) as file:
        file.seek(text.start)
        try:
            return arrow_csv.read_csv(
                text.rows(file),
                read_options=arrow_csv.ReadOptions(column_names=[str(i) for i in range(len(text.fields))]),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=text.delimiter,
                    quote_char='"' if text.quoted else False,
                    newlines_in_values=text.quoted,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: pa.dictionary(pa.int32(), pa.string()) for name in ids},
                    include_columns=include,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise _explain(error, text) from None


def _explain(error: pa.ArrowInvalid, text: _Text) -> InputError:
    message = _first_line_of(error)
    if "Empty CSV" in message:
        return InputError(f"{text.label} has column names but no rows; give a table with at least one row.")
    if "UTF8" in message:
        return InputError(f"{text.label} is not UTF-8 text; save it in UTF-8.")
    wanted = len(text.fields)
    try:
        for line, fields in text.records():
            if len(fields) != wanted:
                have = _count(len(fields), "field")
                return InputError(
                    f"line {line} of {text.label} has {have} where the first line has {wanted}; correct it."
                )
    except csv.Error:
        pass
    return InputError(f"{text.label} cannot be read as a table; is a quote left open in it? ({message})")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _first_line_of(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


# Ids.


def _encode_ids(loaded: _Loaded, role: str) -> pa.DictionaryArray:
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
        raise InputError(f"{_called(loaded, role)} has no id in {where}; fill it in or drop such rows.")
    vocabulary = pc.unique(ids)
    vocabulary = vocabulary.take(pc.sort_indices(vocabulary))
    codes = np.asarray(pc.index_in(ids, value_set=vocabulary))[codes]
    return _compact(codes, vocabulary)


def _id_column(loaded: _Loaded, role: str) -> pa.ChunkedArray:
    """The column in a type that can be an id: integers or strings, dictionary-encoded or not."""
    column = loaded.table[role]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind) or _is_string(kind):
        return column
    if pa.types.is_floating(kind):
        try:
            whole = column.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            whole = None
        if whole is not None and not whole.null_count:
            return whole
        raise InputError(
            f"{_called(loaded, role)} has type {kind} with missing or fractional values; "
            "drop the rows without an id and convert the column to integers or strings."
        )
    raise InputError(f"{_called(loaded, role)} has type {kind}; ids must be integers or strings.")


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


def _codes_and_ids(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    compact = _compact(np.asarray(array.indices), array.dictionary)
    return np.asarray(compact.indices), compact.dictionary


def _is_string(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _called(loaded: _Loaded, role: str) -> str:
    return f"column '{loaded.names[role]}' of {loaded.label}"


# Numbers and times.


def _to_numbers(loaded: _Loaded, role: str, kind: str) -> pa.ChunkedArray:
    column = loaded.table[role]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_string(column.type):
        column = _parse_strings(column, loaded, role, kind)
    if kind == "time" and (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        return _seconds(column)
    try:
        return column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"{_called(loaded, role)} has type {column.type}, which is not {WANTED[kind]}."
        ) from None


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    ticks = column.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(ticks, float(TICKS_PER_SECOND[column.type.unit]))


def _parse_strings(column: pa.ChunkedArray, loaded: _Loaded, role: str, kind: str) -> pa.ChunkedArray:
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
        f"{_called(loaded, role)} has '{column[row]}' in {loaded.place(row)}, which is not {wanted}"
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


def _optional_numbers(table: pa.Table, role: str) -> np.ndarray | None:
    """The numbers with NaN where missing; None where there is no such column or nothing in it."""
    if role not in table.column_names or table[role].null_count == table.num_rows:
        return None
    return table[role].to_numpy()


def _keep_rated(table: pa.Table, min_rating: float, label: str) -> tuple[pa.Table, tuple[str, ...]]:
    if "rating" not in table.column_names:
        raise InputError(f"{label} has no rating column for min_rating; name it with rating= or --rating.")
    rating = table["rating"].to_numpy()
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
    return table.filter(pa.array(keep)), tuple(notes)
