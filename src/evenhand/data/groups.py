"""Groups of items from a column of an item file: genres, brands, whatever a team must be fair to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError


def read_groups(source: str, data: Interactions, item: str = "item") -> tuple[int, ...]:
    """The group of every item of `data`, from `FILE:COLUMN`; groups are numbered in the order of their names.

    Every item must have a group: one that the file does not know would have no law to be drawn by.
    """
    from evenhand.data.read import Column, read_columns

    file, colon, column = source.rpartition(":")
    if not colon or not file or not column:
        raise InputError(f"groups are given as FILE:COLUMN, not '{source}'.")
    table = read_columns(file, [Column("item", "id", item), Column("group", "id", column)])
    items = table["item"].combine_chunks().dictionary_decode()
    if items.type != data.item_ids.type:
        items = items.cast(pa.string())
    wanted = data.item_ids.cast(items.type)
    place = pc.index_in(wanted, value_set=items)
    missing = wanted.filter(place.is_null())
    if len(missing):
        some = ", ".join(str(value) for value in missing[:5].to_pylist())
        raise InputError(
            f"{Path(file).name} gives no group to {len(missing):,} of {len(wanted):,} items ({some}…)."
        )
    codes = table["group"].combine_chunks().indices.to_numpy()
    return tuple(int(code) for code in codes[np.asarray(place)])
