"""Delimited text into an Arrow table.

Arrow parses fast but says little of what went wrong, so a file it refuses is read again to name the line.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv

from evenhand.data.reading.codes import Codes
from evenhand.data.reading.columns import Column, Loaded, first_line_of, gather, pick
from evenhand.data.reading.dialect import TextFile, open_text, survey
from evenhand.utils.errors import InputError

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
