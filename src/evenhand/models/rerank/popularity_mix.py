"""What a re-ranking rule sees: the candidates of many lists side by side, with what is known of their popularity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.models.rerank.candidates import Candidates

HEAD, MID, TAIL = 0, 1, 2
HOT, COLD = 0, 1
HEAD_SHARE = TAIL_SHARE = 0.2
"""Of all interactions: what the head makes up, and what the tail makes up."""


# Every array here has one more entry, the last, for what train does not know; index -1 finds it.


@dataclass(frozen=True, eq=False)
class Grouping:
    """Items in groups of popularity, and what users' histories are made of."""

    groups: np.ndarray
    """int8 [n_items + 1]; an unknown item is in the last group, the least popular one."""
    mixes: np.ndarray
    """float64 [n_users + 1, G]: the groups' shares in the user's train items; without any, everybody's."""

    @staticmethod
    def of(train: Interactions, groups: np.ndarray, n_groups: int) -> Grouping:
        cell = train.users.astype(np.int64) * n_groups + groups[train.items]
        mixes = np.bincount(cell, minlength=train.n_users * n_groups).reshape(-1, n_groups)
        everybody = mixes.sum(0)
        mixes = np.vstack([mixes, everybody])
        mixes[mixes.sum(1) == 0] = everybody
        return Grouping(
            groups=np.append(groups, n_groups - 1).astype(np.int8), mixes=mixes / mixes.sum(1, keepdims=True)
        )


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
        return Popularity(
            counts=np.append(train.popularity, 0),
            tiers=Grouping.of(train, popularity_groups(train.popularity), 3),
            sides=Grouping.of(train, cold, 2),
        )


def popularity_groups(popularity: np.ndarray, head: float = HEAD_SHARE, tail: float = TAIL_SHARE) -> np.ndarray:
    """int8 [n_items]: the group of each item, by the share of all interactions that hotter items have.

    Below `head` it is in the head, from 1 - `tail` on in the tail, between them in the middle. Items as
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
    group[above < head * total] = HEAD
    group[(above >= (1 - tail) * total) | (popularity == 0)] = TAIL
    return group


_CHUNK_CELLS = 2**17
"""Candidates looked at together: few enough for a processor's cache."""


@dataclass(frozen=True, eq=False)
class Grouped:
    """The candidates' groups of popularity, and the users' mixes of them."""

    groups: np.ndarray
    """int8 [n, m]"""
    mixes: np.ndarray
    """float64 [n, G]: the groups' shares in the user's history."""


@dataclass(frozen=True, eq=False)
class Block:
    """n lists of at most m candidates, best first; a shorter list ends in cells that `filled` leaves out."""

    filled: np.ndarray
    """bool [n, m]"""
    relevance: np.ndarray
    """float64 [n, m]: from 1 (the best of the list) to 0 (its last); all 1 where all scores are equal."""
    counts: np.ndarray
    """int64 [n, m]: train interactions of the item."""
    tiers: Grouped
    """Head, mid or tail."""
    sides: Grouped
    """Hot or cold."""


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
        block = Block(
            filled=filled,
            relevance=_relevance(candidates.signal[row], filled),
            counts=popularity.counts[items],
            tiers=Grouped(popularity.tiers.groups[items], popularity.tiers.mixes[users]),
            sides=Grouped(popularity.sides.groups[items], popularity.sides.mixes[users]),
        )
        yield chosen, begins[chosen], block


def _relevance(signal: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Each row brought to 0…1 by its lowest and highest value."""
    # Halves, because the distance of two numbers may be twice what a float can hold.
    half = signal / 2
    low = np.min(half, axis=1, keepdims=True, where=filled, initial=np.inf)
    high = np.max(half, axis=1, keepdims=True, where=filled, initial=-np.inf)
    span = high - low
    return np.divide(half - low, span, out=np.ones_like(half), where=(span > 0) & filled)
