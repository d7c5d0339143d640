"""Delimited text into an Arrow table.

Arrow parses fast but says little of what went wrong, so a file it refuses is read again to name the line.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv

from evenhand.data.columns import Column, Loaded, first_line_of, pick
from evenhand.data.dialect import TextFile, open_text, survey
from evenhand.errors import InputError


def load_text(path: Path, columns: Sequence[Column], header: bool | None) -> Loaded:
    text = survey(path, header)
    if text.header:
        names = [name.strip() for name in text.fields]
        chosen = pick(columns, names, text.label)
    else:
        names = [column.role for column in columns][: len(text.fields)]
        chosen = _pick_by_position(columns, text)
    ids = {str(chosen[column.role]) for column in columns if column.kind == "id" and column.role in chosen}
    table = _parse(text, [str(place) for place in chosen.values()], ids)
    return Loaded(
        label=text.label,
        table=table.rename_columns(list(chosen)),
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


def _parse(text: TextFile, include: list[str], ids: set[str]) -> pa.Table:
    """Columns are called by their position, so that odd or repeated names in the file do no harm."""
    with open_text(text.path) as file:
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
