"""JSON lines into an Arrow table, once it is certain that Arrow can bear them.

Arrow makes a column of every key in the file and follows brackets as deep as they go, so a few kilobytes
could fill the memory or end the process. The text is looked at first, which takes as long as parsing it.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from evenhand.data.reading.columns import NoRowsError, first_line_of
from evenhand.data.reading.files import File
from evenhand.utils.errors import InputError

DEEPEST = 100
LONGEST = 1 << 20
"""Bytes of a line, which is also what Arrow parses at once."""
MOST_CELLS = 1 << 24
"""Of the table: lines times keys. More are allowed where the file is large enough to fill them."""
_CHUNK = 1 << 20
_PLAIN_KEY = re.compile(rb'"([^"]*+)"\s*+:')
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(\s*+:)?', re.DOTALL)


def read_json_lines(file: File) -> pa.Table:
    """All of the file; refused where a line is too long or too deep, or where keys are many."""
    from pyarrow import json

    label = file.label
    _look_at(file, label)
    with file.open_text() as content:
        try:
            return json.read_json(content, read_options=json.ReadOptions(block_size=2 * LONGEST))
        except (pa.ArrowException, UnicodeError) as error:
            raise InputError(
                f"{label} cannot be read as JSON lines, one object a line: {first_line_of(error)}."
            ) from None


def _look_at(file: File, label: str) -> None:
    keys: set[bytes] = set()
    done = size = 0
    with file.open_text() as content:
        while chunk := content.read(_CHUNK):
            chunk += content.readline(LONGEST)
            lines = chunk.split(b"\n")
            if max(map(len, lines)) >= LONGEST:
                place = done + next(n for n, line in enumerate(lines, 1) if len(line) >= LONGEST)
                raise InputError(f"line {place} of {label} is longer than {LONGEST:,} bytes.")
            if (stray := _not_an_object(chunk, lines)) is not None:
                raise InputError(f"line {done + stray} of {label} is not a JSON object.")
            if _may_be_deep(chunk) and (deep := [n for n, line in enumerate(lines, 1) if _is_deep(line)]):
                raise InputError(f"line {done + deep[0]} of {label} is nested more than {DEEPEST} deep.")
            keys |= _keys(chunk)
            done, size = done + chunk.count(b"\n"), size + len(chunk)
            _check_width(len(keys), done, size, label)
    if not size:
        raise NoRowsError(f"{label} is empty.")


def _not_an_object(chunk: bytes, lines: list[bytes]) -> int | None:
    """The first line that begins as something else; Arrow dies of one that is `null`."""
    if _objects(chunk) + lines.count(b"") == len(lines):
        return None
    begins = (line.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] for line in lines)
    return next((place for place, sign in enumerate(begins, 1) if sign not in (b"", b"{")), None)


def _objects(chunk: bytes) -> int:
    return chunk.startswith(b"{") + chunk.count(b"\n{")


def _keys(chunk: bytes) -> set[bytes]:
    if b"\\" in chunk:
        return {name for name, colon in _STRING.findall(chunk) if colon}
    return set(_PLAIN_KEY.findall(chunk))


def _may_be_deep(chunk: bytes) -> bool:
    """Whether a line could be nested that deep; of lines that hold one object and no list none can."""
    return chunk.count(b"[") + chunk.count(b"{") - _objects(chunk) >= DEEPEST


def _is_deep(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > DEEPEST and _depth(line) > DEEPEST


def _depth(line: bytes) -> int:
    """How deep brackets are nested, those in texts aside."""
    signs = np.frombuffer(_STRING.sub(b"", line), dtype=np.uint8)
    opens, closes = (np.isin(signs, list(pair)).astype(np.int64) for pair in (b"[{", b"]}"))
    return int(np.cumsum(opens - closes).max(initial=0))


def _check_width(keys: int, lines: int, size: int, label: str) -> None:
    """Every key becomes a column over all lines, however few of them have it."""
    if keys * lines > max(MOST_CELLS, 4 * size):
        raise InputError(
            f"{label} has {keys:,} different keys in {lines:,} lines, most of them in few lines; "
            "keep only the columns that are needed."
        )
