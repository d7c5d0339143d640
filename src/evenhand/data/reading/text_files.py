"""Text files: delimited (csv, tsv, dat…), lines of `user item item …`, and JSON lines.

A name like log.txt only hints at how a file is written, so its first line decides. Arrow parses fast but says
little of what went wrong, so a file that it refuses is read again to name the line. It makes a column of every key in a
JSON file and follows brackets as deep as they go, so a few kilobytes could fill the memory or end the process: that
text is looked at first, which takes as long as parsing it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from evenhand.data.reading.codes import Codes
from evenhand.data.reading.columns import Column, Loaded, NoRowsError, gather, pick, without_folder
from evenhand.data.reading.sources import TEXT_ENDINGS, File
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, first_line_of

HEADERLESS_ENDINGS = (".dat", ".data")
SEPARATORS = ("\t", "::", ",", ";", "|")
FIRST_LINE = 1 << 20
"""Bytes that a first line may have; room for some hundred thousand column names."""
UNIT_SEPARATOR = "\x1f"
"""Stands in for `::`, since Arrow splits at single characters only."""
_BLOCK = 2**20
"""Bytes of text that are parsed at once; also how far a quote may be left open before that is an error."""
_MOST_DIGITS = 18
DEEPEST = 100
LONGEST = 1 << 20
"""Bytes of a line of JSON, which is also what is looked at at once."""
MOST_CELLS = 1 << 24
"""Of the table of a JSON file: lines times keys. More are allowed where the file is large enough to fill them."""
_PLAIN_KEY = re.compile(rb'"([^"]*+)"\s*+:')
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?', re.DOTALL)


@dataclass(frozen=True)
class TextFile:
    """One text file and how it is written."""

    file: File
    separator: str
    header: bool
    fields: tuple[str, ...]
    """The fields of the first line that is not empty."""
    start: int
    """Where the rows begin, in bytes."""
    encoding: str = "utf8"

    @property
    def label(self) -> str:
        return self.file.label

    @property
    def delimiter(self) -> str:
        return UNIT_SEPARATOR if self.separator == "::" else self.separator

    @property
    def quoted(self) -> bool:
        return self.separator != "::"

    def rows(self, content: IO[bytes]) -> IO[bytes]:
        return io.BufferedReader(SingleSeparator(content)) if self.separator == "::" else content

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, fields) of each record, header included: slow, so only for explaining a mistake."""
        with self.file.open_text() as content:
            lines = io.TextIOWrapper(self.rows(content), "utf-8-sig", errors="replace", newline="")
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


def load_text(file: File, columns: Sequence[Column], header: bool | None) -> Loaded:
    # Titles may be in the Latin alphabet's older encoding; ids must match those of other files, so they may not.
    latin = any(column.kind in ("text", "any") for column in columns)
    start, first, encoding = _first_line(file, latin)
    if header is not True and {"user", "item"} <= {c.role for c in columns if c.kind == "id"} and _lists_items(first):
        return _load_item_lines(file, columns)
    text = _survey(file, start, first, encoding, header)
    if text.header:
        names = [name.strip() for name in text.fields]
        chosen = pick(columns, names, text.label)
    else:
        names = [column.role for column in columns][: len(text.fields)]
        chosen = _pick_by_position(columns, text)
    codes, table = _parse(text, chosen, columns, latin)
    if text.encoding == "utf8" and any(pa.types.is_binary(kind) for kind in table.schema.types):
        codes, table = _parse(replace(text, encoding="latin1"), chosen, columns, latin)
    return Loaded(
        label=text.label,
        codes=codes,
        table=table,
        names={role: names[place] for role, place in chosen.items()},
        place=text.place,
        is_text=True,
        header=text.header,
    )


def text_column_names(file: File) -> list[str]:
    """What its columns are called; without a header, by what stands where; nothing where it is empty."""
    try:
        start, first, encoding = _first_line(file, latin=True)
    except NoRowsError:
        return []
    if _lists_items(first):
        return ["user", "item"]
    text = _survey(file, start, first, encoding, None)
    by_place = ["user", "item", "rating", "timestamp"][: len(text.fields)]
    return [name.strip() for name in text.fields] if text.header else by_place


