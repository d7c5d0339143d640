"""The same measures for parts of the users and of the items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.audit.divisions import Attributes, Division, by_activity, by_popularity, by_taste
from evenhand.audit.intervals import Draws, Get, Measured
from evenhand.audit.reference import Reference
from evenhand.audit.result import Estimate, SliceRow
from evenhand.audit.sweep import Block, Terms, audience_of
from evenhand.metrics.catalogue import METRICS, SLICED
from evenhand.metrics.exposure import by_part
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import Slots, pairs_by_part


class Slices:
    """Gathers, block by block, what the slices at one k need."""

    def __init__(self, reference: Reference, systems: Mapping[str, Lists], k: int, attributes: Attributes) -> None:
        self.reference, self.systems, self.k = reference, tuple(systems), k
        self.audience = audience_of(reference, systems)
        self.of_users = [by_activity(reference, self.audience), by_taste(reference, self.audience), *attributes.users]
        self.of_items = [by_popularity(reference), *attributes.items]
        self.metrics = [name for name in SLICED if reference.has_test or not METRICS[name].needs_test]
        self.moments = {
            (division.by, system, metric): np.zeros((6, len(division.labels)))
            for division in self.of_users
            for system in self.systems
            for metric in self.metrics
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Slots]
    ) -> dict[Any, np.ndarray]:
        """Adds up users' moments; returns the columns of the item slices, to be drawn with the others."""
        for division in self.of_users:
            part = division.part[block.everyone].astype(np.int64)
            for system in self.systems:
                for metric in self.metrics:
                    self._add(division, system, metric, part, terms[system][self.k])
        columns: dict[Any, np.ndarray] = {}
        wanted = block.sheet.truth if block.has_test else block.sheet.consumed
        assert wanted is not None
        for division in self.of_items:
            parts = len(division.labels)
            columns[division.by, "demand"] = pairs_by_part(wanted, block.sheet.users, division.part, parts)
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
        sides = (("items", self.of_items, None), ("users", self.of_users, self.audience))
        return tuple(
            SliceRow(
                division.by, of, label, int(size), system, self.k, self._metrics(draws, of, division, system, part)
            )
            for of, divisions, among in sides
            for division in divisions
            for system in self.systems
            for part, (label, size) in enumerate(zip(division.labels, division.sizes(among), strict=True))
            if size
        )

    def _metrics(self, draws: Draws, of: str, division: Division, system: str, part: int) -> dict[str, Estimate]:
        if of == "items":
            return self._of_items(draws, division, system, part)
        return {metric: self._of_users(division, system, metric, part) for metric in self.metrics}

    def _of_users(self, division: Division, system: str, metric: str, part: int) -> Estimate:
        measured = ratio(*self.moments[division.by, system, metric][:, part].tolist())
        if metric == "popularity_lift":
            measured = replace(measured, value=measured.value - 1.0)
        return measured.estimate(METRICS[metric].low, METRICS[metric].high)

    def _of_items(self, draws: Draws, division: Division, system: str, part: int) -> dict[str, Estimate]:
        demand = (division.by, "demand")
        slots, hits = ((division.by, system, name) for name in ("slots", "hits"))
        formulas: dict[str, Callable[[Get], Any]] = {
            "share_of_slots": lambda get: get(slots)[..., part] / get(slots).sum(axis=-1),
            "share_of_demand": lambda get: get(demand)[..., part] / get(demand).sum(axis=-1),
        }
        if self.reference.has_test:
            formulas["precision"] = lambda get: get(hits)[..., part] / get(slots)[..., part]
            formulas["recall"] = lambda get: get(hits)[..., part] / get(demand)[..., part]
        below = {"precision": draws.sum(slots)[part], "recall": draws.sum(demand)[part]}
        found = {}
        for name, formula in formulas.items():
            measured = draws.measure(formula)
            # Where few slots or wishes stand behind a share, they and not the users say how certain it is.
            found[name] = replace(measured, users=min(measured.users, below.get(name, math.inf))).estimate(0.0, 1.0)
        return found


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
