"""Lists of about the same length, side by side as matrices: the form in which methods see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evenhand.models.rerank.candidates import Candidates
from evenhand.models.rerank.popularity_mix import Popularity

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
