"""Groups of items from a column of an item file: genres, brands, whatever a team must be fair to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import codes_and_ids
from evenhand.data.reading.columns import Column, source_label
from evenhand.utils.errors import InputError

_SHOWN = 5
"""How many ids a message names."""


def read_groups(source: str, data: Interactions, item: str = "item") -> tuple[int, ...]:
    """The group of every item of `data`, from `FILE:COLUMN`; groups are numbered in the order of their names.

    Every item must have just one group: without one a sampler could not draw it. Items and groups
    that do not occur in `data` are passed over.
    """
    from evenhand.data.reading.read import read_columns

    file, colon, column = source.rpartition(":")
    if not colon or not file or not column:
        raise InputError(f"groups are given as FILE:COLUMN, not '{source}'.")
    table = read_columns(file, [Column("item", "id", item), Column("group", "id", column)])
    rows, ids = codes_and_ids(table["item"])
    groups, _ = codes_and_ids(table["group"])
    group_of = np.empty(len(ids), dtype=np.int64)
    group_of[rows] = groups
    torn = np.unique(rows[group_of[rows] != groups])
    if len(torn):
        raise InputError(f"{source_label(file)} gives several groups to {_some(ids.take(pa.array(torn)))}.")

    wanted = data.item_ids
    if ids.type != wanted.type:
        ids, wanted = ids.cast(pa.string()), wanted.cast(pa.string())
    place = pc.index_in(wanted, value_set=ids)
    missing = wanted.filter(place.is_null())
    if len(missing):
        raise InputError(f"{source_label(file)} gives no group to {_some(missing)} of {len(wanted):,}.")
    _, numbered = np.unique(group_of[np.asarray(place)], return_inverse=True)
    return tuple(numbered.tolist())


def _some(ids: pa.Array) -> str:
    """`7 items (a, b, c, d, e…)`."""
    names = ", ".join(str(name) for name in ids[:_SHOWN].to_pylist())
    more = "…" if len(ids) > _SHOWN else ""
    return f"{len(ids):,} item{'s' * (len(ids) > 1)} ({names}{more})"
