"""A few users to look at, chosen by a rule that anybody can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.audit.reference import Reference
from evenhand.audit.result import Example, Shown
from evenhand.audit.slices import by_taste
from evenhand.audit.sweep import Block, Terms, audience_of
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import Slots
from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import World

MOST_SHOWN = 20
"""At most this number of items of a history or of what was wanted."""
_TASTES = ("niche", "diverse", "blockbuster")
"""As `by_taste` numbers them."""


class Examples:
    """Keeps, for the first system at one k, the few counts per user that examples are chosen by."""

    def __init__(self, reference: Reference, systems: Mapping[str, Lists], k: int, titles: pa.Array | None) -> None:
        self.reference, self.systems, self.k, self.titles = reference, systems, k, titles
        self.first = next(iter(systems))
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

    def chosen(self) -> tuple[Example, ...]:
        """Up to four users, each the first by id among those the rule fits best, nobody twice."""
        has_list = np.logical_and.reduce([lists.served for lists in self.systems.values()])
        column = {name: np.where(has_list, values, np.nan) for name, values in self.columns.items()}
        shown, hits = column["shown"], column["hits"]
        middle = np.nanmedian(hits) if np.isfinite(hits).any() else 0.0
        with_test = [
            ("niche taste, most hot items shown that were not wanted", "niche", column["wrong_hot"]),
            ("most cold items wanted and missed", None, column["missed_cold"]),
            ("blockbuster taste, most hits", "blockbuster", hits),
            ("diverse taste, as many hits as the median user", "diverse", -np.abs(hits - middle)),
        ]
        without = [
            ("niche taste, most popular list", "niche", shown),
            ("blockbuster taste, least popular list", "blockbuster", -shown),
            ("diverse taste, most popular list", "diverse", shown),
        ]
        tastes = {None: self.taste >= -1} | {name: self.taste == n for n, name in enumerate(_TASTES)}
        found: dict[int, str] = {}
        for why, taste, merit in with_test if self.reference.has_test else without:
            merit = np.where(tastes[taste], merit, np.nan)
            merit[list(found)] = np.nan
            if np.isfinite(merit).any():
                found[int(np.nanargmax(merit))] = f"{why} (by {self.first}, top {self.k})"
        return tuple(self._example(user, why) for user, why in found.items())

    def _example(self, user: int, why: str) -> Example:
        known, hot, titles = self.reference.known, self.reference.hot, self.titles
        had, wanted = known.row(user), self.reference.test.row(user)
        tops = {name: one.top(np.array([user]), self.k)[0] for name, one in self.systems.items()}

        def shown(items: np.ndarray) -> tuple[Shown, ...]:
            names = [None] * len(items) if titles is None else titles.take(pa.array(items)).to_pylist()
            return tuple(
                Shown(str(known.item_ids[item]), name, bool(hot[item]), item in wanted)
                for item, name in zip(items.tolist(), names, strict=True)
            )

        return Example(
            user=str(known.user_ids[user]),
            why=why,
            history=shown(self._history(user)[:MOST_SHOWN]),
            wanted=shown(self._by_popularity(wanted)[:MOST_SHOWN]),
            # Known items alone: an unknown one has no id here any more.
            lists={name: shown(top[top >= 0]) for name, top in tops.items()},
            n_history=len(had),
            n_wanted=len(wanted),
        )

    def _history(self, user: int) -> np.ndarray:
        """The user's train items, latest first where times are known, else most popular first."""
        known = self.reference.known
        if known.timestamps is None:
            return self._by_popularity(known.row(user))
        when = known.timestamps[known.indptr[user] : known.indptr[user + 1]]
        return known.row(user)[np.argsort(-np.nan_to_num(when, nan=-np.inf), kind="stable")]

    def _by_popularity(self, items: np.ndarray) -> np.ndarray:
        return items[np.argsort(-self.reference.items.counts[items], kind="stable")]
