"""From the ids a person gives to the model's indices, with the unknown ones named, and back to ids and titles."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns, source_label
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

_SHOWN = 10
_COMPARED = 50_000
"""Ids among which a near one is looked for; comparing more would take seconds."""
_LONGEST = 100
"""Characters of an id that is compared with others, for the same reason."""


def as_ids(given: Any, kind: str) -> pa.Array:
    """Ids in any form (one, a list, a numpy, pandas or Arrow array) as an Arrow array."""
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    if isinstance(given, (str, int)):
        given = [given]
    try:
        return pa.array(list(given))
    except (pa.ArrowException, TypeError):
        raise InputError(f"{kind}s must be ids of one type, integers or strings.") from None


def positions(asked: pa.Array, ids: pa.Array) -> np.ndarray:
    """int64: where each asked id stands in `ids`, -1 where it does not.

    Ids of another type are compared by their text, so that "17" out of a file means the item 17.
    """
    try:
        found = pc.index_in(asked.cast(ids.type), value_set=ids)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = pc.index_in(asked.cast(pa.string()), value_set=ids.cast(pa.string()))
    return np.asarray(found.fill_null(-1), dtype=np.int64)


def known_position(given: Any, ids: pa.Array, kind: str) -> int:
    """Where one id stands; an unknown one is an error that names those spelled alike."""
    asked = as_ids([given], kind)
    place = int(positions(asked, ids)[0])
    if place < 0:
        raise InputError(f"1 unknown {kind}: {asked[0].as_py()!r}{_near(str(asked[0].as_py()), ids)}")
    return place


def listed(values: Iterable[Any]) -> str:
    """The first ten, and how many more there are.

    >>> listed(["a", "b"]), listed(range(12))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    all_of_them = list(values)
    some = ", ".join(repr(value) for value in all_of_them[:_SHOWN])
    rest = len(all_of_them) - _SHOWN
    return f"{some} and {rest:,} more" if rest > 0 else some


def _near(text: str, ids: pa.Array) -> str:
    """The end of the sentence: ids spelled alike; none for integers, which have no likeness."""
    if not pa.types.is_string(ids.type) or len(text) > _LONGEST:
        return "."
    if len(ids) > _COMPARED:
        ids = ids.filter(pc.starts_with(ids, text[:2], ignore_case=True))[:_COMPARED]
    by_lower = {name.lower(): name for name in ids.to_pylist()}
    near = get_close_matches(text.lower(), by_lower, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(by_lower[name]) for name in near)}?" if near else "."


def list_table(vocabulary: Interactions, users: np.ndarray, items: np.ndarray, scores: np.ndarray) -> pa.Table:
    """Lists by index, as `top_by` makes them, as a table with ids: user, item, score, rank."""
    real = items >= 0
    rank = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    return pa.table(
        {
            "user": vocabulary.user_ids.take(pa.array(np.repeat(users, real.sum(1)))),
            "item": vocabulary.item_ids.take(pa.array(items[real])),
            "score": pa.array(scores[real]),
            "rank": pa.array(rank[real].astype(np.int32)),
        }
    )


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
