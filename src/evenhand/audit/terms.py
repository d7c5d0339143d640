"""What each user adds to every metric: from a block of users and their lists to columns to be summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from evenhand.metrics.catalogue import BOOTSTRAPPED, ITEMWISE, available
from evenhand.metrics.exposure import PARTS, average_popularity, long_tail_count, long_tail_share
from evenhand.audit.hits import hit_rate, reciprocal_rank
from evenhand.audit.reference import Ground, part_of
from evenhand.data.interactions import Interactions
from evenhand.metrics.users import DEFINED, NO_ITEM, RATES, UserMetrics, score_lists


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive users of the audience, with their part of train and test."""

    ground: Ground
    start: int
    """The first user of the range; `users` are counted from here."""
    users: np.ndarray
    """int64 [n]: who of the range is looked at."""
    train: Interactions
    test: Interactions

    @property
    def everyone(self) -> np.ndarray:
        """int64 [n]: the users' indices in the vocabulary."""
        return self.start + self.users

    @property
    def judged(self) -> np.ndarray:
        """bool [n]"""
        return self.test.activity[self.users] > 0

    @property
    def habit(self) -> np.ndarray:
        return self.ground.habit[self.everyone]


def block_of(ground: Ground, start: int, stop: int, audience: np.ndarray) -> Block:
    return Block(
        ground,
        start,
        np.flatnonzero(audience[start:stop]),
        part_of(ground.train, start, stop),
        part_of(ground.test, start, stop),
    )


@dataclass(frozen=True, eq=False)
class Terms:
    """One system's columns at one k, all [n] over the block's users."""

    values: Mapping[str, np.ndarray]
    """Of the metrics that are means: the user's value, 0 where the user does not count."""
    weights: Mapping[str, np.ndarray]
    """1 where the user counts, else 0."""
    sums: Mapping[str, np.ndarray]
    """What the bootstrap adds up; `slots` is [n, 10], by decile."""
    rates: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Counts behind the bias rates: ohr.above, ohr.below, …; 0 for users without a test item."""


@dataclass(frozen=True, eq=False)
class Listed:
    """One system's lists for the block's users, all [n, k]."""

    top: np.ndarray
    hits: np.ndarray
    """Which slots hold a test item of the user."""
    repeats: np.ndarray
    """Which slots hold something from the user's train part."""


def listed(block: Block, top: np.ndarray) -> Listed:
    users = block.users[:, None]
    return Listed(top, block.test.contains(users, top), block.train.contains(users, top))


def mean_metrics(has_test: bool) -> list[str]:
    return [name for name in available(has_test) if name not in BOOTSTRAPPED and name not in ITEMWISE]


def score_block(block: Block, lists: Listed, ks: Sequence[int]) -> dict[int, Terms]:
    """Every k's terms from lists of length max(ks)."""
    accuracy: dict[int, UserMetrics] = {}
    if block.ground.has_test:
        accuracy = score_lists(lists.top, block.users, block.test, block.ground.hot, ks, consumed=block.train)
    return {k: _terms(block, lists, k, accuracy.get(k)) for k in ks}


def _terms(block: Block, lists: Listed, k: int, accuracy: UserMetrics | None) -> Terms:
    top = lists.top[:, :k]
    values, weights, sums = _exposure_terms(block, top, lists.repeats[:, :k])
    rates: dict[str, np.ndarray] = {}
    if accuracy is not None:
        judged, hits = block.judged, lists.hits
        found = {name: accuracy.per_user(name) for name in (*accuracy.values, *RATES, *DEFINED)}
        found |= {"hit_rate": hit_rate(hits[judged], k), "mrr": reciprocal_rank(hits[judged], k)}
        for name, of_judged in found.items():
            whole = np.full(len(top), np.nan)
            whole[judged] = of_judged
            values[name], weights[name] = _counted(whole)
        for name, rate in accuracy.rates.items():
            for end, counts in (("above", rate.numerators), ("below", rate.denominators)):
                rates[f"{name}.{end}"] = np.zeros(len(top))
                rates[f"{name}.{end}"][judged] = counts
    return Terms(values, weights, sums | rates, rates)


def _exposure_terms(
    block: Block, top: np.ndarray, repeats: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    ground = block.ground
    shown = average_popularity(top, ground.popularity)
    tail = long_tail_count(top, ground.hot)
    per_user = {
        "arp": shown,
        "aplt": long_tail_share(top, ground.hot),
        "aclt": np.where(np.isnan(shown), np.nan, tail),
    }
    values, weights = {}, {}
    for name, column in per_user.items():
        values[name], weights[name] = _counted(column)
    comparable = ~np.isnan(shown) & ~np.isnan(block.habit)
    fresh = (top >= 0) & ~repeats
    fresh_hot = np.count_nonzero(fresh & ground.hot[np.maximum(top, 0)], axis=1)
    had_hot = np.rint(np.nan_to_num(ground.taste[block.everyone]) * block.train.activity[block.users])
    n_hot, served = np.count_nonzero(ground.hot), (top != NO_ITEM).any(axis=1)
    had_cold = block.train.activity[block.users] - had_hot
    sums = {
        "lift.shown": np.where(comparable, shown, 0.0),
        "lift.habit": np.where(comparable, block.habit, 0.0),
        "fresh.hot": fresh_hot,
        "fresh.cold": np.count_nonzero(fresh, axis=1) - fresh_hot,
        "room.hot": np.where(served, n_hot - had_hot, 0.0),
        "room.cold": np.where(served, ground.n_items - n_hot - had_cold, 0.0),
        "slots": by_part(top, top >= 0, ground.decile, PARTS),
    }
    return values, weights, {name: np.asarray(column, dtype=np.float64) for name, column in sums.items()}


def by_part(top: np.ndarray, mask: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """float64 [n, parts]: how many of each row's marked slots hold an item of each part (−1: of none)."""
    row, slot = np.nonzero(mask)
    which = part[top[row, slot]].astype(np.int64)
    key = (row * parts + which)[which >= 0]
    return np.bincount(key, minlength=len(top) * parts).reshape(len(top), parts).astype(np.float64)


def pairs_by_part(data: Interactions, users: np.ndarray, part: np.ndarray, parts: int) -> np.ndarray:
    """float64 [n, parts]: how many items of each part these users have in the data."""
    which = part[data.items].astype(np.int64)
    key = (data.users.astype(np.int64) * parts + which)[which >= 0]
    whole = np.bincount(key, minlength=data.n_users * parts).reshape(-1, parts)
    return whole[users].astype(np.float64)


def _counted(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the column with 0 for nan, 1 where it was a number)."""
    counts = ~np.isnan(column)
    return np.where(counts, column, 0.0), counts.astype(np.float64)
