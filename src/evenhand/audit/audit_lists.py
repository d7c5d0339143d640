"""Recommendation tables of any origin as ranked lists of indices; what is odd in them becomes a note.

A running system's export is rarely clean. Whatever leaves an order to judge is judged, and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.data.reading.columns import Column, source_label
from evenhand.metrics.lists import count, dictionary_codes, first_occurrences, vocabulary_indices
from evenhand.metrics.users import NO_ITEM, UNKNOWN_ITEM
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.interactions import Interactions


@dataclass(frozen=True, eq=False)
class Ranked:
    """One system's lists over the users of a vocabulary, best item first, no item twice."""

    indptr: np.ndarray
    """int64 [n_users + 1]: the list of user u is items[indptr[u]:indptr[u + 1]]."""
    items: np.ndarray
    """int32; `UNKNOWN_ITEM` for an item outside the vocabulary."""
    notes: tuple[str, ...] = ()

    @property
    def served(self) -> np.ndarray:
        """bool [n_users]: who has a list."""
        return np.diff(self.indptr) > 0

    def top(self, start: int, stop: int, k: int) -> np.ndarray:
        """int32 [stop − start, k]: the first k items of the users in this range, then `NO_ITEM`.

        >>> Ranked(np.array([0, 2, 2, 3]), np.array([5, 3, 4])).top(0, 3, k=2)
        array([[ 5,  3],
               [-1, -1],
               [ 4, -1]])
        """
        begin, length = self.indptr[start:stop], np.diff(self.indptr[start : stop + 1])
        filled = np.arange(k) < length[:, None]
        place = np.where(filled, begin[:, None] + np.arange(k), 0)
        return np.where(filled, self.items[place], NO_ITEM) if len(self.items) else np.full(place.shape, NO_ITEM)


def read_systems(
    recs: Mapping[str, Any],
    vocabulary: Interactions,
    columns: Mapping[str, str],
    k: int,
    header: bool | None = None,
) -> dict[str, Ranked]:
    """The lists of every system, cut to k.

    A table whose column `name` has several values, as `compare` writes it, holds as many systems; they go by
    these names, after the table's own and a slash where there are other tables.
    """
    systems: dict[str, Ranked] = {}
    for given, source in recs.items():
        prefix = f"{given}/" if len(recs) > 1 else ""
        for name, ranked in _read_table(given, prefix, source, vocabulary, columns, k, header):
            if name in systems:
                raise InputError(f"two systems are called '{name}'; give each --recs its own name.")
            systems[name] = ranked
    if not systems:
        raise InputError("there are no recommendations to audit; give at least one table (--recs NAME=FILE).")
    return systems


def _read_table(
    given: str,
    prefix: str,
    source: Any,
    vocabulary: Interactions,
    columns: Mapping[str, str],
    k: int,
    header: bool | None,
) -> Iterator[tuple[str, Ranked]]:
    label = source_label(source)
    table = _columns_of(source, columns, header)
    users, n_foreign = vocabulary_indices(table["user"], vocabulary.user_ids, f"user of {label}")
    items, _ = vocabulary_indices(table["item"], vocabulary.item_ids, f"item of {label}")
    order, by_rank, usable, notes = _order(table, columns, label)
    known = users < vocabulary.n_users
    if n_foreign:
        rows = count(int((~known).sum()), "row")
        notes.append(f"dropped {rows} of {count(n_foreign, 'user')} unknown to train and test")
    usable &= known
    usable &= _one_seed(table, notes)
    names = [(given, usable)]
    if "name" in table.column_names:
        codes, ids = dictionary_codes(table["name"])
        in_order = codes[np.sort(np.unique(codes, return_index=True)[1])].tolist()
        if len(in_order) > 1:
            names = [(f"{prefix}{ids[code]}", usable & (codes == code)) for code in in_order]
    del table, known
    for name, chosen in names:
        if not chosen.any():
            raise InputError(f"no usable row is left of {name} in {label}: {'; '.join(notes) or 'it is empty'}.")
        yield name, _ranked(users, items, order, chosen, by_rank, vocabulary, k, notes, name)


