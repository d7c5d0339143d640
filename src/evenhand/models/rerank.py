"""A cure for finished lists: from more candidates than are shown, pick the shown ones less by popularity.

How strongly is given, or chosen on a validation part: as little overrating of hits as a small loss of accuracy buys.
Users and items that train does not know are kept: whoever asks for better lists wants all of them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.reading.columns import source_label
from evenhand.data.reading.read import as_interactions
from evenhand.data.splits import Split, share_vocabulary
from evenhand.metrics.evaluate import score_lists
from evenhand.metrics.formulas import NO_ITEM, UNKNOWN_ITEM
from evenhand.metrics.lists import ListColumns, ListTable, read_lists
from evenhand.models.rerank_rules import METHODS, Block, Method, Popularity
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count

__all__ = ["METHODS", "Reranked", "rerank", "rerank_lists"]

GRID = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
TOLERANCE = 0.01
_CHUNK_CELLS = 2**17
"""Candidates looked at together: few enough for a processor's cache."""


@dataclass(frozen=True)
class Trial:
    """One strength on validation, averaged over seeds."""

    strength: float
    ndcg: float
    ohr: float
    ocr: float
    ucr: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Reranked:
    """Better lists, and how they came about."""

    table: pa.Table
    """user, item, score, rank and, where the input had seeds, seed."""
    method: str
    strength: float
    trials: tuple[Trial, ...]
    """What each strength did on validation; empty where none was given."""
    hot: str | None
    """What counted as hot in the trials, in words."""
    notes: tuple[str, ...]


def rerank(
    recs: Any,
    train: Any,
    method: str = "calibrated",
    strength: float | None = None,
    k: int = 20,
    validation: Any = None,
) -> pa.Table:
    """The k items of each list that a re-ranking against popularity bias puts first: user, item, score, rank.

    `recs` are lists with more than k candidates each, a file or table with columns user, item and score or
    rank; `train` is what they were made from, an `Interactions`, a file or a table. `method` is calibrated,
    xquad, xquad-binary or compensated. `strength` lies between 0, which returns the first k as they came,
    and 1; None takes the method's default or, with `validation`, chooses it there. Nothing enters a list
    that was not in it; items of `validation` leave it, since the user has them by now. `score` is the score
    that came in, so sort by `rank`. `rerank_lists` also tells the trials and notes.
    """
    return rerank_lists(recs, train, method, strength, k, validation).table


def rerank_lists(
    recs: Any,
    train: Any,
    method: str = "calibrated",
    strength: float | None = None,
    k: int = 20,
    validation: Any = None,
    *,
    tolerance: float = TOLERANCE,
    hot: str | float | HotRule = "honest",
    columns: ListColumns | None = None,
) -> Reranked:
    """What `rerank` does, with the trials and notes.

    `tolerance` is the share of NDCG@k on validation that a lower OHR@k may cost; `hot` says which items are
    hot there; `columns` names the columns of the lists.
    """
    _check(method, strength, k, validation, tolerance)
    past, truth, notes = _parts(train, validation)
    candidates, odd = read_candidates(recs, past, columns)
    popularity, rule = Popularity.of(past), METHODS[method]
    notes += odd
    trials: tuple[Trial, ...] = ()
    hot_words = None
    if truth is not None:
        hot_rule = HotRule.parse(hot)
        hot_words = hot_rule.describe()
        is_hot = hot_rule.mask(Split(past, None, truth, "train and validation"))
        trials = try_strengths(candidates, popularity, rule, k, truth, is_hot)
        strength = best_trial(trials, tolerance).strength
        had = candidates.within(truth)
        candidates = candidates.take(~had)
        notes.append(f"Left out {count(int(had.sum()), 'candidate')} that the user has in validation.")
    strength = rule.strength if strength is None else strength
    notes += _notes(candidates, past, k)
    rows = top_items(candidates, popularity, rule, strength, k)
    return Reranked(candidates.shown(rows), method, strength, trials, hot_words, tuple(notes))


