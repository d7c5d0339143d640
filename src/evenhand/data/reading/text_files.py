"""Delimited text (csv, tsv, dat…) into codes and an Arrow table.

A name like log.txt only hints at how a file is written, so its first line decides. Arrow parses fast but says
little of what went wrong, so a file that it refuses is read again to name the line.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from evenhand.data.reading.codes import Codes
from evenhand.data.reading.columns import Column, Loaded, first_line_of, gather, pick, source_label
from evenhand.utils.errors import InputError

TEXT_ENDINGS = {".csv": ",", ".tsv": "\t", ".dat": "::", ".data": "\t", ".inter": "\t", ".txt": "\t"}
"""Text files we know by name, and the separator to expect first."""
HEADERLESS_ENDINGS = (".dat", ".data")
SEPARATORS = ("\t", "::", ",", ";", "|")
FIRST_LINE = 1 << 20
"""Bytes that a first line may have; room for some hundred thousand column names."""
MOST_UNPACKED, MOST_TIMES = 1 << 28, 200
"""A .gz file may grow to so many bytes, or to so many times its size; logs grow some ten times."""
UNIT_SEPARATOR = "\x1f"
"""Stands in for `::`, since Arrow splits at single characters only."""


@dataclass(frozen=True)
class TextFile:
    """One text file and how it is to be read."""

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
        return io.BufferedReader(SingleSeparator(file)) if self.separator == "::" else file

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, fields) of each record, header included: slow, so only for explaining a mistake."""
        with open_text(self.path) as file:
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


def survey(path: Path, header: bool | None) -> TextFile:
    """Look at the first line to learn how the file is written."""
    label = source_label(path)
    with open_text(path) as file:
        start = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        file.seek(start)
        line = file.readline(FIRST_LINE)
        while line and not line.strip(b"\r\n"):
            start, line = file.tell(), file.readline(FIRST_LINE)
        after = file.tell()
    if not line:
        raise InputError(f"{label} is empty.")
    if len(line) == FIRST_LINE and not line.endswith(b"\n"):
        raise InputError(f"the first line of {label} is longer than {FIRST_LINE:,} bytes; is it a table?")
    try:
        first = line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        first = "\0"
    if "\0" in first:
        raise InputError(f"{label} is not UTF-8 text; give a csv, tsv, dat or parquet file.")
    ending = text_ending(path)
    separator = _separator(first, ending)
    if separator is None:
        raise InputError(f"cannot tell what kind of file {label} is; name it .csv, .tsv, .dat or .parquet.")
    header = ending not in HEADERLESS_ENDINGS if header is None else header
    fields = first.split("::") if separator == "::" else _csv_fields(first, separator, label)
    return TextFile(path, label, separator, header, tuple(fields), after if header else start)


def text_ending(path: Path) -> str:
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _separator(first: str, ending: str) -> str | None:
    expected = TEXT_ENDINGS.get(ending)
    order = SEPARATORS if expected is None else (expected, *SEPARATORS)
    return next((separator for separator in order if separator in first), expected)


def _csv_fields(line: str, separator: str, label: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator))
    except csv.Error as error:
        raise InputError(f"the first line of {label} cannot be read: {first_line_of(error)}.") from None


def open_text(path: Path) -> IO[bytes]:
    return Unpacking(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


class Unpacking(gzip.GzipFile):
    """A .gz file as it reads unpacked, up to a size that no honest log has."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._most = max(MOST_UNPACKED, MOST_TIMES * path.stat().st_size)
        self._label = source_label(path)

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._counted(super().readline(size))

    def _counted(self, content: bytes) -> bytes:
        if self.tell() > self._most:
            raise InputError(f"{self._label} unpacks to more than {self._most:,} bytes; unpack it first.")
        return content


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


_BLOCK = 2**20
"""Bytes of text that are parsed at once; also how far a quote may be left open before that is an error."""


def load_text(path: Path, columns: Sequence[Column], header: bool | None) -> Loaded:
    text = survey(path, header)
    if text.header:
        names = [name.strip() for name in text.fields]
        chosen = pick(columns, names, text.label)
    else:
        names = [column.role for column in columns][: len(text.fields)]
        chosen = _pick_by_position(columns, text)
    codes, table = _parse(text, chosen, columns)
    return Loaded(
        label=text.label,
        codes=codes,
        table=table,
        names={role: names[place] for role, place in chosen.items()},
        place=text.place,
        is_text=True,
        header=text.header,
    )


def _pick_by_position(columns: Sequence[Column], text: TextFile) -> dict[str, int]:
    n_fields = len(text.fields)
    if any(column.name is not None for column in columns[n_fields:]):
        order = ", ".join(column.role for column in columns)
        have = _count(n_fields, "column")
        raise InputError(f"{text.label} has {have} in its first line; without a header it must hold {order}.")
    return {column.role: place for place, column in enumerate(columns[:n_fields])}


def _parse(text: TextFile, chosen: dict[str, int], columns: Sequence[Column]) -> tuple[dict[str, Codes], pa.Table]:
    """Block by block where that works; Arrow guesses a type from the first block and fails where it is wrong.

    What cannot be read even as a whole is explained.
    """
    for kinds in (("number", "time"), ("number",)):
        with open_text(text.path) as file, suppress(pa.ArrowInvalid):
            file.seek(text.start)
            reader = arrow_csv.open_csv(text.rows(file), **_options(text, chosen, columns, kinds, _BLOCK))
            return gather(reader, dict(zip(chosen, range(len(chosen)), strict=True)), columns)
    with open_text(text.path) as file:
        file.seek(text.start)
        try:
            table = arrow_csv.read_csv(text.rows(file), **_options(text, chosen, columns, (), None))
        except pa.ArrowInvalid as error:
            raise _explain(error, text) from None
    return gather(table.to_batches(), dict(zip(chosen, range(len(chosen)), strict=True)), columns)


def _options(
    text: TextFile,
    chosen: dict[str, int],
    columns: Sequence[Column],
    kinds: tuple[str, ...],
    block: int | None,
) -> dict[str, Any]:
    """Columns are called by their position, so that odd or repeated names in the file do no harm.

    Those of `kinds` are read as numbers; the types of others are guessed, but ids are texts.
    """
    types: dict[str, pa.DataType] = {}
    for column in columns:
        if column.role in chosen and column.kind in ("id", *kinds):
            wanted = pa.dictionary(pa.int32(), pa.string()) if column.kind == "id" else pa.float64()
            types[str(chosen[column.role])] = wanted
    return {
        "read_options": arrow_csv.ReadOptions(column_names=[str(i) for i in range(len(text.fields))], block_size=block),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=text.delimiter,
            quote_char='"' if text.quoted else False,
            newlines_in_values=text.quoted,
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
