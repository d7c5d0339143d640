"""Writes tables as parquet, csv or tsv, by the file's ending; a reader never sees half a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError

ENDINGS = (".parquet", ".csv", ".tsv")


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
    from pyarrow import csv

    csv.write_csv(table, sink, csv.WriteOptions(delimiter=delimiter, quoting_style="needed"))
