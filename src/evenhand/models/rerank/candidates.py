"""A table of scored lists as arrays: what a re-ranking may pick from, in the order it came in.

Unlike `metrics.lists` this keeps scores, and keeps users and items that train does not know: whoever asks
for better lists wants all of them back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.data.reading.columns import Column, source_label
from evenhand.data.reading.values import codes_and_ids
from evenhand.metrics.lists import COLUMNS, count
from evenhand.models.id_lookup import positions
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.interactions import Interactions


@dataclass(frozen=True, eq=False)
class Candidates:
    """One list per seed and user; rows are ordered by list and, within a list, best first."""

    lists: np.ndarray
    """int64 [rows], ascending: the list a row belongs to."""
    items: np.ndarray
    """int64 [rows]: the item's index in train's vocabulary, -1 where train does not know it."""
    signal: np.ndarray
    """float64 [rows]: what relevance is made from, never rising within a list."""
    scores: np.ndarray
    """float64 [rows]: the scores as given; without any, `signal`."""
    item_codes: np.ndarray
    """int64 [rows]: positions in `item_ids`."""
    users: np.ndarray
    """int64 [lists]: the user's index in train's vocabulary, -1 where train does not know them."""
    user_codes: np.ndarray
    """int64 [lists]: positions in `user_ids`."""
    seed_codes: np.ndarray
    """int64 [lists]: positions in `seed_ids`; zeros without seeds."""
    user_ids: pa.Array
    item_ids: pa.Array
    seed_ids: pa.Array | None

    @property
    def lengths(self) -> np.ndarray:
        """int64 [lists]"""
        return np.bincount(self.lists, minlength=len(self.users))

    def take(self, keep: np.ndarray) -> Candidates:
        """Only the rows where `keep` is true; a list may become empty."""
        names = ("lists", "items", "signal", "scores", "item_codes")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})

    def table(self, rows: np.ndarray, ranks: np.ndarray) -> pa.Table:
        """These rows as user, item, score, rank and, where there were seeds, seed."""
        import pyarrow as pa

        of = self.lists[rows]
        columns = {
            "user": self.user_ids.take(pa.array(self.user_codes[of])),
            "item": self.item_ids.take(pa.array(self.item_codes[rows])),
            "score": pa.array(self.scores[rows]),
            "rank": pa.array(ranks.astype(np.int32)),
        }
        if self.seed_ids is not None:
            columns["seed"] = self.seed_ids.take(pa.array(self.seed_codes[of]))
        return pa.table(columns)


def read_candidates(source: Any, train: Interactions) -> tuple[Candidates, list[str]]:
    """The lists of a file or table with user, item and a rank or score or both, and notes on what was odd.

    The order is that of `metrics.lists`: by rank where there is one, else by score, ties as they come.
    """
    from evenhand.data.reading.read import read_columns

    label = source_label(source)
    table = read_columns(source, [*COLUMNS, Column("name", "id")])
    _refuse_several_names(table, label)
    user_codes, user_ids = codes_and_ids(table["user"])
    item_codes, item_ids = codes_and_ids(table["item"])
    seeds, seed_ids = np.zeros(len(user_codes), dtype=np.int64), None
    if "seed" in table.column_names:
        seeds, seed_ids = codes_and_ids(table["seed"])
    users = _positions(user_ids, train.user_ids, f"user of {label}")
    items = _positions(item_ids, train.item_ids, f"item of {label}")

    ranks, scores = _numbers(table, "rank", label), _numbers(table, "score", label)
    key = seeds.astype(np.int64) * len(user_ids) + user_codes
    rows = _in_order(key, _order(ranks, scores, label))
    rows, n_repeated = _first_occurrences(rows, key, item_codes, len(item_ids))
    key = key[rows]
    new = np.diff(key, prepend=-1) > 0
    keys, lists = key[new], np.cumsum(new) - 1
    signal, n_contradicting = _signal(lists, None if scores is None else scores[rows])
    found = Candidates(
        lists=lists,
        items=items[item_codes[rows]],
        signal=signal,
        scores=signal if scores is None else scores[rows],
        item_codes=item_codes[rows],
        users=users[keys % len(user_ids)],
        user_codes=keys % len(user_ids),
        seed_codes=keys // len(user_ids),
        user_ids=user_ids,
        item_ids=item_ids,
        seed_ids=seed_ids,
    )
    notes = {
        "There are no scores, so relevance falls evenly with the rank.": int(scores is None),
        f"In {count(n_contradicting, 'list')} scores contradict ranks; there relevance falls evenly with "
        "the rank.": n_contradicting,
        f"Ignored {count(n_repeated, 'row')} naming an item already higher in the same list.": n_repeated,
        f"Kept {count(int((items < 0).sum()), 'item')} that train does not know; such items count as cold.": (
            int((items < 0).sum())
        ),
        f"Kept the lists of {count(int((users < 0).sum()), 'user')} whom train does not know; everybody's "
        "mix of hits and niches stands in for theirs.": int((users < 0).sum()),
    }
    return found, [note for note, n in notes.items() if n]


def _refuse_several_names(table: pa.Table, label: str) -> None:
    if "name" in table.column_names:
        names = codes_and_ids(table["name"])[1].to_pylist()
        if len(names) > 1:
            raise InputError(
                f"{label} holds lists of {len(names)} recommenders in its column 'name' "
                f"({', '.join(map(str, names[:3]))}…); give those of one at a time."
            )


def _positions(ids: pa.Array, vocabulary: pa.Array, what: str) -> np.ndarray:
    found = positions(ids, vocabulary)
    if (found < 0).all():
        raise InputError(
            f"no {what} is in train ('{ids[0]}' is not, '{vocabulary[0]}' would be); "
            "give the interactions the lists were made from."
        )
    return found


def _numbers(table: pa.Table, name: str, label: str) -> np.ndarray | None:
    """A column of finite numbers; None where there is none."""
    if name not in table.column_names:
        return None
    values: np.ndarray = table[name].to_numpy()
    wrong = ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax()) + 1
        raise InputError(f"column '{name}' of {label} has no finite number in row {row}; correct or drop such rows.")
    return values


def _order(ranks: np.ndarray | None, scores: np.ndarray | None, label: str) -> np.ndarray:
    """What to sort by, ascending."""
    if ranks is not None:
        return ranks
    if scores is not None:
        return -scores
    raise InputError(f"{label} has neither a column 'rank' nor 'score'; one must say which item comes first.")


def _in_order(key: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The rows by list and place; sorting is saved where a file is in order already."""
    next_list, same_list = key[1:] > key[:-1], key[1:] == key[:-1]
    if (next_list | (same_list & (order[1:] >= order[:-1]))).all():
        return np.arange(len(key))
    return np.lexsort((order, key))


