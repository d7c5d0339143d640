"""Writes tables: as one parquet, csv or tsv file, a folder of numbered parquet files, or a table of PostgreSQL.

A reader never sees half a file. A table too large for one file is a folder, here or in an object store. Several
processes may write its parts, in any order; the manifest, which comes last, says how many rows and bytes each has and
what its SHA-256 is. Where it is missing the folder was not completed. Into a database rows go in one transaction:
readers see yesterday's lists or today's, never some of each. A password is given by the URI, by PGPASSWORD or in
~/.pgpass; no message, note or file of ours has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from evenhand.data.reading.sources import is_uri
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError, written_by_us
from evenhand.utils.text import first_line_of, one_line

ENDINGS = (".parquet", ".csv", ".tsv")
_FORMULA = "^[=+@\\t\\r-]"
_ACTS = "^=|^[+@\\t\\r-].*[(|!]"
"""What spreadsheets take for a formula, and what of it does something: not a phone number or a name on a network."""
MANIFEST, FORMAT = "_manifest.json", "evenhand parts 1"
"""A name with an underscore is no part of a table, to us and to other systems."""
_STORE_ERRORS = (pa.ArrowException, OSError)
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECRET = re.compile(r"(password|sslpassword)=[^&\s]*", re.IGNORECASE)


def check_target(path: Path, force: bool, endings: Sequence[str] = ENDINGS) -> None:
    """Refuse a file that could not be written later, before any work is done; no `endings`: any will do."""
    if endings and path.suffix not in endings:
        raise InputError(f"'{path}' must end in {', '.join(endings)}.")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already; choose another name or use --force.")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write to the folder {path.parent}.")


def formulas_noted(table: pa.Table, path: str | Path) -> list[str]:
    """A note where a spreadsheet that opens the file would run an id; ids are not changed, as they are looked up."""
    if Path(path).suffix not in (".csv", ".tsv"):
        return []
    texts = [table[name] for name in table.column_names if name != "title" and pa.types.is_string(table[name].type)]
    found = sum(pc.sum(pc.match_substring_regex(pc.unique(text), _ACTS)).as_py() or 0 for text in texts)
    if not found:
        return []
    return [f"{found:,} of the ids would be formulas to a spreadsheet; open the file as text, or write parquet."]


def write_table(table: pa.Table, path: Path) -> None:
    """Write parquet, csv or tsv by the ending; a reader never sees half a file."""
    with written(path) as partial:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, partial, compression="zstd")
        else:
            with partial.open("wb") as sink:
                write_csv(table, sink, "\t" if path.suffix == ".tsv" else ",")


def write_text(path: Path, text: str) -> None:
    with written(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of `path` at the end; a full disk is reported in one sentence."""
    try:
        with atomic_file(path) as partial:
            yield partial
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or problem}.") from problem


def write_csv(table: pa.Table, sink: Any, delimiter: str = ",") -> None:
    """Ids as they are, for programs that look them up; a title that a spreadsheet would run as a formula as a text."""
    from pyarrow import csv

    if "title" in table.column_names:
        titles = table["title"].cast(pa.string())
        quoted = pc.binary_join_element_wise("'", titles, "")
        place = table.column_names.index("title")
        table = table.set_column(place, "title", pc.if_else(pc.match_substring_regex(titles, _FORMULA), quoted, titles))
    csv.write_csv(table, sink, csv.WriteOptions(delimiter=delimiter, quoting_style="needed"))


@dataclass(frozen=True)
class Part:
    """One file, as the manifest names it."""

    file: str
    rows: int
    bytes: int
    sha256: str