def _first_line(file: File, latin: bool) -> tuple[int, str, str]:
    """(where it begins, the first line that is not empty, its encoding)."""
    with file.open_text() as content:
        start = 3 if content.read(3) == b"\xef\xbb\xbf" else 0
        content.seek(start)
        line = content.readline(FIRST_LINE)
        while line and not line.strip(b"\r\n"):
            start, line = content.tell(), content.readline(FIRST_LINE)
    if not line:
        raise NoRowsError(f"{file.label} is empty.")
    if len(line) == FIRST_LINE and not line.endswith(b"\n"):
        raise InputError(f"the first line of {file.label} is longer than {FIRST_LINE:,} bytes; is it a table?")
    encoding = "utf8"
    try:
        first = line.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin1"
        first = line.decode(encoding) if latin else "\0"
    if "\0" in first:
        raise InputError(f"{file.label} is not UTF-8 text; give a csv, tsv, dat or parquet file.")
    return start, first, encoding


def _survey(file: File, start: int, line: str, encoding: str, header: bool | None) -> TextFile:
    first = line.rstrip("\r\n")
    expected = TEXT_ENDINGS.get(file.ending)
    order = SEPARATORS if expected is None else (expected, *SEPARATORS)
    separator = next((one for one in order if one in first), expected)
    if separator is None:
        raise InputError(f"cannot tell what kind of file {file.label} is; name it .csv, .tsv, .dat or .parquet.")
    header = file.ending not in HEADERLESS_ENDINGS if header is None else header
    try:
        fields = first.split("::") if separator == "::" else next(csv.reader([first], delimiter=separator))
    except csv.Error as error:
        raise InputError(f"the first line of {file.label} cannot be read: {first_line_of(error)}.") from None
    after = start + len(line.encode(encoding))
    return TextFile(file, separator, header, tuple(fields), after if header else start, encoding)


def _pick_by_position(columns: Sequence[Column], text: TextFile) -> dict[str, int]:
    n_fields = len(text.fields)
    if any(column.name is not None for column in columns[n_fields:]):
        order = ", ".join(column.role for column in columns)
        have = count(n_fields, "column")
        raise InputError(f"{text.label} has {have} in its first line; without a header it must hold {order}.")
    return {column.role: place for place, column in enumerate(columns[:n_fields])}


def _parse(
    text: TextFile, chosen: dict[str, int], columns: Sequence[Column], latin: bool
) -> tuple[dict[str, Codes], pa.Table]:
    """Block by block where that works; Arrow guesses a type from the first block and fails where it is wrong.

    What cannot be read even in one block is explained.
    """
    places = dict(zip(chosen, range(len(chosen)), strict=True))
    for kinds in (("number", "time", "text"), ("number", "text")):
        with text.file.open_text() as content, suppress(pa.ArrowInvalid):
            content.seek(text.start)
            reader = arrow_csv.open_csv(text.rows(content), **_options(text, chosen, columns, kinds, _BLOCK))
            return gather(reader, places, columns)
    with text.file.open_text() as content:
        content.seek(text.start)
        try:
            table = arrow_csv.read_csv(text.rows(content), **_options(text, chosen, columns, ("text",), None))
        except pa.ArrowInvalid as error:
            if latin and text.encoding == "utf8" and "UTF8" in str(error):
                return _parse(replace(text, encoding="latin1"), chosen, columns, latin)
            raise _explain(error, text) from None
    return gather(table.to_batches(), places, columns)


def _options(
    text: TextFile, chosen: dict[str, int], columns: Sequence[Column], kinds: tuple[str, ...], block: int | None
) -> dict[str, Any]:
    """Columns are called by their position, so that odd or repeated names in the file do no harm.

    Those of `kinds` are read as numbers or text; the types of others are guessed, but ids are texts.
    """
    wanted = {"id": pa.dictionary(pa.int32(), pa.string()), "text": pa.string()}
    types = {
        str(chosen[column.role]): wanted.get(column.kind, pa.float64())
        for column in columns
        if column.role in chosen and column.kind in ("id", *kinds)
    }
    names = [str(i) for i in range(len(text.fields))]
    return {
        "read_options": arrow_csv.ReadOptions(column_names=names, block_size=block, encoding=text.encoding),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=text.delimiter, quote_char='"' if text.quoted else False, newlines_in_values=text.quoted
        ),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=[str(place) for place in chosen.values()],
            null_values=[""],
            strings_can_be_null=True,
        ),
    }


def _explain(error: pa.ArrowInvalid, text: TextFile) -> InputError:
    message = first_line_of(error)
    if "Empty CSV" in message:
        return NoRowsError(f"{text.label} has column names but no rows; give a table with at least one row.")
    if "UTF8" in message:
        return InputError(f"{text.label} is not UTF-8 text; save it in UTF-8.")
    wanted = len(text.fields)
    with suppress(csv.Error):
        for line, fields in text.records():
            if len(fields) != wanted:
                have = count(len(fields), "field")
                return InputError(
                    f"line {line} of {text.label} has {have} where the first line has {wanted}; correct it."
                )
    return InputError(f"{text.label} cannot be read as a table; is a quote left open in it? ({message})")


