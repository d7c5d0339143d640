"""The strength chosen on validation: as little overrating of hits as a small loss of accuracy buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.metrics.users import NO_ITEM, UNKNOWN_ITEM, score_lists
from evenhand.models.rerank.candidates import Candidates
from evenhand.models.rerank.popularity_mix import Popularity, blocks
from evenhand.models.rerank.rules import Method
from evenhand.utils.errors import InputError

GRID = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
TOLERANCE = 0.01


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
    candidates: Candidates,
    popularity: Popularity,
    method: Method,
    k: int,
    truth: Interactions,
    hot: np.ndarray,
    grid: Sequence[float] = GRID,
) -> tuple[Trial, ...]:
    """What each strength does to the metrics at k of all users with an item in `truth`.

    As in `evaluate`, a user without a list counts as one with an empty list.
    """
    if not truth.contains(candidates.users[candidates.lists], candidates.items).any():
        raise InputError(
            "no list holds an item that its user has in validation, so nothing can be chosen there; "
            "give lists made from train alone, that do not leave out validation items."
        )
    # A list cannot be longer than this, so that a larger k would find the same.
    k = min(k, max(truth.n_items, int(candidates.lengths.max())))
    return tuple(
        _trial(strength, candidates, top_items(candidates, popularity, method, strength, k), k, truth, hot)
        for strength in grid
    )


def best_trial(trials: Sequence[Trial], tolerance: float = TOLERANCE) -> Trial:
    """The lowest OHR among those whose NDCG is at most `tolerance` (relative) below strength 0's.

    Of equal ones, the lowest strength.
    """
    floor = (1 - tolerance) * next(trial.ndcg for trial in trials if trial.strength == 0)
    return min((trial for trial in trials if trial.ndcg >= floor), key=lambda t: (t.ohr, t.strength))


def _trial(
    strength: float,
    candidates: Candidates,
    rows: np.ndarray,
    k: int,
    truth: Interactions,
    hot: np.ndarray,
) -> Trial:
    tested = np.flatnonzero(truth.activity)
    items = candidates.items[rows]
    items = np.where(rows < 0, NO_ITEM, np.where(items < 0, UNKNOWN_ITEM, items))
    per_seed = []
    for seed in np.unique(candidates.seed_codes):
        mine = (candidates.seed_codes == seed) & (candidates.users >= 0)
        top = np.full((truth.n_users, k), NO_ITEM, dtype=np.int64)
        top[candidates.users[mine], : items.shape[1]] = items[mine]
        per_seed.append(score_lists(top[tested], tested, truth, hot, (k,))[k])
    metrics = [field.name for field in fields(Trial) if field.name != "strength"]
    means = {name: float(np.mean([one.mean(name) for one in per_seed])) for name in metrics}
    return Trial(strength, **means)