def _check(method: str, strength: float | None, k: int, validation: Any, tolerance: float) -> None:
    if method not in METHODS:
        raise unknown("re-ranking method", method, METHODS)
    if strength is not None and validation is not None:
        raise InputError("a strength and a validation part to choose it on exclude each other.")
    if strength is not None and not 0 <= strength <= 1:
        raise InputError(f"the strength is {strength:g}; it must lie between 0 and 1.")
    if not 0 <= tolerance <= 1:
        raise InputError(f"the tolerance is {tolerance:g}; it is a share of NDCG between 0 and 1, 0.01 for 1 %.")
    if not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k must be a whole number from 1 on, not {k}.")


def _parts(train: Any, validation: Any) -> tuple[Interactions, Interactions | None, list[str]]:
    """Train and, where it is given, validation without what train has, over one vocabulary; and notes."""
    known = as_interactions(train)
    if not len(known):
        raise InputError("train is empty, so nothing is known of popularity.")
    if validation is None:
        return known, None, list(known.notes)
    parts, odd = share_vocabulary({"train": known, "validation": as_interactions(validation)})
    known, truth = parts.values()
    notes = [*known.notes, *truth.notes, *odd]
    repeated = known.contains(truth.users, truth.items)
    if repeated.all():
        raise InputError("the validation part is empty, or holds only pairs of train.")
    if repeated.any():
        notes.append(f"Left out {count(int(repeated.sum()), 'validation pair')} that train has too.")
    return known, truth.take(~repeated), list(dict.fromkeys(notes))


def _notes(candidates: Candidates, train: Interactions, k: int) -> list[str]:
    lengths = candidates.lengths
    n_known = int(candidates.within(train).sum())
    n_tight = int((lengths <= k).sum())
    notes = []
    if n_known:
        notes.append(f"Kept {count(n_known, 'candidate')} that the user has in train, as the lists had them.")
    if n_tight:
        notes.append(
            f"{n_tight:,} of {count(len(lengths), 'list')} hold {k} candidates or fewer, "
            "so that only their order can change; give longer lists, such as 5 times k."
        )
    return notes


@dataclass(frozen=True, eq=False)
class Candidates:
    """A table of lists, one per seed and user, with its users and items looked up in train's vocabulary."""

    table: ListTable
    """Its scores are those given or, where there is none, `signal`."""
    items: np.ndarray
    """int64 [rows]: the item's index, -1 where train does not know it."""
    signal: np.ndarray
    """float64 [rows]: what relevance is made from, never rising within a list."""
    users: np.ndarray
    """int64 [lists]: the user's index, -1 where train does not know them."""

    @property
    def lengths(self) -> np.ndarray:
        """int64 [lists]"""
        return np.bincount(self.table.lists, minlength=len(self.users))

    def within(self, part: Interactions) -> np.ndarray:
        """bool [rows]: the user has this item in that part."""
        return part.contains(self.users[self.table.lists], self.items)

    def take(self, keep: np.ndarray) -> Candidates:
        """Only the rows where `keep` is true; a list may become empty."""
        own = {name: getattr(self.table, name)[keep] for name in ("lists", "item_codes", "scores")}
        return replace(self, table=replace(self.table, **own), items=self.items[keep], signal=self.signal[keep])

    def shown(self, rows: np.ndarray) -> pa.Table:
        """These rows [lists, k], -1 for none, as user, item, score, rank and, where there were seeds, seed."""
        table, place = self.table, np.nonzero(rows >= 0)
        assert table.scores is not None
        of, ranks, rows = place[0], place[1] + 1, rows[place]
        columns = {
            "user": table.user_ids.take(pa.array(table.user_codes[of])),
            "item": table.item_ids.take(pa.array(table.item_codes[rows])),
            "score": pa.array(table.scores[rows]),
            "rank": pa.array(ranks.astype(np.int32)),
        }
        if table.seed_ids is not None:
            columns["seed"] = table.seed_ids.take(pa.array(table.seed_codes[of]))
        return pa.table(columns)


def read_candidates(source: Any, train: Interactions, columns: ListColumns | None) -> tuple[Candidates, list[str]]:
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
    scores = signal if table.scores is None else np.where(np.isnan(table.scores), signal, table.scores)
    found = Candidates(replace(table, scores=scores), items[table.item_codes], signal, users[table.user_codes])
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