# Lines of a user and their items, as published splits for graph recommenders are written.


def _lists_items(first: str) -> bool:
    words = first.split()
    return len(words) > 1 and all(word.isdigit() for word in words) and not any(s in first for s in SEPARATORS)


def _load_item_lines(file: File, columns: Sequence[Column]) -> Loaded:
    users, items, order = read_item_lines(file)
    wanted = order is not None and any(column.role == "timestamp" for column in columns)
    codes = {"user": Codes(), "item": Codes()}
    codes["user"].add(pa.array(users))
    codes["item"].add(pa.array(items))
    return Loaded(
        label=file.label,
        codes=codes,
        table=pa.table({"timestamp": order} if wanted else {}),
        names={"user": "user", "item": "item"} | ({"timestamp": "timestamp"} if wanted else {}),
        place=lambda row: f"pair {row + 1}",
        notes=(
            f"{without_folder(file.label)} was read as lines of a user and their items"
            + (", which are in an order of their own: it was kept as time." if wanted else "."),
        ),
    )


def read_item_lines(file: File) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(user, item, order) of each pair in lines of `user item item …`, all whole numbers.

    Where most lines are not sorted, the order says more than the ids do, mostly what came first: then it is the place
    in the line, as a share of it in (0, 1]. Else it is None.
    """
    users: list[np.ndarray] = [np.zeros(0, dtype=np.int64)]
    items = list(users)
    order = [np.zeros(0)]
    unsorted = several = 0
    with file.open_text() as content:
        for number, line in enumerate(content, start=1):
            words = line.split()
            if not all(word.isdigit() and len(word) <= _MOST_DIGITS for word in words):
                raise InputError(f"{file.label}, line {number}: expected a user and its items, all whole numbers.")
            if words:
                ids = np.array(words, dtype="S").astype(np.int64)
                users.append(np.repeat(ids[:1], len(ids) - 1))
                items.append(ids[1:])
                order.append(np.arange(1, len(ids)) / max(1, len(ids) - 1))
                several += len(ids) > 2
                unsorted += bool((np.diff(ids[1:]) < 0).any())
    kept = np.concatenate(order) if 2 * unsorted > several else None
    return np.concatenate(users), np.concatenate(items), kept


class SingleSeparator(io.RawIOBase):
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
                long = _first_that(lines, lambda line: len(line) >= LONGEST)
                raise InputError(f"line {done + long} of {label} is longer than {LONGEST:,} bytes.")
            objects = chunk.startswith(b"{") + chunk.count(b"\n{")
            # Arrow dies of a line that is `null`.
            if objects + lines.count(b"") < len(lines) and (stray := _first_that(lines, _is_no_object)):
                raise InputError(f"line {done + stray} of {label} is not a JSON object.")
            # Of lines that hold one object and no list none can be nested deep.
            if chunk.count(b"[") + chunk.count(b"{") - objects >= DEEPEST and (deep := _first_that(lines, _is_deep)):
                raise InputError(f"line {done + deep} of {label} is nested more than {DEEPEST} deep.")
            if b"\\" in chunk:
                keys |= {name for name, colon in _STRING.findall(chunk) if colon}
            else:
                keys |= set(_PLAIN_KEY.findall(chunk))
            done, size = done + chunk.count(b"\n"), size + len(chunk)
            # Every key becomes a column over all lines, however few of them have it.
            if len(keys) * done > max(MOST_CELLS, 4 * size):
                raise InputError(
                    f"{label} has {len(keys):,} different keys in {done:,} lines, most of them in few lines; "
                    "keep only the columns that are needed."
                )
    if not size:
        raise NoRowsError(f"{label} is empty.")


def _first_that(lines: list[bytes], is_wrong: Callable[[bytes], bool]) -> int:
    """Its number from 1, 0 where there is none."""
    return next((number for number, line in enumerate(lines, 1) if is_wrong(line)), 0)


def _is_no_object(line: bytes) -> bool:
    return line.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"", b"{")


def _is_deep(line: bytes) -> bool:
    """Whether brackets are nested that deep, those in texts aside."""
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return False
    signs = np.frombuffer(_STRING.sub(b"", line), dtype=np.uint8)
    opens, closes = (np.isin(signs, list(pair)).astype(np.int64) for pair in (b"[{", b"]}"))
    return int(np.cumsum(opens - closes).max(initial=0)) > DEEPEST