class PartsFolder:
    """A folder of parts to write, or to check before it is read."""

    def __init__(self, place: str) -> None:
        self.label = f"'{place}'"
        with self._reaching():
            system, path = fs.FileSystem.from_uri(place) if is_uri(place) else (fs.LocalFileSystem(), str(Path(place)))
        self._system, self._path = system, path.rstrip("/")

    def check_target(self, force: bool) -> None:
        """Refuse a place that must not be written to, before any work is done."""
        if self._type("") == fs.FileType.File:
            raise InputError(f"{self.label} is a file; name a folder.")
        if not force and self._names():
            raise InputError(f"{self.label} is not empty; choose another folder or use --force.")

    def open(self) -> None:
        """Before the first part is written: an older manifest must not vouch for new parts."""
        if MANIFEST in self._names():
            self._system.delete_file(self._inside(MANIFEST))
        elif isinstance(self._system, fs.LocalFileSystem):  # an object store has no folders
            try:
                Path(self._path).mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise InputError(f"cannot write to {self.label}: {problem.strerror or problem}.") from problem

    def write(self, number: int, table: pa.Table) -> Part:
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        content, name = sink.getvalue(), f"part-{number:05d}.parquet"
        self._put(name, content)
        return Part(name, len(table), len(content), hashlib.sha256(content).hexdigest())

    def close(self, parts: Sequence[Part], **more: Any) -> None:
        """Remove parts of an older table, and write the manifest."""
        kept = {part.file for part in parts}
        for name in self._names():
            if name.startswith("part-") and name.endswith(".parquet") and name not in kept:
                self._system.delete_file(self._inside(name))
        document = {"format": FORMAT, "rows": sum(part.rows for part in parts), **more}
        document["parts"] = [asdict(part) for part in sorted(parts, key=lambda part: part.file)]
        self._put(MANIFEST, (json.dumps(document, indent=1) + "\n").encode())

    def manifest(self) -> Mapping[str, Any] | None:
        """What was written of it, once all parts that it names are here in the right size; None without one."""
        if self._type(MANIFEST) != fs.FileType.File:
            return None
        with written_by_us(self.label, f"a {MANIFEST}", "write the parts again"):
            with self._system.open_input_stream(self._inside(MANIFEST)) as source:
                document = json.loads(source.read())
            there = self._names()
            for part in (Part(**one) for one in document["parts"]):
                if there.get(part.file) != part.bytes:
                    what = "was changed" if part.file in there else "is missing"
                    raise InputError(f"{part.file} of {self.label} {what} since its {MANIFEST} was written.")
            more = sorted(set(there) - {part["file"] for part in document["parts"]} - {MANIFEST})
            if more:
                raise InputError(f"{self.label} holds {more[0]}, which its {MANIFEST} does not name; move it away.")
        return dict(document)

    def _names(self) -> dict[str, int]:
        """The files that are directly in the folder, with their sizes."""
        with self._reaching():
            below = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return {one.base_name: one.size for one in below if one.type == fs.FileType.File}

    def _type(self, name: str) -> Any:
        with self._reaching():
            return self._system.get_file_info(self._inside(name) if name else self._path).type

    def _put(self, name: str, content: Any) -> None:
        """As a whole or not at all: a store shows an object when it is complete."""
        try:
            if isinstance(self._system, fs.LocalFileSystem):
                with atomic_file(Path(self._inside(name))) as partial:
                    partial.write_bytes(content)
            else:
                with self._system.open_output_stream(self._inside(name)) as sink:
                    sink.write(content)
        except _STORE_ERRORS as problem:
            raise InputError(f"cannot write {name} to {self.label}: {first_line_of(problem)}.") from problem

    def _inside(self, name: str) -> str:
        return f"{self._path}/{name}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except _STORE_ERRORS as problem:
            raise InputError(f"{self.label} cannot be reached: {first_line_of(problem)}.") from problem


def check_complete(source: Any) -> None:
    """Refuse a folder whose parts are not those that its manifest names; anything else is left to its reader."""
    if is_uri(source) or (isinstance(source, str | Path) and Path(source).is_dir()):
        PartsFolder(str(source)).manifest()


def is_database(target: str) -> bool:
    return target.startswith(("postgresql://", "postgres://"))


def check_database(uri: str, name: str, force: bool) -> None:
    """Refuse what could not be written later, before any work is done."""
    _quoted(name)
    if find_spec("adbc_driver_postgresql") is None:
        raise InputError("PostgreSQL needs a driver; install it with: pip install 'evenhand[postgres]'.")
    with _cursor(uri) as cursor:
        if _exists(cursor, name) and not force:
            raise InputError(f"the table {name} exists already; choose another --table or use --force.")


def write_database(table: pa.Table, uri: str, name: str) -> None:
    """The rows of a new table, or in place of all rows of one that exists, whose indices and grants stay."""
    schema, _, own = name.rpartition(".")
    with _cursor(uri) as cursor:
        there = _exists(cursor, name)
        if there:
            # One writer at a time; a second one would otherwise keep the rows of the first.
            cursor.execute(f"LOCK TABLE {_quoted(name)} IN SHARE ROW EXCLUSIVE MODE")
            cursor.execute(f"DELETE FROM {_quoted(name)}")
        cursor.adbc_ingest(own, table, mode="append" if there else "create", db_schema_name=schema or None)


def without_password(uri: str) -> str:
    """
    >>> without_password("postgresql://anna:s3cret@db.example/shop?sslmode=require")
    'postgresql://anna@db.example/shop?sslmode=require'
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InputError("the address of the database is not one, as postgresql://USER@HOST/DATABASE is.") from None
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(one for one in parts.query.split("&") if one and not _SECRET.match(one))
    return parts._replace(netloc=user.partition(":")[0] + at + host, query=query).geturl()


@contextmanager
def _cursor(uri: str) -> Iterator[Any]:
    """One transaction, which counts if the block ends without an error."""
    dbapi: Any = import_module("adbc_driver_postgresql.dbapi")
    shown = without_password(uri)
    try:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            yield cursor
            connection.commit()
    except dbapi.Error as problem:
        raise InputError(f"PostgreSQL at {shown}: {_said(problem, uri)}.") from None


def _exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT to_regclass($1)::text", (_quoted(name),))
    (found,) = cursor.fetchone()
    return found is not None


def _quoted(name: str) -> str:
    """A table's name for a statement; a dot stands between schema and table."""
    parts = name.split(".")
    if len(parts) > 2 or not all(map(_TABLE_NAME.fullmatch, parts)):
        raise InputError(f"'{one_line(name, 80)}' is no name of a table; use letters, digits and _, or schema.table.")
    return ".".join(f'"{part}"' for part in parts)


def _said(problem: Exception, uri: str) -> str:
    """What the server or the driver said, in one line and without a password."""
    text = one_line(str(problem).partition("Query was:")[0], 300)
    password = urlsplit(uri).password or ""
    for secret in {password, unquote(password)} - {""}:
        text = text.replace(secret, "…")
    return _SECRET.sub(r"\1=…", text).rstrip(". ")
