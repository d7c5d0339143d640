"""From gathered sums to numbers with intervals, of one system or of the difference of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from evenhand.audit.intervals import Measured, Moments
from evenhand.audit.result import Confusion, Contrast, SystemRow
from evenhand.audit.sweep import CHUNK_SLOTS, Reference, Swept, add_blocks, audience_of, user_ranges
from evenhand.metrics.catalogue import CONTRASTED, METRICS, Metric, available
from evenhand.metrics.formulas import NO_ITEM
from evenhand.metrics.lists import Lists
from evenhand.metrics.statistics import LEAST_USERS, holm
from evenhand.utils.world import World


class Measures:
    def __init__(self, swept: Swept, reference: Reference, systems: Mapping[str, Lists]) -> None:
        self.swept, self.has_test = swept, reference.has_test
        self.places = {name: i for i, name in enumerate(swept.systems)}
        self.influence = _influences(swept, reference, systems)

    def measured(self, name: str, k: int, a: str, b: str | None = None) -> Measured:
        """A metric of one system at k or, with a second, how much larger it is than that one's, on the same users."""
        metric, means = METRICS[name], self.swept.means[k]
        places = self.places[a], None if b is None else self.places[b]
        if metric.of_items is not None:
            value = self._of_items(metric.of_items, k, a) - (
                0.0 if b is None else self._of_items(metric.of_items, k, b)
            )
            felt = self.influence.measured((name, k), *places)
            found = Measured(value, felt.error * felt.users, felt.users)
        elif metric.of_sums is not None:
            first, second = self._formula(metric, a, k), self._formula(metric, b or a, k)
            found = self.swept.draws.measure(first if b is None else lambda get: first(get) - second(get))
        else:
            return means.measured(name, *places)
        # On as many users as count; one user alone never varies, however often drawn.
        counted = f"{name.removesuffix('_pooled')}_defined" if name.endswith("_pooled") else "arp"
        either = means.either[means.place[counted], places[0], places[0] if places[1] is None else places[1]]
        return replace(found, users=float(either))

    def _of_items(self, formula: Callable[[np.ndarray], float], k: int, system: str) -> float:
        counts = self.swept.counts[system, k]
        return formula(counts) if counts.any() else math.nan

    def _formula(self, metric: Metric, system: str, k: int) -> Callable[[Callable[[Any], Any]], Any]:
        """The metric's formula over the drawn columns of one system at one k; demand is the same for all."""
        formula = metric.of_sums
        assert formula is not None
        return lambda get: formula(lambda column: get(column if column == "demand" else (system, k, column)))

    def rows(self) -> tuple[SystemRow, ...]:
        names = available(self.has_test)
        return tuple(
            SystemRow(
                system, k, {m: self.measured(m, k, system).estimate(METRICS[m].low, METRICS[m].high) for m in names}
            )
            for system in self.swept.systems
            for k in self.swept.ks
        )

    def contrasts(self) -> tuple[Contrast, ...]:
        """Every pair of systems by every contrasted metric; p values are corrected together at each k.

        Fewer than `LEAST_USERS` users give no p value: a verdict on so few would be chance.
        """
        systems, contrasts = self.swept.systems, []
        metrics = [name for name in CONTRASTED if self.has_test or not METRICS[name].needs_test]
        pairs = [(a, b) for i, a in enumerate(systems) for b in systems[i + 1 :]]
        for k in self.swept.ks:
            asked = [(m, a, b, self.measured(m, k, a, b)) for a, b in pairs for m in metrics]
            corrected = holm([found.p if found.users >= LEAST_USERS else math.nan for *_, found in asked])
            contrasts += [
                Contrast(m, k, a, b, measured.estimate(), float(p))
                for (m, a, b, measured), p in zip(asked, corrected, strict=True)
            ]
        return tuple(contrasts)

    def confusion(self) -> tuple[Confusion, ...]:
        found = []
        for system, k in product(self.swept.systems, self.swept.ks) if self.has_test else ():
            names = ("ohr.above", "ocr.above", "uhr.above", "ucr.above", "uhr.below", "ucr.below")
            counts = (round(float(self.swept.draws.sum((system, k, name)))) for name in names)
            wrong_hot, wrong_cold, missed_hot, missed_cold, wanted_hot, wanted_cold = counts
            hits_hot, hits_cold = wanted_hot - missed_hot, wanted_cold - missed_cold
            found.append(Confusion(system, k, hits_hot, hits_cold, wrong_hot, wrong_cold, missed_hot, missed_cold))
        return tuple(found)


def _influences(swept: Swept, reference: Reference, systems: Mapping[str, Lists]) -> Moments:
    """By (metric, k), for the metrics that look at every item's slots: what each user's lists add to them."""
    most, names = max(swept.ks), swept.systems
    # One more entry answers for empty slots and unknown items, which have none.
    slopes = {
        (metric.name, k): [np.append(metric.slope(swept.counts[name, k]), 0.0) for name in names]
        for metric in METRICS.values()
        if metric.slope is not None
        for k in swept.ks
    }
    found = Moments(list(slopes), len(names))
    audience = audience_of(reference, systems)
    ranges = list(user_ranges(reference.known, max(1, CHUNK_SLOTS // most)))

    def work(number: int) -> None:
        start, stop = ranges[number]
        users = start + np.flatnonzero(audience[start:stop])
        tops = [systems[name].top(users, most) for name in names]
        tops = [np.where(top <= NO_ITEM, reference.n_items, top) for top in tops]
        felt = np.array(
            [
                [slope[top[:, :k]].sum(axis=1) for slope, top in zip(of_systems, tops, strict=True)]
                for (_, k), of_systems in slopes.items()
            ]
        )
        found.add(felt, np.ones_like(felt))

    add_blocks(World.current(), len(ranges), work, lambda: [found.products, found.either])
    return found
