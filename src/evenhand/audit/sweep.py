"""One pass over all users: every number of an audit is a sum that is gathered here, block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from evenhand.audit.audit_lists import Ranked
from evenhand.metrics.exposure import PARTS, exposure_counts
from evenhand.audit.intervals import Draws, Moments
from evenhand.audit.reference import Ground, user_ranges
from evenhand.audit.terms import (
    Block,
    Listed,
    Terms,
    block_of,
    listed,
    mean_metrics,
    pairs_by_part,
    score_block,
)
from evenhand.metrics.users import NO_ITEM

CHUNK_SLOTS = 320_000
"""How many slots of one system are looked at together."""

Progress = Callable[[str, int, int], None]
"""Called with (what is done, users done, users in all)."""
Watcher = Callable[[Block, Mapping[str, Mapping[int, Terms]], Mapping[str, Listed]], Mapping[Any, np.ndarray]]
"""Sees every block, each system's terms by k and its lists; may return further columns to be drawn."""


@dataclass(eq=False)
class Swept:
    """What the pass gathered."""

    systems: tuple[str, ...]
    ks: tuple[int, ...]
    means: dict[int, Moments]
    draws: Draws
    counts: dict[tuple[str, int], np.ndarray]
    """(system, k) → int64 [n_items]: in how many slots each item stands."""
    odd: dict[str, dict[str, int]] = field(default_factory=dict)
    """system → how often its lists were not what one expects."""


def sweep(
    ground: Ground,
    systems: Mapping[str, Ranked],
    ks: Sequence[int],
    watchers: Sequence[Watcher] = (),
    progress: Progress | None = None,
) -> Swept:
    """Every user who has a list or a test item, in blocks of consecutive users."""
    names, most = tuple(systems), max(ks)
    metrics = mean_metrics(ground.has_test)
    swept = Swept(
        names,
        tuple(ks),
        {k: Moments(metrics, len(names)) for k in ks},
        Draws(),
        {(name, k): np.zeros(ground.n_items, dtype=np.int64) for name in names for k in ks},
        {name: dict.fromkeys(("empty", "short", "unjudged", "repeats"), 0) for name in names},
    )
    audience = audience_of(ground, systems)
    for start, stop in user_ranges(ground.train, max(1, CHUNK_SLOTS // most)):
        block = block_of(ground, start, stop, audience)
        if len(block.users):
            tops = {name: ranked.top(start, stop, most)[block.users] for name, ranked in systems.items()}
            lists = {name: listed(block, top) for name, top in tops.items()}
            for name, of_system in lists.items():
                _count(swept, block, name, of_system)
            terms = {name: score_block(block, of_system, ks) for name, of_system in lists.items()}
            _gather(swept, block, terms, metrics, [watch(block, terms, lists) for watch in watchers])
        if progress is not None:
            progress("measuring", stop, ground.n_users)
    for name in names:
        for shorter, longer in pairwise(ks):
            swept.counts[name, longer] += swept.counts[name, shorter]
    return swept


def audience_of(ground: Ground, systems: Mapping[str, Ranked]) -> np.ndarray:
    """bool [n_users]: who has a list of any system, or a test item."""
    return np.logical_or.reduce([ground.test.activity > 0, *(ranked.served for ranked in systems.values())])


def _count(swept: Swept, block: Block, name: str, lists: Listed) -> None:
    top, begin = lists.top, 0
    for k in swept.ks:
        swept.counts[name, k] += exposure_counts(top[:, begin:k], block.ground.n_items)
        begin = k
    length = np.count_nonzero(top != NO_ITEM, axis=1)
    odd = swept.odd[name]
    odd["empty"] += int(np.count_nonzero(length[block.judged] == 0))
    odd["short"] += int(np.count_nonzero((length > 0) & (length < top.shape[1])))
    odd["unjudged"] += int(np.count_nonzero(length[~block.judged] > 0))
    odd["repeats"] += int(np.count_nonzero(lists.repeats))


def _gather(
    swept: Swept,
    block: Block,
    terms: Mapping[str, Mapping[int, Terms]],
    metrics: Sequence[str],
    more: Sequence[Mapping[Any, np.ndarray]],
) -> None:
    # What users want by decile or, without a test part, what they have had.
    source = block.test if block.ground.has_test else block.train
    columns: dict[Any, np.ndarray] = {
        "demand": pairs_by_part(source, block.users, block.ground.decile, PARTS),
    }
    for k in swept.ks:
        swept.means[k].add(
            np.array([[terms[name][k].values[metric] for name in swept.systems] for metric in metrics]),
            np.array([[terms[name][k].weights[metric] for name in swept.systems] for metric in metrics]),
        )
        for name in swept.systems:
            columns |= {(name, k, column): values for column, values in terms[name][k].sums.items()}
    for extra in more:
        columns |= extra
    swept.draws.add(columns)
