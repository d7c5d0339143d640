"""One vocabulary for parts that were read one by one.

Indices mean something only beside their ids, so parts must agree on both before pairs can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions


def share_vocabulary(
    parts: Mapping[str, Interactions],
) -> tuple[dict[str, Interactions], tuple[str, ...]]:
    """The named parts over the sorted union of their users and items, and a note where ids changed type."""
    names = list(parts)
    users, user_maps, user_notes = _merge("user", names, [part.user_ids for part in parts.values()])
    items, item_maps, item_notes = _merge("item", names, [part.item_ids for part in parts.values()])
    shared = {
        name: Interactions.from_pairs(
            of_user[part.users],
            of_item[part.items],
            ratings=part.ratings,
            timestamps=part.timestamps,
            user_ids=users,
            item_ids=items,
            notes=part.notes,
        )
        for (name, part), of_user, of_item in zip(parts.items(), user_maps, item_maps, strict=True)
    }
    return shared, user_notes + item_notes


def _merge(
    kind: str, names: list[str], vocabularies: list[pa.Array]
) -> tuple[pa.Array, list[np.ndarray], tuple[str, ...]]:
    """(the sorted union, for each vocabulary the new index of each of its ids, notes)."""
    import pyarrow.compute as pc

    notes: tuple[str, ...] = ()
    if len({ids.type for ids in vocabularies}) > 1:
        pairs = zip(names, vocabularies, strict=True)
        where = " and ".join(name for name, ids in pairs if pa.types.is_integer(ids.type))
        notes = (f"The {kind} ids of {where} are integers, elsewhere strings; all count as strings here.",)
        # An id was made an integer only if that is just how its text was written, so this loses nothing.
        vocabularies = [ids.cast(pa.string()) for ids in vocabularies]
    union = pa.chunked_array(vocabularies).unique()
    union = union.take(pc.sort_indices(union))
    return union, [np.asarray(pc.index_in(ids, value_set=union)) for ids in vocabularies], notes
