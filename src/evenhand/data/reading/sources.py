"""Where a table's bytes come from: a file, all files of a folder, an object store, or standard input.

A log may be one file or hundreds of parts, here or at `s3://bucket/log/`; the readers see a list of `File` either way.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from evenhand.utils.errors import InputError
from evenhand.utils.text import first_line_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

TEXT_ENDINGS = {".csv": ",", ".tsv": "\t", ".dat": "::", ".data": "\t", ".inter": "\t", ".txt": "\t"}
"""Text files that are known by name, and the separator to expect first."""
PARQUET_ENDINGS = (".parquet", ".pq")
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
MOST_UNPACKED, MOST_TIMES = 1 << 28, 200
"""A .gz file may unpack to this number of bytes, or to this many times its size; logs grow some ten times."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class File:
    """One file that can be opened again and again."""

    path: str
    label: str
    """How messages call it."""
    system: FileSystem | None = None
    """The object store it lies in; None for this machine's disk."""
    spool: Any = field(default=None, repr=False)
    """Keeps a temporary copy alive as long as this."""

    @property
    def ending(self) -> str:
        """By which its format is known: that before .gz, in small letters."""
        path = PurePosixPath(Path(self.path).name)
        return (path.with_suffix("") if self.packed else path).suffix.lower()

    @property
    def packed(self) -> bool:
        return self.path.lower().endswith(".gz")

    def open(self) -> IO[bytes]:
        """The bytes as they are."""
        if self.system is None:
            return Path(self.path).open("rb")
        return io.BufferedReader(self.system.open_input_file(self.path))

    def open_text(self) -> IO[bytes]:
        """The bytes, unpacked where the file is a .gz."""
        return _Unpacking(self) if self.packed else self.open()  # type: ignore[return-value]

    def size(self) -> int:
        if self.system is None:
            return Path(self.path).stat().st_size
        return int(self.system.get_file_info(self.path).size)


def is_uri(source: object) -> bool:
    return isinstance(source, str) and _URI.match(source) is not None


def find_files(source: str | os.PathLike[str]) -> list[File]:
    """The file that a source names; of a folder all files of known endings below it, in the order of their names.

    Names that begin with a dot or an underscore are passed over, as markers of other systems have such names.
    """
    name = os.fspath(source)
    if name == "-":
        return [_standard_input()]
    label = f"'{name}'"
    if is_uri(source):
        found = _in_store(name, label)
    else:
        path = Path(name)
        if not path.exists():
            raise InputError(f"there is no file {label}.")
        if not path.is_dir():
            if not stat.S_ISREG(path.stat().st_mode):
                raise InputError(f"{label} is a pipe or a device, not a file; pipe it in and name it '-', or save it.")
            return [File(str(path), label)]
        found = [File(str(one), f"'{one}'") for one in sorted(path.rglob("*")) if one.is_file() and _is_part(one, path)]
    if not found:
        raise InputError(f"{label} is a folder without a csv, tsv, dat, json or parquet file.")
    return found


def is_parquet(source: str) -> bool:
    """Whether a source is made of parquet files alone; standard input is not."""
    return source != "-" and all(file.ending in PARQUET_ENDINGS for file in find_files(source))


def given_parts(folder: str) -> dict[str, Path]:
    """name → file of a split that a folder holds: train, test and perhaps validation; nothing where it holds none."""
    if is_uri(folder) or not Path(folder).is_dir():
        return {}
    found: dict[str, Path] = {}
    for name in ("train", "validation", "test"):
        files = [path for path in Path(folder).glob(f"{name}.*") if path.is_file() and _is_part(path, Path(folder))]
        if len(files) > 1:
            listed = " and ".join(sorted(path.name for path in files))
            raise InputError(f"'{folder}' holds {listed}; keep one of them, so that it is clear which is {name}.")
        if files:
            found[name] = files[0]
    return found if {"train", "test"} <= set(found) else {}


def _in_store(uri: str, label: str) -> list[File]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(uri)
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise InputError(f"there is no file {label}.")
        if info.type == fs.FileType.File:
            return [File(path, label, system)]
        below = system.get_file_info(fs.FileSelector(path, recursive=True))
    except (pa.ArrowException, OSError) as problem:
        raise InputError(f"{label} cannot be reached: {first_line_of(problem)}.") from problem
    names = sorted(one.path for one in below if one.type == fs.FileType.File)
    return [File(name, f"'{name}'", system) for name in names if _is_part(PurePosixPath(name), PurePosixPath(path))]


def _is_part(file: Path | PurePosixPath, folder: Path | PurePosixPath) -> bool:
    inside = PurePosixPath(file.as_posix()).relative_to(folder.as_posix())
    known = File(file.name, "").ending in (*TEXT_ENDINGS, *PARQUET_ENDINGS, *JSON_ENDINGS)
    return known and not any(part.startswith((".", "_")) for part in inside.parts)


def _standard_input() -> File:
    """All of it on disk, since a table is looked at before it is read."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' is standard input, and nothing is piped into it.")
    copy = tempfile.NamedTemporaryFile(prefix="evenhand-")  # noqa: SIM115  (closed with the last `File` that holds it)
    shutil.copyfileobj(sys.stdin.buffer, copy)
    copy.flush()
    return File(copy.name, "standard input", spool=copy)


class _Unpacking(gzip.GzipFile):
    """A .gz file as it reads unpacked, up to a size that no honest log has."""

    def __init__(self, file: File) -> None:
        self._packed = file.open()
        super().__init__(fileobj=self._packed, mode="rb")
        self._most = max(MOST_UNPACKED, MOST_TIMES * file.size())
        self._label = file.label

    def close(self) -> None:
        super().close()
        self._packed.close()

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
