"""A table of recommendations as ranked lists of indices.

Tables come from any system, so ids may be foreign, rows unordered and items repeated; here that is put in
order once, and each thing that had to be decided becomes a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.data.reading.columns import Column
from evenhand.metrics.users import NO_ITEM, UNKNOWN_ITEM
from evenhand.utils.errors import InputError
from evenhand.utils.text import count as count
from evenhand.utils.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.interactions import Interactions


COLUMNS = (
    Column("user", "id", "user"),
    Column("item", "id", "item"),
    Column("rank", "number"),
    Column("score", "number"),
    Column("seed", "id"),
)
"""What a table of recommendations holds; a rank or a score must be there."""


LONGEST_LIST = 10_000
"""Slots that may be asked for: each takes memory for every user, whether a list fills it or not."""


def list_lengths(k: int | Iterable[int]) -> tuple[int, ...]:
    """The lengths that were asked for, ascending and once each.

    >>> list_lengths([10, 5, 10])
    (5, 10)
    """
    ks = list(k) if isinstance(k, Iterable) else [k]
    if not ks or any(not isinstance(n, int | np.integer) or n < 1 for n in ks):
        raise InputError(f"k must be one or more whole numbers from 1 up, not {one_line(repr(k), 100)}.")
    if max(ks) > LONGEST_LIST:
        raise InputError(f"k may be up to {LONGEST_LIST:,}: nobody looks at longer lists.")
    return tuple(sorted({int(n) for n in ks}))


@dataclass(frozen=True, eq=False)
class Lists:
    """The lists of one seed: one row per recommendation, ordered by user and, within a user, best first."""

    users: np.ndarray
    """int64 [rows], ascending."""
    items: np.ndarray
    """int64 [rows]; `UNKNOWN_ITEM` for an item outside the vocabulary."""

    def top(self, users: np.ndarray, k: int) -> np.ndarray:
        """int64 [len(users), k]: the first k items of each user, then `NO_ITEM`.

        >>> Lists(np.array([0, 0, 2]), np.array([5, 3, 4])).top(np.array([0, 1, 2]), k=2)
        array([[ 5,  3],
               [-1, -1],
               [ 4, -1]])
        """
        start = np.searchsorted(self.users, users)
        length = np.searchsorted(self.users, users, side="right") - start
        place = start[:, None] + np.arange(k)
        filled = np.arange(k) < length[:, None]
        # One more item stands in for the slots beyond a list's end.
        return np.append(self.items, NO_ITEM)[np.where(filled, place, len(self.items))]


def read_lists(source: Any, vocabulary: Interactions) -> tuple[dict[Any, Lists], tuple[str, ...]]:
    """The lists of each seed (None where there is no column `seed`), and notes on what was odd.

    Rows are ordered by `rank` where there is one and by `score`, highest first, where there is not; equal
    ones stay in the order of the table. Ids are those of the vocabulary, 7 and "7" being the same.
    """
    from evenhand.data.reading.read import read_columns, source_label

    table = read_columns(source, COLUMNS)
    label = source_label(source)
    users, n_foreign_users = vocabulary_indices(table["user"], vocabulary.user_ids, f"user of {label}")
    items, n_foreign_items = vocabulary_indices(table["item"], vocabulary.item_ids, f"item of {label}")
    order = _order(table, label)
    seeds, seed_ids = dictionary_codes(table["seed"]) if "seed" in table.column_names else (None, None)

    known = users < vocabulary.n_users
    by_seed: dict[Any, Lists] = {}
    repeated = 0
    for code, seed in enumerate([None] if seed_ids is None else seed_ids.to_pylist()):
        rows = np.flatnonzero(known if seeds is None else known & (seeds == code))
        rows = rows[np.lexsort((order[rows], users[rows]))]
        first = first_occurrences(users[rows], items[rows])
        repeated += len(rows) - len(first)
        rows = rows[first]
        listed = np.where(items[rows] < vocabulary.n_items, items[rows], UNKNOWN_ITEM)
        by_seed[seed] = Lists(users[rows], listed)

    notes = []
    if n_foreign_users:
        rows_text = count(int((~known).sum()), "row")
        notes.append(f"Dropped {rows_text} of {count(n_foreign_users, 'user')} outside the split.")
    if n_foreign_items:
        notes.append(f"Kept {count(n_foreign_items, 'item')} outside the split in the lists, as cold misses.")
    if repeated:
        notes.append(f"Ignored {count(repeated, 'row')} naming an item already higher in the same list.")
    return by_seed, tuple(notes)


def dictionary_codes(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """(row → code, code → id) of a dictionary-encoded column."""
    import pyarrow as pa

    column = column.unify_dictionaries()
    codes = [np.asarray(chunk.indices, dtype=np.int64) for chunk in column.chunks]
    return np.concatenate(codes), column.chunk(0).dictionary if codes else pa.array([])


def vocabulary_indices(column: pa.ChunkedArray, vocabulary: pa.Array, what: str) -> tuple[np.ndarray, int]:
    """Each row's index in the vocabulary; foreign ids get distinct numbers from len(vocabulary) up."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes, ids = dictionary_codes(column)
    if ids.type != vocabulary.type:
        ids, vocabulary = ids.cast(pa.string()), vocabulary.cast(pa.string())
    found = pc.index_in(ids, value_set=vocabulary)
    foreign = np.asarray(pc.is_null(found))
    if foreign.all():
        raise InputError(
            f"no {what} is in the split ('{ids[0]}' is not, '{vocabulary[0]}' would be); "
            "give the ids of the data it was split from."
        )
    index = np.asarray(found.fill_null(0), dtype=np.int64)
    index[foreign] = len(vocabulary) + np.arange(foreign.sum())
    return index[codes], int(foreign.sum())


def _order(table: pa.Table, label: str) -> np.ndarray:
    """What to sort by, ascending."""
    name = next((name for name in ("rank", "score") if name in table.column_names), None)
    if name is None:
        raise InputError(f"{label} has neither a column 'rank' nor 'score'; one must say which item comes first.")
    values = table[name].to_numpy()
    missing = np.isnan(values)
    if missing.any():
        row = int(missing.argmax()) + 1
        raise InputError(f"column '{name}' of {label} has no number in row {row}; fill it in or drop such rows.")
    return values if name == "rank" else -values


def first_occurrences(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The rows, ascending, whose (user, item) has not come before."""
    if not len(users):
        return np.zeros(0, dtype=np.int64)
    pairs = users * (int(items.max()) + 1) + items
    return np.sort(np.unique(pairs, return_index=True)[1])
