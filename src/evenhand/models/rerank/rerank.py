"""From lists, train and perhaps a validation part to better lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, share_vocabulary
from evenhand.metrics.lists import ListColumns
from evenhand.models.rerank.candidates import Candidates, read_candidates
from evenhand.models.rerank.popularity_mix import Popularity
from evenhand.models.rerank.rules import METHODS
from evenhand.models.rerank.strength import TOLERANCE, Trial, best_trial, top_items, try_strengths
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.popularity import HotRule


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
    parts, notes = _parts(train, validation)
    candidates, odd = read_candidates(recs, parts["train"], columns)
    popularity = Popularity.of(parts["train"])
    notes += odd
    trials: tuple[Trial, ...] = ()
    hot_words = None
    if "validation" in parts:
        rule = _rule(hot)
        hot_words = rule.describe()
        truth = parts["validation"]
        is_hot = rule.mask(Split(parts["train"], None, truth, "train and validation"))
        trials = try_strengths(candidates, popularity, METHODS[method], k, truth, is_hot)
        strength = best_trial(trials, tolerance).strength
        candidates, left = _without(candidates, truth)
        notes += left
    elif strength is None:
        strength = METHODS[method].strength
    assert strength is not None
    notes += _notes(candidates, parts["train"], k)
    rows = top_items(candidates, popularity, METHODS[method], strength, k)
    shown = rows >= 0
    ranks = np.broadcast_to(np.arange(1, rows.shape[1] + 1), rows.shape)
    table = candidates.table(rows[shown], ranks[shown])
    return Reranked(table, method, strength, trials, hot_words, tuple(notes))


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


def _parts(train: Any, validation: Any) -> tuple[dict[str, Interactions], list[str]]:
    """Train and, where it is given, validation without what train has, over one vocabulary."""
    from evenhand.data.reading.read import read_interactions

    def read(source: Any) -> Interactions:
        return source if isinstance(source, Interactions) else read_interactions(source, allow_small=True)

    parts = {"train": read(train)}
    if not len(parts["train"]):
        raise InputError("train is empty, so nothing is known of popularity.")
    if validation is None:
        return parts, list(parts["train"].notes)
    parts, odd = share_vocabulary(parts | {"validation": read(validation)})
    known, truth = parts.values()
    notes = [*known.notes, *truth.notes, *odd]
    repeated = known.contains(truth.users, truth.items)
    if repeated.all():
        raise InputError("the validation part is empty, or holds only pairs of train.")
    if repeated.any():
        notes.append(f"Left out {count(int(repeated.sum()), 'validation pair')} that train has too.")
    return {"train": known, "validation": truth.take(~repeated)}, list(dict.fromkeys(notes))


def _rule(hot: str | float | HotRule) -> HotRule:
    from evenhand.data.popularity import HotRule

    return hot if isinstance(hot, HotRule) else HotRule.parse(hot)


def _known(candidates: Candidates, part: Interactions) -> np.ndarray:
    """bool [rows]: the user has this item in that part."""
    return part.contains(candidates.users[candidates.lists], candidates.items)


def _without(candidates: Candidates, validation: Interactions) -> tuple[Candidates, list[str]]:
    had = _known(candidates, validation)
    note = f"Left out {count(int(had.sum()), 'candidate')} that the user has in validation."
    return candidates.take(~had), [note]


def _notes(candidates: Candidates, train: Interactions, k: int) -> list[str]:
    lengths = candidates.lengths
    n_known = int(_known(candidates, train).sum())
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
