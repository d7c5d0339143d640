"""A few users to look at, chosen by a rule that anybody can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.audit.audit_lists import Ranked
from evenhand.audit.divisions import by_taste
from evenhand.audit.reference import Ground
from evenhand.audit.result import Example, Shown
from evenhand.audit.sweep import audience_of
from evenhand.audit.terms import Block, Listed, Terms

MOST_SHOWN = 20
"""Of a history or of what was wanted, so many items at most."""


class Notable:
    """Keeps, for the first system at one k, the few counts per user that examples are chosen by."""

    def __init__(self, ground: Ground, systems: Mapping[str, Ranked], k: int) -> None:
        self.first, self.k = next(iter(systems)), k
        self.taste = by_taste(ground, audience_of(ground, systems)).part
        self.columns = {
            name: np.full(ground.n_users, np.nan, dtype=np.float32)
            for name in ("wrong_hot", "missed_cold", "hits", "shown")
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Listed]
    ) -> dict[Any, np.ndarray]:
        found = terms[self.first][self.k]
        served = found.weights["arp"] > 0
        rows = block.everyone[served]
        self.columns["shown"][rows] = found.values["arp"][served]
        if found.rates:
            judged = served & block.judged
            rows = block.everyone[judged]
            self.columns["wrong_hot"][rows] = found.rates["ohr.above"][judged]
            self.columns["missed_cold"][rows] = found.rates["ucr.above"][judged]
            self.columns["hits"][rows] = lists[self.first].hits[judged, : self.k].sum(axis=1)
        return {}


def choose_examples(
    ground: Ground, systems: Mapping[str, Ranked], notable: Notable, titles: pa.Array | None, k: int
) -> tuple[Example, ...]:
    """Up to four users, each the first by id among those the rule fits best, nobody twice."""
    has_list = np.logical_and.reduce([ranked.served for ranked in systems.values()])
    column = {name: np.where(has_list, values, np.nan) for name, values in notable.columns.items()}
    niche, diverse, blockbuster = (notable.taste == part for part in range(3))
    if ground.has_test:
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
    return tuple(_example(ground, systems, titles, user, why, k) for user, why in chosen.items())


def _among(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, values, np.nan)


def _example(
    ground: Ground, systems: Mapping[str, Ranked], titles: pa.Array | None, user: int, why: str, k: int
) -> Example:
    wanted = ground.test.row(user)

    def shown(items: np.ndarray) -> tuple[Shown, ...]:
        return tuple(_shown(ground, titles, int(item), int(item) in set(wanted.tolist())) for item in items)

    return Example(
        user=str(ground.train.user_ids[user]),
        why=why,
        history=shown(_history(ground, user)[:MOST_SHOWN]),
        wanted=shown(_by_popularity(ground, wanted)[:MOST_SHOWN]),
        lists={name: shown(_filled(ranked.top(user, user + 1, k)[0])) for name, ranked in systems.items()},
        n_history=len(ground.train.row(user)),
        n_wanted=len(wanted),
    )


def _filled(top: np.ndarray) -> np.ndarray:
    """Known items alone: an unknown one has no id here any more."""
    return top[top >= 0]


def _history(ground: Ground, user: int) -> np.ndarray:
    """The user's train items, latest first where times are known, else most popular first."""
    items = ground.train.row(user)
    if ground.train.timestamps is None:
        return _by_popularity(ground, items)
    when = ground.train.timestamps[ground.train.indptr[user] : ground.train.indptr[user + 1]]
    return items[np.argsort(-np.nan_to_num(when, nan=-np.inf), kind="stable")]


def _by_popularity(ground: Ground, items: np.ndarray) -> np.ndarray:
    return items[np.argsort(-ground.popularity[items], kind="stable")]


def _shown(ground: Ground, titles: pa.Array | None, item: int, wanted: bool) -> Shown:
    title = None if titles is None else titles[item].as_py()
    return Shown(str(ground.train.item_ids[item]), title, bool(ground.hot[item]), wanted)
