"""The ways to re-rank, each with one parameter: its strength λ between 0 (the list as it came) and 1.

A method takes a block of lists, with what is known of their items' popularity, and says which candidates to show, in
order. Equal values always go to the candidate that stood higher before; values are rounded first, so that the last bit
does not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.metrics.formulas import jensen_shannon

HEAD, MID, TAIL = 0, 1, 2
HOT, COLD = 0, 1
HEAD_SHARE = TAIL_SHARE = 0.2
"""Of all interactions: what the head makes up, and what the tail makes up."""
DIGITS = 12


@dataclass(frozen=True, eq=False)
class Grouping:
    """Items in groups of popularity, and what users' histories are made of; in a block, those of its candidates.

    Over train, both arrays have one more entry, the last, for what train does not know; index -1 finds it.
    """

    groups: np.ndarray
    """int8 [n_items + 1]; an unknown item is in the last group, the least popular one. Of a block [n, m]."""
    mixes: np.ndarray
    """float64 [n_users + 1, G]: the groups' shares in the user's train items; without any, everybody's. Of a block
    [n, G]."""

    @staticmethod
    def of(train: Interactions, groups: np.ndarray, n_groups: int) -> Grouping:
        cell = train.users.astype(np.int64) * n_groups + groups[train.items]
        mixes = np.bincount(cell, minlength=train.n_users * n_groups).reshape(-1, n_groups)
        everybody = mixes.sum(0)
        mixes = np.vstack([mixes, everybody])
        mixes[mixes.sum(1) == 0] = everybody
        return Grouping(np.append(groups, n_groups - 1).astype(np.int8), mixes / mixes.sum(1, keepdims=True))

    def at(self, items: np.ndarray, users: np.ndarray) -> Grouping:
        return Grouping(self.groups[items], self.mixes[users])


@dataclass(frozen=True, eq=False)
class Popularity:
    """All that methods ask about items and users."""

    counts: np.ndarray
    """int64 [n_items + 1]: train interactions; 0 for an unknown item."""
    tiers: Grouping
    """`HEAD`, `MID` and `TAIL`, by their share of the interactions."""
    sides: Grouping
    """`HOT` and `COLD`, by the line that metrics draw by default."""

    @staticmethod
    def of(train: Interactions) -> Popularity:
        cold = np.where(hot_items(train.popularity), HOT, COLD)
        tiers = Grouping.of(train, popularity_groups(train.popularity), 3)
        return Popularity(np.append(train.popularity, 0), tiers, Grouping.of(train, cold, 2))


def popularity_groups(popularity: np.ndarray) -> np.ndarray:
    """int8 [n_items]: the group of each item, by the share of all interactions that hotter items have.

    Below `HEAD_SHARE` it is in the head, from 1 - `TAIL_SHARE` on in the tail, between them in the middle. Items as
    popular as each other are in one group, the hotter one; an item without interactions is in the tail.

    >>> popularity_groups(np.array([50, 20, 10, 10, 6, 4, 0]))
    array([0, 1, 1, 1, 2, 2, 2], dtype=int8)
    """
    counts = np.sort(popularity)[::-1]
    hotter = np.concatenate([[0], np.cumsum(counts)])
    # The first place at which an item of this count stands says how much the strictly hotter ones have.
    above = hotter[np.searchsorted(-counts, -np.asarray(popularity))]
    total = hotter[-1]
    group = np.full(len(counts), MID, dtype=np.int8)
    group[above < HEAD_SHARE * total] = HEAD
    group[(above >= (1 - TAIL_SHARE) * total) | (popularity == 0)] = TAIL
    return group


@dataclass(frozen=True, eq=False)
class Block:
    """n lists of at most m candidates, best first; a shorter list ends in cells that `filled` leaves out."""

    filled: np.ndarray
    """bool [n, m]"""
    relevance: np.ndarray
    """float64 [n, m]: from 1 (the best of the list) to 0 (its last); all 1 where all scores are equal."""
    counts: np.ndarray
    """int64 [n, m]: train interactions of the item."""
    tiers: Grouping
    sides: Grouping


Pick = Callable[[Block, float, int], np.ndarray]
"""(block, strength, k) → int64 [n, k]: places in the candidate lists, -1 where a list has no more."""
Gain = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(how many of each group are picked [n, G], the user's mix [n, G]) → what one more of each is worth."""


@dataclass(frozen=True)
class Method:
    pick: Pick
    strength: float
    """The strength without a choice on validation."""