def _columns_of(source: Any, columns: Mapping[str, str], header: bool | None) -> pa.Table:
    """Users and items may be called as in train (`train_user`, `train_item`) or just user and item."""
    from evenhand.data.reading.read import read_columns

    def wanted(user: str, item: str) -> list[Column]:
        return [
            Column("user", "id", columns.get("user", user)),
            Column("item", "id", columns.get("item", item)),
            Column("rank", "number", columns.get("rank")),
            Column("score", "number", columns.get("score")),
            Column("seed", "id"),
            Column("name", "id"),
        ]

    try:
        return read_columns(source, wanted("user", "item"), header=header)
    except InputError:
        as_in_train = wanted(columns.get("train_user", "user"), columns.get("train_item", "item"))
        try:
            return read_columns(source, as_in_train, header=header)
        except InputError as problem:
            raise InputError(_as_of_lists(str(problem))) from None


def _as_of_lists(message: str) -> str:
    """Lists have options of their own for their columns."""
    for role in ("user", "item"):
        message = message.replace(f"{role}= or --{role}.", f"columns= or --rec-{role}.")
    return message


def _order(table: pa.Table, columns: Mapping[str, str], label: str) -> tuple[np.ndarray, bool, np.ndarray, list[str]]:
    """(what to sort by, ascending; whether it is a rank; which rows have one; notes)."""
    name = next((role for role in ("rank", "score") if role in table.column_names), None)
    if "score" in columns and "rank" not in columns:
        name = "score"
    if name is None:
        raise InputError(
            f"{label} has neither a column 'rank' nor 'score'; name the one that orders the items "
            "with rank= (--rank) or score= (--score)."
        )
    values = table[name].to_numpy()
    missing = np.isnan(values)
    notes = [f"dropped {count(int(missing.sum()), 'row')} without a {name}"] if missing.any() else []
    by_rank = name == "rank"
    return values if by_rank else -values, by_rank, ~missing, notes


def _one_seed(table: pa.Table, notes: list[str]) -> np.ndarray | bool:
    if "seed" not in table.column_names:
        return True
    codes, seeds = dictionary_codes(table["seed"])
    if len(seeds) > 1:
        notes.append(f"holds lists of {len(seeds)} seeds, of which seed {seeds[0]} is audited")
    return codes == 0


def _ranked(
    users: np.ndarray,
    items: np.ndarray,
    order: np.ndarray,
    chosen: np.ndarray,
    by_rank: bool,
    vocabulary: Interactions,
    k: int,
    notes: list[str],
    name: str,
) -> Ranked:
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((order[rows], users[rows]))]
    of_user, of_item = users[rows], items[rows]
    notes = [*notes, *_order_notes(of_user, order[rows], by_rank)]
    first = first_occurrences(of_user, of_item)
    if len(first) < len(rows):
        repeated = count(len(rows) - len(first), "row")
        notes.append(f"ignored {repeated} naming an item already higher in the same list")
    of_user, of_item = of_user[first], of_item[first]
    del rows, first
    unknown = of_item >= vocabulary.n_items
    if unknown.any():
        different = count(len(np.unique(of_item[unknown])), "item")
        notes.append(f"kept {different} unknown to train and test ({count(int(unknown.sum()), 'row')}) as cold misses")
    length = np.bincount(of_user, minlength=vocabulary.n_users)
    begin = np.cumsum(length) - length
    kept = np.arange(len(of_user)) - begin[of_user] < k
    listed = np.where(unknown, UNKNOWN_ITEM, of_item)[kept].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(np.minimum(length, k))])
    return Ranked(indptr, listed, tuple(f"{name}: {note}." for note in notes))


def _order_notes(users: np.ndarray, order: np.ndarray, by_rank: bool) -> list[str]:
    """What is odd about the ranks or scores, in lists sorted by user and then by them."""
    same_user = users[1:] == users[:-1]
    step = np.diff(order)
    notes = []
    tied = same_user & (step == 0)
    if tied.any():
        lists = count(len(np.unique(users[1:][tied])), "list")
        what = "ranks" if by_rank else "scores"
        notes.append(f"{lists} with equal {what}, whose rows count in the order of the table")
    if by_rank:
        opens = np.concatenate([[True], ~same_user])
        gap = np.concatenate([[False], same_user & (step > 1)]) | (opens & ~np.isin(order, (0, 1)))
        if gap.any():
            lists = count(len(np.unique(users[gap])), "list")
            notes.append(f"{lists} with gaps in the ranks, of which only the order counts")
    return notes
