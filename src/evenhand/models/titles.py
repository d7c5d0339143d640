"""What people call the items of a model, out of a file, for lists that somebody reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns, source_label
from evenhand.models.id_lookup import positions
from evenhand.utils.errors import InputError
from evenhand.utils.text import count


def read_titles(source: Any, item_ids: pa.Array, *, item: str = "item", title: str = "title") -> pa.Array:
    """string [n_items]: the title of every item, null where the file has none; of repeated ids the first counts."""
    table = read_columns(source, [Column("item", "id", item), Column("title", "text", title)], strict=False)
    ids = table["item"].cast(table["item"].type.value_type).combine_chunks()
    found = _first_rows(ids, item_ids)
    if len(item_ids) and (found < 0).all():
        raise InputError(f"{source_label(source)} has no title for any item of the model; check the column '{item}'.")
    return _taken(table["title"], found)


def carried_titles(titles: pa.Array | None, old_ids: pa.Array, new_ids: pa.Array) -> pa.Array | None:
    """The titles of the old items where these stand among the new ones."""
    return None if titles is None else _taken(titles, positions(new_ids, old_ids))


def note_on(titles: pa.Array) -> list[str]:
    """How many items have no title, where some have none."""
    return [f"{count(titles.null_count, 'item')} of {len(titles):,} without a title."] if titles.null_count else []


def _first_rows(ids: pa.Array, item_ids: pa.Array) -> np.ndarray:
    """int64 [n_items]: the first row of each item's id, -1 where there is none."""
    there = positions(ids, item_ids)
    place = np.full(len(item_ids), -1, dtype=np.int64)
    rows = np.flatnonzero(there >= 0)[::-1]
    place[there[rows]] = rows
    return place


def _taken(titles: Any, place: np.ndarray) -> pa.Array:
    texts = pa.chunked_array([titles]) if isinstance(titles, pa.Array) else titles
    return pa.concat_arrays([pa.array([], pa.string()), *texts.take(pa.array(place, mask=place < 0)).chunks])
