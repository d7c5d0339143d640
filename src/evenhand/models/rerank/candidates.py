"""A table of scored lists as arrays: what a re-ranking may pick from, in the order it came in.

Users and items that train does not know are kept: whoever asks for better lists wants all of them back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.data.reading.columns import source_label
from evenhand.metrics.lists import ListColumns, read_lists
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

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


def read_candidates(
    source: Any, train: Interactions, columns: ListColumns | None = None
) -> tuple[Candidates, list[str]]:
    """The lists of a file or table with user, item and a rank or score or both, and notes on what was odd.

    `metrics.lists` reads them and says what happens to each oddity.
    """
    tables = read_lists(source, columns)
    if len(tables) > 1:
        raise InputError(
            f"{source_label(source)} holds lists of {len(tables)} recommenders in its column 'name' "
            f"({', '.join(map(str, list(tables)[:3]))}…); give those of one at a time."
        )
    (table,) = tables.values()
    users, items = table.known(train, "in train")
    signal, n_contradicting, n_without = _signal(table.lists, table.scores)
    found = Candidates(
        lists=table.lists,
        items=items[table.item_codes],
        signal=signal,
        scores=signal if table.scores is None else np.where(np.isnan(table.scores), signal, table.scores),
        item_codes=table.item_codes,
        users=users[table.user_codes],
        user_codes=table.user_codes,
        seed_codes=table.seed_codes,
        user_ids=table.user_ids,
        item_ids=table.item_ids,
        seed_ids=table.seed_ids,
    )
    n_new_items, n_new_users = int((items < 0).sum()), int((users < 0).sum())
    notes = {
        "There are no scores, so relevance falls evenly with the rank.": int(table.scores is None),
        f"In {count(n_contradicting, 'list')} scores contradict ranks; there relevance falls evenly with "
        "the rank.": n_contradicting,
        f"In {count(n_without, 'list')} scores are missing; there relevance falls evenly with the rank.": n_without,
        f"Kept {count(n_new_items, 'item')} that train does not know; such items count as cold.": n_new_items,
        f"Kept the lists of {count(n_new_users, 'user')} whom train does not know; everybody's "
        "mix of hits and niches stands in for theirs.": n_new_users,
    }
    sentences = [f"{note[0].upper()}{note[1:]}." for note in table.notes]
    return found, [*sentences, *(note for note, n in notes.items() if n)]


def _signal(lists: np.ndarray, scores: np.ndarray | None) -> tuple[np.ndarray, int, int]:
    """(a number per row that never rises within a list, how many lists have scores that do, how many lack some).

    It is the score or, where one is missing or contradicts the rank, 1 - place / length.
    """
    lengths = np.bincount(lists)
    begins = np.cumsum(lengths) - lengths
    by_rank = 1 - (np.arange(len(lists)) - begins[lists]) / lengths[lists]
    if scores is None:
        return by_rank, 0, 0
    rises = (scores[1:] > scores[:-1]) & (lists[1:] == lists[:-1])
    contradicting = np.bincount(lists[1:][rises], minlength=len(lengths)) > 0
    without = np.bincount(lists[np.isnan(scores)], minlength=len(lengths)) > 0
    contradicting &= ~without
    signal = np.where((contradicting | without)[lists], by_rank, scores)
    return signal, int(contradicting.sum()), int(without.sum())
