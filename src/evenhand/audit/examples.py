"""A few users to look at, chosen by a rule that anybody can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.audit.divisions import by_taste
from evenhand.audit.reference import Reference
from evenhand.audit.result import Example, Shown
from evenhand.audit.sweep import Block, Terms, audience_of
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import Slots
from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import World

MOST_SHOWN = 20
"""At most this number of items of a history or of what was wanted."""


class Notable:
    """Keeps, for the first system at one k, the few counts per user that examples are chosen by."""

    def __init__(self, reference: Reference, systems: Mapping[str, Lists], k: int) -> None:
        self.first, self.k = next(iter(systems)), k
        self.taste = by_taste(reference, audience_of(reference, systems)).part
        self.columns = {
            name: np.full(reference.n_users, np.nan, dtype=np.float32)
            for name in ("wrong_hot", "missed_cold", "hits", "shown")
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Slots]
    ) -> dict[Any, np.ndarray]:
        found = terms[self.first][self.k]
        served = found.weights["arp"] > 0
        rows = block.everyone[served]
        self.columns["shown"][rows] = found.values["arp"][served]
        if block.has_test:
            scored = served & block.with_test
            rows = block.everyone[scored]
            self.columns["wrong_hot"][rows] = found.sums["ohr.above"][scored]
            self.columns["missed_cold"][rows] = found.sums["ucr.above"][scored]
            self.columns["hits"][rows] = lists[self.first].hits[scored, : self.k].sum(axis=1)
        return {}

    def share(self, world: World) -> None:
        """What the other ranks saw, too."""
        for name, mine in self.columns.items():
            for others in exchange_arrays(world, [mine] * world.size):
                mine = np.where(np.isnan(mine), others, mine)
            self.columns[name] = mine


def choose_examples(
    reference: Reference, systems: Mapping[str, Lists], notable: Notable, titles: pa.Array | None, k: int
) -> tuple[Example, ...]:
    """Up to four users, each the first by id among those the rule fits best, nobody twice."""
    has_list = np.logical_and.reduce([lists.served for lists in systems.values()])
    column = {name: np.where(has_list, values, np.nan) for name, values in notable.columns.items()}
    niche, diverse, blockbuster = (notable.taste == part for part in range(3))
    if reference.has_test:
        middle = np.nanmedian(column["hits"]) if np.isfinite(column["hits"]).any() else 0.0
        rules = [
            ("niche taste, most hot items shown that were not wanted", _among(column["wrong_hot"], niche)),
            ("most cold items wanted and missed", column["missed_cold"]),
            ("blockbuster taste, most hits", _among(column["hits"], blockbuster)),
            (
                "diverse taste, as many hits as the median user",
                _among(-np.abs(column["hits"] - middle), diverse),
            ),
        ]
    else:
        rules = [
            ("niche taste, most popular list", _among(column["shown"], niche)),
            ("blockbuster taste, least popular list", _among(-column["shown"], blockbuster)),
            ("diverse taste, most popular list", _among(column["shown"], diverse)),
        ]
    chosen: dict[int, str] = {}
    for why, merit in rules:
        merit = merit.copy()
        merit[list(chosen)] = np.nan
        if np.isfinite(merit).any():
            chosen[int(np.nanargmax(merit))] = f"{why} (by {notable.first}, top {k})"
    return tuple(_example(reference, systems, titles, user, why, k) for user, why in chosen.items())


def _among(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, values, np.nan)


def _example(
    reference: Reference, systems: Mapping[str, Lists], titles: pa.Array | None, user: int, why: str, k: int
) -> Example:
    wanted = reference.test.row(user)

    def shown(items: np.ndarray) -> tuple[Shown, ...]:
        return tuple(_shown(reference, titles, int(item), int(item) in set(wanted.tolist())) for item in items)

    return Example(
        user=str(reference.known.user_ids[user]),
        why=why,
        history=shown(_history(reference, user)[:MOST_SHOWN]),
        wanted=shown(_by_popularity(reference, wanted)[:MOST_SHOWN]),
        lists={name: shown(_filled(one.top(np.array([user]), k)[0])) for name, one in systems.items()},
        n_history=len(reference.known.row(user)),
        n_wanted=len(wanted),
    )


def _filled(top: np.ndarray) -> np.ndarray:
    """Known items alone: an unknown one has no id here any more."""
    return top[top >= 0]


def _history(reference: Reference, user: int) -> np.ndarray:
    """The user's train items, latest first where times are known, else most popular first."""
    items = reference.known.row(user)
    if reference.known.timestamps is None:
        return _by_popularity(reference, items)
    when = reference.known.timestamps[reference.known.indptr[user] : reference.known.indptr[user + 1]]
    return items[np.argsort(-np.nan_to_num(when, nan=-np.inf), kind="stable")]


def _by_popularity(reference: Reference, items: np.ndarray) -> np.ndarray:
    return items[np.argsort(-reference.items.counts[items], kind="stable")]


def _shown(reference: Reference, titles: pa.Array | None, item: int, wanted: bool) -> Shown:
    title = None if titles is None else titles[item].as_py()
    return Shown(str(reference.known.item_ids[item]), title, bool(reference.hot[item]), wanted)