def calibrated(block: Block, strength: float, k: int) -> np.ndarray:
    """Calibrated popularity (Abdollahpouri et al. 2021, after Steck 2018): the list's mix follows the user's.

    Greedily maximises (1 - λ) Σ relevance - λ JS(history mix, list mix) over head, mid and tail.
    """

    def closeness(picked: np.ndarray, mix: np.ndarray) -> np.ndarray:
        """How near the list's mix would come to the user's with one more of each group: minus the divergence."""
        return -np.square(jensen_shannon(mix[:, None, :], picked[:, None, :] + np.eye(mix.shape[1])))

    return _greedy(block, block.tiers, strength, k, closeness)


def xquad(block: Block, strength: float, k: int) -> np.ndarray:
    """Long-tail coverage (Abdollahpouri, Burke & Mobasher 2019), the smooth form.

    Greedily takes the best (1 - λ) relevance + λ P(c | u) (1 - share of c in the list so far), where c,
    hot or cold, is the candidate's side.
    """

    def need(picked: np.ndarray, mix: np.ndarray) -> np.ndarray:
        return mix * (1 - picked / np.maximum(picked.sum(1, keepdims=True), 1))

    return _greedy(block, block.sides, strength, k, need)


def xquad_binary(block: Block, strength: float, k: int) -> np.ndarray:
    """`xquad` in its binary form: a side that has one item in the list needs no more."""
    return _greedy(block, block.sides, strength, k, lambda picked, mix: mix * (picked == 0))


def compensated(block: Block, strength: float, k: int) -> np.ndarray:
    """A plain handicap for popularity: the highest (1 - λ) z(score) - λ z(log(1 + train count)).

    z is taken over the candidates of the list; it is 0 where they are all alike. Our own definition.
    """
    value = (1 - strength) * _standardised(block.relevance, block.filled)
    value -= strength * _standardised(np.log1p(block.counts), block.filled)
    value = np.where(block.filled, np.round(value, DIGITS), -np.inf)
    order = np.argsort(-value, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(block.filled, order, axis=1), order, -1)


METHODS: dict[str, Method] = {
    "calibrated": Method(calibrated, 0.1),
    "xquad": Method(xquad, 0.3),
    "xquad-binary": Method(xquad_binary, 0.3),
    "compensated": Method(compensated, 0.05),
}


def _greedy(block: Block, grouped: Grouping, strength: float, k: int, gain: Gain) -> np.ndarray:
    """k times the candidate with the highest (1 - λ) relevance + λ gain of its group.

    Within a group the gain is one for all, so the next of a group is always its highest remaining candidate
    and only one candidate a group has to be compared.
    """
    groups, mixes = grouped.groups, grouped.mixes
    n, width = groups.shape
    n_groups = mixes.shape[1]
    row = np.arange(n)
    # Candidates sorted by group, in their old order within one; what fills a short list up comes last.
    queue = np.argsort(np.where(block.filled, groups, n_groups), axis=1, kind="stable")
    sizes = np.stack([((groups == g) & block.filled).sum(1) for g in range(n_groups)], axis=1)
    first = np.cumsum(sizes, axis=1) - sizes
    picked = np.zeros((n, n_groups), dtype=np.int64)
    chosen = np.full((n, min(k, width)), -1, dtype=np.int64)
    for position in range(chosen.shape[1]):
        head = queue[row[:, None], np.minimum(first + picked, width - 1)]
        value = (1 - strength) * block.relevance[row[:, None], head] + strength * gain(picked, mixes)
        value = np.where(picked < sizes, np.round(value, DIGITS), -np.inf)
        best = value.max(1, keepdims=True)
        group = np.where(value == best, head, width).argmin(1)
        left = np.isfinite(best[:, 0])
        chosen[left, position] = head[left, group[left]]
        picked[row, group] += left
    return chosen


def _standardised(values: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Each row with mean 0 and standard deviation 1 over its filled cells; 0 where they are all equal."""
    n = filled.sum(1, keepdims=True)
    away = values - np.sum(values, axis=1, keepdims=True, where=filled) / n
    spread = np.sqrt(np.sum(away**2, axis=1, keepdims=True, where=filled) / n)
    low = np.min(values, axis=1, keepdims=True, where=filled, initial=np.inf)
    high = np.max(values, axis=1, keepdims=True, where=filled, initial=-np.inf)
    return np.divide(away, spread, out=np.zeros_like(away), where=(high > low) & (spread > 0))
