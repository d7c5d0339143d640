"""Writes tables as parquet, csv or tsv, by the file's ending; a reader never sees half a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError

ENDINGS = (".parquet", ".csv", ".tsv")
_FORMULA = "^[=+@\\t\\r-]"
_ACTS = "^=|^[+@\\t\\r-].*[(|!]"
"""What spreadsheets take for a formula, and what of it does something: not a phone number or a name on a network."""


def check_target(path: Path, force: bool) -> None:
    """Refuse a file that could not be written later, before any work is done."""
    if path.suffix not in ENDINGS:
        raise InputError(f"'{path}' must end in {', '.join(ENDINGS)}.")
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
    try:
        with atomic_file(path) as partial:
            if path.suffix == ".parquet":
                import pyarrow.parquet as pq

                pq.write_table(table, partial, compression="zstd")
            else:
                with partial.open("wb") as sink:
                    write_csv(table, sink, "\t" if path.suffix == ".tsv" else ",")
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
