"""Who interacted with what: the one form in which every other room sees a log.

Ids of any kind become indices 0…n-1 in the order of the sorted ids; pairs are unique and kept as CSR
rows sorted by item, so that membership is a binary search and nothing is dense in users × items. Where they have times,
a user's pairs can be ordered, and the earlier ones count less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenhand.data.reading.codes import Pairs, collect, keys_instead, pair_keys
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, html_table

if TYPE_CHECKING:
    from evenhand.data.splits import Split

_SHOWN = 5
"""Pairs in a notebook's view."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """Unique user-item pairs over a fixed vocabulary of users and items.

    The vocabulary may hold ids without a pair: the train and test parts of a split share one.
    """

    user_ids: pa.Array
    """Sorted, unique ids; position = index. int64 where every id is an integer, else string."""
    item_ids: pa.Array
    indptr: np.ndarray
    """int64 [n_users + 1]: the pairs of user u are indptr[u]:indptr[u + 1]."""
    items: np.ndarray
    """int32 [n_pairs]: item indices, ascending within each user."""
    ratings: np.ndarray | None = None
    """float32 [n_pairs], like `items`; of repeated pairs the latest, or without timestamps the last."""
    timestamps: np.ndarray | None = None
    """float64 [n_pairs], seconds or whatever the file has, NaN where missing; of repeats the latest."""
    notes: tuple[str, ...] = ()
    """What a reader should know about how this came to be, one sentence each (rows merged, skipped…)."""

    @staticmethod
    def read(
        source: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str | None = None,
        timestamp: str | None = None,
        weight: str | None = None,
        min_rating: float | None = None,
        since: str | float | None = None,
        until: str | float | None = None,
        header: bool | None = None,
        strict: bool = False,
    ) -> Interactions:
        """Read a csv, tsv, `::`-separated .dat, JSON-lines or parquet file, or any Arrow-speaking table.

        A folder or a URI (s3://bucket/log/) of such files is one log; "-" is standard input. `rating` and `timestamp`
        name optional columns; left as None they are used when columns of just these names exist. `header` says
        whether a text file starts with column names: None means yes, except for `.dat` and `.data`, whose columns
        are then user, item, rating, timestamp in this order.

        Rows without an id are skipped, unless `strict` refuses them; repeats of a pair are merged and the latest
        rating and time kept. `weight` names a column of amounts: those of a pair are summed, refunds (negative) taken
        off, and pairs that come to nothing dropped. `since` and `until` keep rows of since <= time < until, as numbers
        or dates. What was left out is counted in `notes`.
        """
        from evenhand.data.reading.cleaning import ReadOptions
        from evenhand.data.reading.read import read_interactions

        asked = ReadOptions(user, item, rating, timestamp, weight, min_rating, since, until, header, strict)
        return read_interactions(source, asked)

    @staticmethod
    def from_pairs(
        users: Any,
        items: Any,
        *,
        ratings: Any = None,
        timestamps: Any = None,
        user_ids: pa.Array | None = None,
        item_ids: pa.Array | None = None,
        n_users: int | None = None,
        n_items: int | None = None,
        notes: tuple[str, ...] = (),
    ) -> Interactions:
        """Build from two aligned arrays of *indices*; repeats of a pair are merged into the latest.

        A missing timestamp (NaN) counts as the earliest. Without `user_ids` and `item_ids` the indices are
        the ids; `n_users`, `n_items` widen the vocabulary.
        """
        users, items = (np.asarray(side).ravel() for side in (users, items))
        users, items = (
            side if side.dtype in (np.int32, np.int64) else side.astype(np.int64) for side in (users, items)
        )
        if users.shape != items.shape:
            raise InputError(f"users and items differ in length: {len(users)} and {len(items)}.")
        n_users = _vocabulary_size("user", users, user_ids, n_users)
        n_items = _vocabulary_size("item", items, item_ids, n_items)
        _check_size(n_users, n_items)
        pairs = collect(
            pair_keys(users, items, n_items),
            n_users,
            n_items,
            None if ratings is None else np.asarray(ratings),
            None if timestamps is None else np.asarray(timestamps, dtype=np.float64),
        )
        return Interactions.of_rows(
            pairs,
            pa.array(np.arange(n_users)) if user_ids is None else user_ids,
            pa.array(np.arange(n_items)) if item_ids is None else item_ids,
            notes,
        )

    @staticmethod
    def from_codes(
        codes: tuple[np.ndarray, np.ndarray],
        ids: tuple[pa.Array, pa.Array],
        ratings: np.ndarray | None = None,
        timestamps: np.ndarray | None = None,
        *,
        notes: tuple[str, ...] = (),
        cleaned: Sequence[str] = (),
    ) -> Interactions:
        """`from_pairs` for large files: the codes of users and items must own their memory, and are emptied."""
        n_users, n_items = map(len, ids)
        _check_size(n_users, n_items)
        pairs = collect(keys_instead(*codes, n_items), n_users, n_items, ratings, timestamps)
        return Interactions.of_rows(pairs, *ids, notes, cleaned)

    @staticmethod
    def of_rows(
        pairs: Pairs, user_ids: pa.Array, item_ids: pa.Array, notes: tuple[str, ...], cleaned: Sequence[str] = ()
    ) -> Interactions:
        """Unique pairs with their ids; `cleaned` says what was left out so far, with the repeats it is one note."""
        if pairs.repeats:
            cleaned = (*cleaned, f"{count(pairs.repeats, 'repeat')} merged")
        if cleaned:
            notes = (*notes, f"{'; '.join(cleaned)}.")
        return Interactions(user_ids, item_ids, pairs.indptr, pairs.items, pairs.ratings, pairs.timestamps, notes)

    def split(
        self,
        test: float = 0.2,
        validation: float = 0.1,
        *,
        seed: int = 0,
        how: str = "random",
        validation_how: str | None = None,
        test_from: str | float | None = None,
        gap: str | float = 0.0,
    ) -> Split:
        """Split into train, validation and test: `test` is a share of all pairs, `validation` of what then remains.

        `how` is random, per-user, leave-last-out, time or popularity-shift; see `split_interactions` for the rest.
        """
        from evenhand.data.splits import split_interactions

        return split_interactions(self, test, validation, seed, how, validation_how, test_from, gap)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        size = f"{count(self.n_users, 'user')} × {count(self.n_items, 'item')}"
        return f"Interactions({size}, {count(len(self), 'pair')})"

    def _repr_html_(self) -> str:
        """The first pairs, for a notebook."""
        first = np.arange(len(self)) < _SHOWN
        rows = self.take(first).to_table().to_pylist() if len(self) else []
        more = [f"… and {len(self) - _SHOWN:,} more"] if len(self) > _SHOWN else []
        return html_table(repr(self), rows, [*more, *self.notes])

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @cached_property
    def users(self) -> np.ndarray:
        """int32 [n_pairs]: the user of each pair, aligned with `items`."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), self.activity)

    @cached_property
    def popularity(self) -> np.ndarray:
        """int64 [n_items]: how many users interacted with each item."""
        return np.bincount(self.items, minlength=self.n_items)

    @cached_property
    def activity(self) -> np.ndarray:
        """int64 [n_users]: how many items each user interacted with."""
        return np.diff(self.indptr)

    @property
    def active_users(self) -> int:
        """How many users have a pair."""
        return int((self.activity > 0).sum())

    @cached_property
    def by_item(self) -> tuple[np.ndarray, np.ndarray]:
        """The same pairs as CSR over items: (indptr [n_items + 1], users ascending within each item)."""
        order = np.argsort(self.items, kind="stable")
        return np.concatenate([[0], np.cumsum(self.popularity)]), self.users[order]

    @cached_property
    def keys(self) -> np.ndarray:
        """int64 [n_pairs], ascending: user * n_items + item, for membership by binary search."""
        return pair_keys(self.users, self.items, self.n_items)

    def row(self, user: int) -> np.ndarray:
        """The items of one user, ascending."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    def contains(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Whether each (user, item) pair of broadcastable index arrays is here; negative items are not."""
        users, items = np.broadcast_arrays(users, items)
        if not len(self):
            return np.zeros(users.shape, dtype=bool)
        wanted = pair_keys(users, items, self.n_items)
        place = np.minimum(np.searchsorted(self.keys, wanted), len(self) - 1)
        return (self.keys[place] == wanted) & (items >= 0)

    def take(self, mask: np.ndarray) -> Interactions:
        """The pairs where `mask` is true, over the same vocabulary."""
        counts = np.bincount(self.users[mask], minlength=self.n_users)
        return replace(
            self,
            indptr=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            items=self.items[mask],
            ratings=None if self.ratings is None else self.ratings[mask],
            timestamps=None if self.timestamps is None else self.timestamps[mask],
        )

    def union(self, *others: Interactions | None) -> Interactions:
        """All pairs of these parts (None counts as empty), which must share one vocabulary; with times if all have."""
        parts = [self, *(p for p in others if p is not None)]
        if any(p.n_users != self.n_users or p.n_items != self.n_items for p in parts):
            raise InputError("only parts of one split can be united: their users or items differ.")
        times = [p.timestamps for p in parts if p.timestamps is not None]
        return Interactions.from_pairs(
            np.concatenate([p.users for p in parts]),
            np.concatenate([p.items for p in parts]),
            timestamps=np.concatenate(times) if len(times) == len(parts) else None,
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )

    def to_table(self) -> pa.Table:
        """The pairs with their ids, as an Arrow table: user, item and, where known, rating and timestamp."""
        columns = {
            "user": self.user_ids.take(pa.array(self.users)),
            "item": self.item_ids.take(pa.array(self.items)),
            "rating": self.ratings,
            "timestamp": self.timestamps,
        }
        return pa.table({name: values for name, values in columns.items() if values is not None})

    def with_notes(self, *notes: str) -> Interactions:
        return replace(self, notes=(*self.notes, *notes))


def _check_size(n_users: int, n_items: int) -> None:
    if n_users * n_items >= 2**62:
        raise InputError(f"{n_users:,} users × {n_items:,} items are more than evenhand can index.")


def _vocabulary_size(kind: str, indices: np.ndarray, ids: pa.Array | None, size: int | None) -> int:
    needed = int(indices.max()) + 1 if len(indices) else 0
    given = len(ids) if ids is not None else size if size is not None else needed
    if len(indices) and (indices.min() < 0 or needed > given):
        raise InputError(f"{kind} indices must lie in 0…{given - 1}.")
    return given


def gather_rows(indptr: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of these rows, one after the other, each with its row's position in `rows` (int64 both).

    >>> position, value = gather_rows(np.array([0, 2, 2, 3]), np.array([5, 6, 7]), np.array([2, 0]))
    >>> position.tolist(), value.tolist()
    ([0, 1, 1], [7, 5, 6])
    """
    begins, counts = indptr[rows], indptr[rows + 1] - indptr[rows]
    position = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(position)) - np.repeat(np.cumsum(counts) - counts, counts)
    return position, values[np.repeat(begins, counts) + within].astype(np.int64)


def time_order(pairs: Interactions) -> np.ndarray:
    """int64 [n_pairs]: the pairs of each user from the earliest on, of one moment by item; unknown times first."""
    return np.lexsort((pairs.items, _times(pairs), pairs.users))


def later_pairs(pairs: Interactions) -> np.ndarray:
    """int64 [n_pairs]: how many pairs of the same user are later.

    >>> log = Interactions.from_pairs([0, 0, 0, 1], [4, 7, 9, 4], timestamps=[3, 1, 3, 2])
    >>> later_pairs(log).tolist()
    [0, 2, 0, 0]
    """
    order, times = time_order(pairs), _times(pairs)
    users, when = pairs.users[order], times[order]
    last = np.ones(len(order), dtype=bool)  # of the user's pairs of this time
    last[:-1] = (users[1:] != users[:-1]) | (when[1:] != when[:-1])
    ends = np.flatnonzero(last)
    group = np.cumsum(last) - last
    found = np.empty(len(order), dtype=np.int64)
    found[order] = pairs.indptr[users + 1] - 1 - ends[group]
    return found


def recency_counts(pairs: Interactions, exponent: float) -> np.ndarray | None:
    """float32 [n_pairs]: `(1 + r)^-exponent` for a pair with r later ones; None where all count the same."""
    if not exponent or pairs.timestamps is None:
        return None
    return ((1.0 + later_pairs(pairs)) ** -exponent).astype(np.float32)


def check_times(pairs: Interactions, what: str) -> None:
    if pairs.timestamps is None:
        raise InputError(f"{what} needs timestamps; name their column with timestamp= or --timestamp.")


def _times(pairs: Interactions) -> np.ndarray:
    assert pairs.timestamps is not None
    return np.where(np.isnan(pairs.timestamps), -np.inf, pairs.timestamps)
