"""What a person should know of a log before training on it: its size, its density, and how skewed it is.

The same few numbers for any interactions or split, so that datasets can be compared at a glance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini, share_of_hottest

if TYPE_CHECKING:
    from evenhand.data.splits import Split


@dataclass(frozen=True)
class DatasetSummary:
    """All numbers are of every pair, the parts of a split taken together."""

    users: int
    """Users in the vocabulary, with or without a pair; so also `items`."""
    items: int
    pairs: int
    density: float
    """pairs / (users × items)."""
    popularity_gini: float
    hot_share: float
    """The share of pairs on the hottest 15 % of items."""
    activity_min: int
    activity_median: float
    activity_max: int
    parts: dict[str, int]
    """The pairs of each part of a split; empty for plain interactions."""
    notes: tuple[str, ...]


def describe(data: Interactions | Split) -> DatasetSummary:
    """Summarise interactions, or a split as a whole.

    >>> found = describe(Interactions.from_pairs([0, 0, 1], [0, 1, 0]))
    >>> found.density, found.activity_max
    (0.75, 2)
    """
    parts: dict[str, int] = {}
    whole = data
    if not isinstance(data, Interactions):
        parts = {
            name: len(part)
            for name, part in (("train", data.train), ("validation", data.validation), ("test", data.test))
            if part is not None
        }
        whole = data.train.union(data.validation, data.test)
    assert isinstance(whole, Interactions)
    activity = whole.activity if whole.n_users else np.zeros(1, dtype=np.int64)
    return DatasetSummary(
        users=whole.n_users,
        items=whole.n_items,
        pairs=len(whole),
        density=len(whole) / max(1, whole.n_users * whole.n_items),
        popularity_gini=gini(whole.popularity),
        hot_share=share_of_hottest(whole.popularity),
        activity_min=int(activity.min()),
        activity_median=float(np.median(activity)),
        activity_max=int(activity.max()),
        parts=parts,
        notes=tuple(data.notes),
    )
