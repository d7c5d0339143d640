"""The same measures for parts of the users and of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evenhand.audit.attributes import Attributes
from evenhand.audit.audit_lists import Ranked
from evenhand.metrics.catalogue import METRICS
from evenhand.audit.divisions import Division, by_activity, by_popularity, by_taste
from evenhand.audit.intervals import Draws, Get, Measured
from evenhand.audit.reference import Ground
from evenhand.audit.result import Estimate, SliceRow
from evenhand.audit.sweep import audience_of
from evenhand.audit.terms import Block, Listed, Terms, by_part, pairs_by_part

JUDGED = ("precision", "recall", "ndcg", "hit_rate", "ohr", "ocr", "uhr", "ucr")
ALWAYS = ("arp", "aplt")


class Slices:
    """Gathers, block by block, what the slices at one k need."""

    def __init__(self, ground: Ground, systems: Mapping[str, Ranked], k: int, attributes: Attributes) -> None:
        self.ground, self.systems, self.k = ground, tuple(systems), k
        self.audience = audience_of(ground, systems)
        self.of_users = [
            by_activity(ground, self.audience),
            by_taste(ground, self.audience),
            *attributes.users,
        ]
        self.of_items = [by_popularity(ground), *attributes.items]
        self.metrics = (*(JUDGED if ground.has_test else ()), *ALWAYS, "popularity_lift")
        self.moments = {
            (division.by, system, metric): np.zeros((6, len(division.labels)))
            for division in self.of_users
            for system in self.systems
            for metric in self.metrics
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Listed]
    ) -> dict[Any, np.ndarray]:
        """Adds up users' moments; returns the columns of the item slices, to be drawn with the others."""
        for division in self.of_users:
            part = division.part[block.everyone].astype(np.int64)
            for system in self.systems:
                for metric in self.metrics:
                    self._add(division, system, metric, part, terms[system][self.k])
        columns: dict[Any, np.ndarray] = {}
        source = block.test if self.ground.has_test else block.train
        for division in self.of_items:
            parts = len(division.labels)
            columns[division.by, "demand"] = pairs_by_part(source, block.users, division.part, parts)
            for system, found in lists.items():
                top, hits = found.top[:, : self.k], found.hits[:, : self.k]
                columns[division.by, system, "slots"] = by_part(top, top >= 0, division.part, parts)
                columns[division.by, system, "hits"] = by_part(top, hits, division.part, parts)
        return columns

    def _add(self, division: Division, system: str, metric: str, part: np.ndarray, terms: Terms) -> None:
        if metric == "popularity_lift":
            x, w = terms.sums["lift.shown"], terms.sums["lift.habit"]
        else:
            x, w = terms.values[metric], terms.weights[metric]
        here = part >= 0
        products = (x, w, x * x, x * w, w * w, w != 0)
        for row, column in zip(self.moments[division.by, system, metric], products, strict=True):
            row += np.bincount(part[here], column[here], minlength=len(row))

    def rows(self, draws: Draws) -> tuple[SliceRow, ...]:
        users = [
            SliceRow(
                division.by,
                "users",
                label,
                int(size),
                system,
                self.k,
                {metric: self._of_users(division, system, metric, part) for metric in self.metrics},
            )
            for division in self.of_users
            for system in self.systems
            for part, (label, size) in enumerate(zip(division.labels, division.sizes(self.audience), strict=True))
            if size
        ]
        items = [
            SliceRow(
                division.by,
                "items",
                label,
                int(size),
                system,
                self.k,
                self._of_items(draws, division, system, part),
            )
            for division in self.of_items
            for system in self.systems
            for part, (label, size) in enumerate(zip(division.labels, division.sizes(), strict=True))
            if size
        ]
        return (*items, *users)

    def _of_users(self, division: Division, system: str, metric: str, part: int) -> Estimate:
        measured = ratio(*self.moments[division.by, system, metric][:, part].tolist())
        if metric == "popularity_lift":
            measured = Measured(measured.value - 1.0, measured.error, measured.users)
        return measured.estimate(METRICS[metric].low, METRICS[metric].high)

    def _of_items(self, draws: Draws, division: Division, system: str, part: int) -> dict[str, Estimate]:
        demand, slots, hits = (
            (division.by, "demand"),
            (division.by, system, "slots"),
            (division.by, system, "hits"),
        )
        formulas: dict[str, Callable[[Get], Any]] = {
            "share_of_slots": lambda get: get(slots)[..., part] / get(slots).sum(axis=-1),
            "share_of_demand": lambda get: get(demand)[..., part] / get(demand).sum(axis=-1),
        }
        if self.ground.has_test:
            formulas["precision"] = lambda get: get(hits)[..., part] / get(slots)[..., part]
            formulas["recall"] = lambda get: get(hits)[..., part] / get(demand)[..., part]
        return {name: draws.measure(formula).estimate(0.0, 1.0) for name, formula in formulas.items()}


def ratio(x: float, w: float, xx: float, xw: float, ww: float, n: float) -> Measured:
    """Σ x / Σ w with its standard error, from sums over n users and sums of products.

    >>> found = ratio(6.0, 3.0, 14.0, 6.0, 3.0, 3.0)  # the values 1, 2, 3
    >>> found.value, round(found.error, 4)
    (2.0, 0.5774)
    """
    if w == 0:
        return Measured(math.nan, math.nan, 0)
    value = x / w
    if n < 2:
        return Measured(value, math.nan, n)
    spread = max(xx - 2 * value * xw + value * value * ww, 0.0) * n / (n - 1)
    return Measured(value, math.sqrt(spread) / w, n)
