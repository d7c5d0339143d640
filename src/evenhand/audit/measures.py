"""From gathered sums to numbers with intervals, of one system or of the difference of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from evenhand.audit.audit_lists import Ranked
from evenhand.metrics.catalogue import BOOTSTRAPPED, CONTRASTED, ITEMWISE, METRICS, available
from evenhand.metrics.exposure import coverage, jensen_shannon, shannon_entropy, unevenness
from evenhand.audit.influence import coverage_slope, entropy_slope, gini_slope
from evenhand.audit.intervals import Get, Measured
from evenhand.audit.reference import Ground, user_ranges
from evenhand.audit.result import Confusion, Contrast, SystemRow
from evenhand.audit.sweep import CHUNK_SLOTS, Swept, audience_of
from evenhand.data.popularity import gini
from evenhand.metrics.statistics import holm
from evenhand.metrics.users import NO_ITEM

_VALUE = {"gini": gini, "entropy": shannon_entropy, "coverage": coverage}
_SLOPE = {"gini": gini_slope, "entropy": entropy_slope, "coverage": coverage_slope}


class Measures:
    """Answers for any metric, system and k."""

    def __init__(self, swept: Swept, ground: Ground, systems: Mapping[str, Ranked]) -> None:
        self.swept, self.has_test = swept, ground.has_test
        self.places = {name: i for i, name in enumerate(swept.systems)}
        self.influence = _influences(swept, ground, systems)

    def value(self, metric: str, system: str, k: int) -> Measured:
        if metric in ITEMWISE:
            counts = self.swept.counts[system, k]
            value = _VALUE[metric](counts) if counts.any() else math.nan
            found = Measured(value, *self._influenced(metric, k, system, None))
        elif metric in BOOTSTRAPPED:
            found = self.swept.draws.measure(_formula(metric, system, k))
        else:
            return self.swept.means[k].value(metric, self.places[system])
        return self._of_two_users(found, metric, system, system, k)

    def difference(self, metric: str, a: str, b: str, k: int) -> Measured:
        if metric in ITEMWISE:
            gap = self.value(metric, a, k).value - self.value(metric, b, k).value
            found = Measured(gap, *self._influenced(metric, k, a, b))
        elif metric in BOOTSTRAPPED:
            first, second = _formula(metric, a, k), _formula(metric, b, k)
            found = self.swept.draws.measure(lambda get: first(get) - second(get))
        else:
            return self.swept.means[k].difference(metric, self.places[a], self.places[b])
        return self._of_two_users(found, metric, a, b, k)

    def _of_two_users(self, found: Measured, metric: str, a: str, b: str, k: int) -> Measured:
        """Without an interval where a single user decides: drawn again and again, one user never varies."""
        counted = f"{metric.removesuffix('_pooled')}_defined" if metric.endswith("_pooled") else "arp"
        means = self.swept.means[k]
        users = float(means.either[means.place[counted], self.places[a], self.places[b]])
        return found if users >= 2 else replace(found, users=users)

    def rows(self) -> tuple[SystemRow, ...]:
        names = available(self.has_test)
        return tuple(
            SystemRow(
                system,
                k,
                {m: self.value(m, system, k).estimate(METRICS[m].low, METRICS[m].high) for m in names},
            )
            for system in self.swept.systems
            for k in self.swept.ks
        )

    def contrasts(self) -> tuple[Contrast, ...]:
        """Every pair of systems by every contrasted metric; p values are corrected together at each k."""
        systems, found = self.swept.systems, []
        metrics = [name for name in CONTRASTED if self.has_test or not METRICS[name].needs_test]
        pairs = [(a, b) for i, a in enumerate(systems) for b in systems[i + 1 :]]
        for k in self.swept.ks:
            asked = [(m, a, b, self.difference(m, a, b, k)) for a, b in pairs for m in metrics]
            corrected = holm([measured.p for *_, measured in asked])
            found += [
                Contrast(m, k, a, b, measured.estimate(), float(p))
                for (m, a, b, measured), p in zip(asked, corrected, strict=True)
            ]
        return tuple(found)

    def confusion(self) -> tuple[Confusion, ...]:
        if not self.has_test:
            return ()
        return tuple(self._confusion(system, k) for system in self.swept.systems for k in self.swept.ks)

    def _confusion(self, system: str, k: int) -> Confusion:
        def total(column: str) -> int:
            return round(float(self.swept.draws.sum((system, k, column))))

        return Confusion(
            system,
            k,
            hits_hot=total("uhr.below") - total("uhr.above"),
            hits_cold=total("ucr.below") - total("ucr.above"),
            wrong_hot=total("ohr.above"),
            wrong_cold=total("ocr.above"),
            missed_hot=total("uhr.above"),
            missed_cold=total("ucr.above"),
        )

    def _influenced(self, metric: str, k: int, a: str, b: str | None) -> tuple[float, float]:
        """(standard error, users) from each user's influence."""
        products, sums, n = self.influence[metric, k]
        if n < 2:
            return math.nan, n
        slope = np.zeros(len(self.places))
        slope[self.places[a]] = 1.0
        if b is not None:
            slope[self.places[b]] = -1.0
        spread = slope @ products @ slope - (slope @ sums) ** 2 / n
        return math.sqrt(max(float(spread), 0.0) * n / (n - 1)), n


def _formula(metric: str, system: str, k: int) -> Callable[[Get], Any]:
    def of(column: str) -> tuple[str, int, str]:
        return system, k, column

    if metric.endswith("_pooled"):
        rate = metric.removesuffix("_pooled")
        return lambda get: get(of(f"{rate}.above")) / get(of(f"{rate}.below"))
    if metric == "popularity_lift":
        return lambda get: get(of("lift.shown")) / get(of("lift.habit")) - 1.0
    if metric == "popreo":
        return lambda get: unevenness(*(1 - get(of(f"{r}.above")) / get(of(f"{r}.below")) for r in ("uhr", "ucr")))
    if metric == "poprsp":
        return lambda get: unevenness(*(get(of(f"fresh.{g}")) / get(of(f"room.{g}")) for g in ("hot", "cold")))
    return lambda get: jensen_shannon(get(of("slots")), get("demand"))


def _influences(
    swept: Swept, ground: Ground, systems: Mapping[str, Ranked]
) -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray, float]]:
    """(metric, k) → products between systems of the users' influences, their sums, and how many users."""
    most, names = max(swept.ks), swept.systems
    # One more entry answers for empty slots and unknown items, which have none.
    slopes = {
        (metric, name, k): np.append(_SLOPE[metric](swept.counts[name, k]), 0.0)
        for metric in ITEMWISE
        for name in names
        for k in swept.ks
    }
    audience = audience_of(ground, systems)
    n = float(np.count_nonzero(audience))
    products = {(m, k): np.zeros((len(names), len(names))) for m in ITEMWISE for k in swept.ks}
    sums = {key: np.zeros(len(names)) for key in products}
    for start, stop in user_ranges(ground.train, max(1, CHUNK_SLOTS // most)):
        here = audience[start:stop]
        tops = [systems[name].top(start, stop, most)[here] for name in names]
        tops = [np.where(top <= NO_ITEM, ground.n_items, top) for top in tops]
        for metric, k in products:
            felt = np.array(
                [slopes[metric, name, k][top[:, :k]].sum(axis=1) for name, top in zip(names, tops, strict=True)]
            )
            products[metric, k] += np.einsum("au,bu->ab", felt, felt)
            sums[metric, k] += felt.sum(axis=1)
    return {key: (products[key], sums[key], n) for key in products}