def _first_occurrences(
    rows: np.ndarray, key: np.ndarray, item_codes: np.ndarray, n_items: int
) -> tuple[np.ndarray, int]:
    """The rows that name an item for the first time in their list, and how many do not."""
    pairs = key[rows] * n_items + item_codes[rows]
    # Mostly there are none, which a plain sort tells faster than one that remembers places.
    in_order = np.sort(pairs)
    if (in_order[1:] > in_order[:-1]).all():
        return rows, 0
    first = np.unique(pairs, return_index=True)[1]
    return rows[np.sort(first)], len(rows) - len(first)


def _signal(lists: np.ndarray, scores: np.ndarray | None) -> tuple[np.ndarray, int]:
    """(a number per row that never rises within a list, how many lists have scores that do).

    It is the score or, where that is missing or contradicts the rank, 1 - place / length.
    """
    lengths = np.bincount(lists)
    begins = np.cumsum(lengths) - lengths
    by_rank = 1 - (np.arange(len(lists)) - begins[lists]) / lengths[lists]
    if scores is None:
        return by_rank, 0
    rises = (scores[1:] > scores[:-1]) & (lists[1:] == lists[:-1])
    contradicting = np.bincount(lists[1:][rises], minlength=len(lengths)) > 0
    return np.where(contradicting[lists], by_rank, scores), int(contradicting.sum())