def blocks(candidates: Candidates, popularity: Popularity) -> Iterator[tuple[np.ndarray, np.ndarray, Block]]:
    """Cut all lists into blocks: (the lists [n], the row at which each of them begins [n], the block)."""
    lengths = candidates.lengths
    begins = np.cumsum(lengths) - lengths
    # The longest first, so that little is filled up and the size of a block is known from its first list.
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    while len(order):
        width = int(lengths[order[0]])
        chosen, order = np.split(order, [max(1, _CHUNK_CELLS // width)])
        place = np.arange(width)
        filled = place < lengths[chosen, None]
        row = np.where(filled, begins[chosen, None] + place, 0)
        items, users = candidates.items[row], candidates.users[chosen]
        groupings = popularity.tiers.at(items, users), popularity.sides.at(items, users)
        relevance = _relevance(candidates.signal[row], filled)
        yield chosen, begins[chosen], Block(filled, relevance, popularity.counts[items], *groupings)


def _relevance(signal: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Each row brought to 0…1 by its lowest and highest value."""
    # Halves, because the distance of two numbers may be twice what a float can hold.
    half = signal / 2
    low = np.min(half, axis=1, keepdims=True, where=filled, initial=np.inf)
    high = np.max(half, axis=1, keepdims=True, where=filled, initial=-np.inf)
    span = high - low
    return np.divide(half - low, span, out=np.ones_like(half), where=(span > 0) & filled)


def top_items(candidates: Candidates, popularity: Popularity, method: Method, strength: float, k: int) -> np.ndarray:
    """int64 [lists, k]: the rows of `candidates` that each list shows, in order; -1 where it has no more.

    There are fewer columns than k where no list is that long.
    """
    k = min(k, int(candidates.lengths.max()))
    rows = np.full((len(candidates.users), k), -1, dtype=np.int64)
    for lists, begins, block in blocks(candidates, popularity):
        picked = method.pick(block, strength, k)
        rows[lists, : picked.shape[1]] = np.where(picked >= 0, begins[:, None] + picked, -1)
    return rows


def try_strengths(
    candidates: Candidates, popularity: Popularity, method: Method, k: int, truth: Interactions, hot: np.ndarray
) -> tuple[Trial, ...]:
    """What each strength does to the metrics at k of all users with an item in `truth`.

    As in `evaluate`, a user without a list counts as one with an empty list.
    """
    if not candidates.within(truth).any():
        raise InputError(
            "no list holds an item that its user has in validation, so nothing can be chosen there; "
            "give lists made from train alone, that do not leave out validation items."
        )
    # A list cannot be longer than this, so that a larger k would find the same.
    k = min(k, max(truth.n_items, int(candidates.lengths.max())))
    return tuple(
        _trial(strength, candidates, top_items(candidates, popularity, method, strength, k), k, truth, hot)
        for strength in GRID
    )


def best_trial(trials: Sequence[Trial], tolerance: float = TOLERANCE) -> Trial:
    """The lowest OHR among those whose NDCG is at most `tolerance` (relative) below strength 0's.

    Of equal ones, the lowest strength.
    """
    floor = (1 - tolerance) * next(trial.ndcg for trial in trials if trial.strength == 0)
    return min((trial for trial in trials if trial.ndcg >= floor), key=lambda t: (t.ohr, t.strength))


def _trial(
    strength: float, candidates: Candidates, rows: np.ndarray, k: int, truth: Interactions, hot: np.ndarray
) -> Trial:
    tested, seeds = np.flatnonzero(truth.activity), candidates.table.seed_codes
    items = candidates.items[rows]
    items = np.where(rows < 0, NO_ITEM, np.where(items < 0, UNKNOWN_ITEM, items))
    per_seed = []
    for seed in np.unique(seeds):
        mine = (seeds == seed) & (candidates.users >= 0)
        top = np.full((truth.n_users, k), NO_ITEM, dtype=np.int64)
        top[candidates.users[mine], : items.shape[1]] = items[mine]
        per_seed.append(score_lists(top[tested], tested, truth, hot, (k,))[k])
    metrics = [field.name for field in fields(Trial) if field.name != "strength"]
    means = {name: float(np.mean([one.mean(name) for one in per_seed])) for name in metrics}
    return Trial(strength, **means)
