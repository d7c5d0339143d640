"""The one reader of recommendation lists: a table of any system as ranked lists.

Evaluation, audit and re-ranking read lists here, so that one file means the same to each. An export of a running
system is rarely clean; whatever leaves an order is used, and each thing that had to be decided becomes a note:

- Order: by `rank`, lowest first, where there is one; else by `score`, highest first. Naming a score column and no
  rank column takes the score. Equal ones stay in the order of the table, and are counted. Only the order of ranks
  counts: gaps close, and are counted. Without either column the table is refused.
- A row whose rank or score is missing, NaN or infinite is dropped and counted. Where ranks decide, a score may be
  missing.
- An item that a list repeats counts where it stands highest; the other rows are dropped and counted.
- A blank user or item id is refused with its line, since the list it belongs to is unknown.
- Ids of another type are compared by their text: 7 and "7" are the same. "007" is another id.
- A user unknown to train and test is dropped and counted (a re-ranking keeps them). An item unknown to train and
  test stays in the list as a cold miss, and is counted. A table without any known user or item is refused.
- A column `name` with several values holds several systems, in the order of their first rows. A column `seed` holds
  one list per seed: evaluation and re-ranking take each, an audit the first.
- A list longer than k is cut, a shorter one has empty slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.reading.cleaning import codes_and_ids, looked_up
from evenhand.data.reading.columns import Column, source_label
from evenhand.data.reading.read import read_columns
from evenhand.data.write import check_complete
from evenhand.metrics.formulas import NO_ITEM, UNKNOWN_ITEM
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, one_line

LONGEST_LIST = 10_000
"""Slots that may be asked for: each takes memory for every user, whether a list fills it or not."""
_ROLES = ("user", "item", "rank", "score")


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


@dataclass(frozen=True)
class ListColumns:
    """What the columns of a table of lists are called."""

    names: Mapping[str, str] = field(default_factory=dict)
    """By role: user, item, rank, score. A role that is not named has its own name."""
    as_in_train: Mapping[str, str] = field(default_factory=dict)
    """What train calls its users and items: lists without a column `user` or `item` may do so too."""

    def __post_init__(self) -> None:
        for role in self.names:
            if role not in _ROLES:
                raise InputError(f"a list has no column for '{role}'; name {', '.join(_ROLES)}.")

    @staticmethod
    def of(names: Mapping[str, str | None] | None, reading: Mapping[str, Any] | None = None) -> ListColumns:
        """From names as a person gives them, and from how the files of interactions are read."""
        return ListColumns(
            {role: name for role, name in (names or {}).items() if name is not None},
            {role: reading[role] for role in ("user", "item") if reading and reading.get(role)},
        )

    def wanted(self, fallback: Mapping[str, str]) -> list[Column]:
        def named(role: str) -> Column:
            name = self.names.get(role, fallback.get(role, role))
            return Column(role, "id", name, option=f"columns= or --rec-{role}")

        numbers = [Column(role, "number", self.names.get(role), option=f"columns= or --{role}") for role in _ROLES[2:]]
        return [named("user"), named("item"), *numbers, Column("seed", "id"), Column("name", "id")]


@dataclass(frozen=True, eq=False)
class Lists:
    """One list per user of a vocabulary, best item first, no item twice; a list may be empty."""

    indptr: np.ndarray
    """int64 [n_users + 1]: the list of user u is items[indptr[u]:indptr[u + 1]]."""
    items: np.ndarray
    """int32; `UNKNOWN_ITEM` for an item outside the vocabulary."""

    @property
    def served(self) -> np.ndarray:
        """bool [n_users]: who has a list."""
        return np.diff(self.indptr) > 0

    def top(self, users: np.ndarray, k: int) -> np.ndarray:
        """int32 [len(users), k]: the first k items of these users, then `NO_ITEM`.

        >>> Lists(np.array([0, 2, 2, 3]), np.array([5, 3, 4])).top(np.array([0, 1, 2]), k=2)
        array([[ 5,  3],
               [-1, -1],
               [ 4, -1]])
        """
        begin, length = self.indptr[users], self.indptr[users + 1] - self.indptr[users]
        filled = np.arange(k) < length[:, None]
        place = np.where(filled, begin[:, None] + np.arange(k), 0)
        return np.where(filled, self.items[place], NO_ITEM) if len(self.items) else np.full(place.shape, NO_ITEM)


@dataclass(frozen=True, eq=False)
class ListTable:
    """All lists of one system, before users and items are looked up: rows ordered by list, best first."""

    label: str
    """What messages call the table."""
    lists: np.ndarray
    """int64 [rows], ascending: the list that a row belongs to; there is one per seed and user."""
    item_codes: np.ndarray
    """int32 [rows]: positions in `item_ids`."""
    scores: np.ndarray | None
    """float64 [rows], nan where missing; None without a column of scores."""
    user_codes: np.ndarray
    """int64 [lists]: positions in `user_ids`."""
    seed_codes: np.ndarray
    """int64 [lists]: positions in `seed_ids`; zeros without seeds."""
    user_ids: pa.Array
    item_ids: pa.Array
    seed_ids: pa.Array | None
    notes: tuple[str, ...]
    """What was odd, as the ends of sentences: "dropped 3 rows without a score"."""

    @property
    def seeds(self) -> list[Any]:
        """The values of the column seed, ascending; [None] without one."""
        return [None] if self.seed_ids is None else list(self.seed_ids.to_pylist())

    def known(self, vocabulary: Interactions, where: str = "in the split") -> tuple[np.ndarray, np.ndarray]:
        """Positions of the user ids and of the item ids in a vocabulary, −1 where it does not have them."""
        users = _positions(self.user_ids, vocabulary.user_ids, f"user of {self.label} is {where}")
        return users, _positions(self.item_ids, vocabulary.item_ids, f"item of {self.label} is {where}")

    def in_vocabulary(
        self, vocabulary: Interactions, k: int | None = None, first_seed: bool = False
    ) -> tuple[dict[Any, Lists], list[str]]:
        """By seed, the lists of the known users, cut to k; and notes on what was unknown.

        Only the lists of the first seed with `first_seed`.
        """
        users, items = self.known(vocabulary)
        owner = users[self.user_codes]
        n_seeds = 1 if first_seed else len(self.seeds)
        notes, used = [], self.seed_codes < n_seeds
        if first_seed and len(self.seeds) > 1:
            notes.append(f"holds lists of {len(self.seeds)} seeds, of which seed {self.seeds[0]} is audited")
        strangers = np.bincount(self.lists, minlength=len(owner))[used & (owner < 0)].sum()
        if strangers:
            who = count(len(np.unique(self.user_codes[used & (owner < 0)])), "user")
            notes.append(f"dropped {count(int(strangers), 'row')} of {who} unknown to train and test")
        of_user = np.where(used, owner, -1)[self.lists]
        item = items[self.item_codes]
        new = (item < 0) & (of_user >= 0)
        if new.any():
            different = count(len(np.unique(self.item_codes[new])), "item")
            rows = count(int(new.sum()), "row")
            notes.append(f"kept {different} unknown to train and test ({rows}) as cold misses")
        by_seed = {}
        for code, seed in enumerate(self.seeds[:n_seeds]):
            mine = np.flatnonzero((of_user >= 0) & (self.seed_codes[self.lists] == code))
            if (np.diff(of_user[mine]) < 0).any():  # ids sort otherwise here than in the vocabulary
                mine = mine[np.argsort(of_user[mine], kind="stable")]
            by_seed[seed] = _packed(of_user[mine], item[mine], vocabulary.n_users, k)
        return by_seed, notes


def read_lists(
    source: Any, columns: ListColumns | None = None, header: bool | None = None
) -> dict[str | None, ListTable]:
    """The lists of each system of a table, by name; None where there is one system only."""
    label = source_label(source)
    columns = columns or ListColumns()
    table = _read(source, columns, header)
    by = next((role for role in ("rank", "score") if role in table.column_names), None)
    if "score" in columns.names and "rank" not in columns.names:
        by = "score"
    if by is None:
        raise InputError(
            f"{label} has neither a column 'rank' nor 'score'; name the one that orders the items "
            "with columns= (--rank or --score)."
        )
    if "name" not in table.column_names:
        return {None: _ordered(table, by, None, label)}
    codes, names = codes_and_ids(table["name"])
    in_order = codes[np.sort(np.unique(codes, return_index=True)[1])].tolist()
    if len(in_order) == 1:
        return {None: _ordered(table, by, None, label)}
    return {str(names[code]): _ordered(table, by, codes == code, label) for code in in_order}


def _read(source: Any, columns: ListColumns, header: bool | None) -> pa.Table:
    check_complete(source)
    try:
        return read_columns(source, columns.wanted({}), header=header)
    except InputError:
        if not columns.as_in_train:
            raise
        return read_columns(source, columns.wanted(columns.as_in_train), header=header)


def _ordered(table: pa.Table, by: str, chosen: np.ndarray | None, label: str) -> ListTable:
    users, user_ids = codes_and_ids(table["user"])
    items, item_ids = codes_and_ids(table["item"])
    seeds, seed_ids = codes_and_ids(table["seed"]) if "seed" in table.column_names else (None, None)
    scores = table["score"].to_numpy() if "score" in table.column_names else None
    order = table[by].to_numpy() if by == "rank" else -table[by].to_numpy()
    finite = np.isfinite(order)
    usable = finite if chosen is None else finite & chosen
    dropped = int(np.count_nonzero(~finite if chosen is None else ~finite & chosen))
    notes = [f"dropped {count(dropped, 'row')} without a finite {by}"] if dropped else []
    if not usable.any():
        raise InputError(f"no usable row is left of {label}: {'; '.join(notes) or 'it is empty'}.")
    key = users.astype(np.int64) if seeds is None else seeds.astype(np.int64) * len(user_ids) + users
    rows = np.flatnonzero(usable)
    rows = rows[_sorting(key[rows], order[rows])]
    notes += _order_notes(key[rows], order[rows], by)
    first = _first_occurrences(key[rows], items[rows])
    if len(first) < len(rows):
        repeated = count(len(rows) - len(first), "row")
        notes.append(f"ignored {repeated} naming an item already higher in the same list")
        rows = rows[first]
    key = key[rows]
    new = np.diff(key, prepend=-1) > 0
    keys = key[new]
    seed_codes = keys // len(user_ids)
    if seed_ids is not None:  # of several systems, this one may lack some seeds
        present, seed_codes = np.unique(seed_codes, return_inverse=True)
        seed_ids = seed_ids.take(present)
    return ListTable(
        label=label,
        lists=np.cumsum(new) - 1,
        item_codes=items[rows],
        scores=None if scores is None else np.where(np.isfinite(scores[rows]), scores[rows], np.nan),
        user_codes=keys % len(user_ids),
        seed_codes=seed_codes,
        user_ids=user_ids,
        item_ids=item_ids,
        seed_ids=seed_ids,
        notes=tuple(notes),
    )


def _sorting(key: np.ndarray, order: np.ndarray) -> np.ndarray | slice:
    """The rows by list and place; sorting is saved where a file is in order already."""
    next_list, same_list = key[1:] > key[:-1], key[1:] == key[:-1]
    if (next_list | (same_list & (order[1:] >= order[:-1]))).all():
        return slice(None)
    return np.lexsort((order, key))


def _first_occurrences(key: np.ndarray, items: np.ndarray) -> np.ndarray:
    """The rows, ascending, whose (list, item) has not come before."""
    pairs = key * (int(items.max()) + 1) + items
    # Mostly there are no repeats, which a plain sort tells faster than one that remembers places.
    in_order = np.sort(pairs)
    if (in_order[1:] > in_order[:-1]).all():
        return np.arange(len(pairs))
    return np.sort(np.unique(pairs, return_index=True)[1])


def _order_notes(key: np.ndarray, order: np.ndarray, by: str) -> list[str]:
    """What is odd about the ranks or scores, in lists sorted by them."""
    same_list = key[1:] == key[:-1]
    notes = []
    tied = same_list & (order[1:] == order[:-1])
    if tied.any():
        lists = count(len(np.unique(key[1:][tied])), "list")
        notes.append(f"{lists} with equal {by}s, whose rows count in the order of the table")
    if by == "rank":
        opens = np.concatenate([[True], ~same_list])
        gap = np.concatenate([[False], same_list & (order[1:] > order[:-1] + 1)]) | (opens & ~np.isin(order, (0, 1)))
        if gap.any():
            lists = count(len(np.unique(key[gap])), "list")
            notes.append(f"{lists} with gaps in the ranks, of which only the order counts")
    return notes


def _positions(ids: pa.Array, vocabulary: pa.Array, what: str) -> np.ndarray:
    """int64: where each id stands in the vocabulary, −1 where it does not; an error where none does."""
    found = np.asarray(looked_up(ids, vocabulary).fill_null(-1), dtype=np.int64)
    if (found < 0).all():
        raise InputError(
            f"no {what} ('{ids[0]}' is not, '{vocabulary[0]}' would be); give the ids of the data it was split from."
        )
    return found


def _packed(users: np.ndarray, items: np.ndarray, n_users: int, k: int | None) -> Lists:
    """Rows ordered by user as lists, cut to k."""
    length = np.bincount(users, minlength=n_users)
    if k is not None and len(length) and length.max() > k:
        begin = np.cumsum(length) - length
        items = items[np.arange(len(users)) - begin[users] < k]
        length = np.minimum(length, k)
    indptr = np.concatenate([[0], np.cumsum(length)])
    return Lists(indptr, np.where(items < 0, UNKNOWN_ITEM, items).astype(np.int32))
