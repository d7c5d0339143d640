"""From sums over users to numbers with intervals, of one system or of the difference of two.

How far other users could have moved a number is found in one pass over users, in three ways. Averages over users come
with their products (`Moments`), functions of sums with a Poisson bootstrap (`Draws`), and functions of the whole
exposure with each user's influence, whose products are moments too. Whatever compares two systems does so on the same
users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.audit.result import Confusion, Contrast, SystemRow
from evenhand.metrics.catalogue import CONTRASTED, METRICS, Metric, available
from evenhand.metrics.statistics import (
    CONFIDENCE,
    LEAST_USERS,
    ROUNDING,
    Estimate,
    holm,
    poisson_table,
    t_quantile,
    t_two_sided,
)

if TYPE_CHECKING:
    from evenhand.audit.sweep import Swept

DRAWS = 500
"""Draws of the bootstrap: they give a standard error to within about 3 %."""


@dataclass(frozen=True)
class Measured:
    """A number, its standard error over users, and on how many users that rests."""

    value: float
    error: float
    users: float

    def estimate(self, low: float = -math.inf, high: float = math.inf) -> Estimate:
        """With the 95 % interval, kept within the metric's range; without one for fewer than two users.

        Where every user has the lowest (or highest) value there is, nothing varies and yet other users might: the
        interval then is Wilson's, as for 0 (or n) of n.

        >>> [round(end, 3) for end in (lambda e: (e.low, e.high))(Measured(0.0, 0.0, 64).estimate(0.0, 1.0))]
        [0.0, 0.059]
        """
        if self.users < 2 or not math.isfinite(self.value) or not math.isfinite(self.error):
            return Estimate(self.value)
        t = t_quantile(0.5 + CONFIDENCE / 2, self.users - 1)
        half = t * self.error
        if half <= ROUNDING and self.value in (low, high) and math.isfinite(high - low):
            half = (high - low) * t**2 / (self.users + t**2)
        return Estimate(self.value, max(low, self.value - half), min(high, self.value + half))

    @property
    def p(self) -> float:
        """Two-sided, for a value of zero; nan where there is nothing to say."""
        if self.users < 2 or not math.isfinite(self.value) or not math.isfinite(self.error):
            return math.nan
        if self.error <= ROUNDING * abs(self.value) or self.error == 0:
            return 1.0 if self.value == 0 else 0.0
        return t_two_sided(self.value / self.error, self.users - 1)


class Moments:
    """Ratios Σ x / Σ w over users, of several systems, from sums of products alone.

    A mean over users is the case w = 1 for those who count and 0 for the others, where x is 0 as well; then
    the interval is the textbook's, and the difference of two systems gives the paired t test.
    """

    def __init__(self, metrics: Sequence[Any], systems: int) -> None:
        self.place = {name: i for i, name in enumerate(metrics)}
        self.systems = systems
        self.products = np.zeros((len(metrics), 2 * systems, 2 * systems))
        self.either = np.zeros((len(metrics), systems, systems))
        """How many users count for one system or the other."""

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Both [metrics, systems, users]."""
        terms = np.concatenate([values, weights], axis=1)
        # Not by matmul: its threads wait for each other longer than such flat products take.
        self.products += np.einsum("mau,mbu->mab", terms, terms)
        counts = (weights != 0).astype(np.float64)
        both = np.einsum("mau,mbu->mab", counts, counts)
        each = np.diagonal(both, axis1=1, axis2=2)
        self.either += each[:, :, None] + each[:, None, :] - both

    def measured(self, metric: Any, a: int, b: int | None = None) -> Measured:
        """The ratio of one system or, with a second, how much larger it is than that one's."""
        slope, value = self._slope(metric, a)
        n = self.either[self.place[metric], a, a if b is None else b]
        if b is not None:
            other_slope, other = self._slope(metric, b)
            slope, gap = slope - other_slope, value - other
            value = 0.0 if abs(gap) <= ROUNDING * max(abs(value), abs(other)) else gap
        spread = max(slope @ self.products[self.place[metric]] @ slope, 0.0)
        return Measured(value, math.sqrt(spread * n / (n - 1)) if n >= 2 else math.nan, n)

    def _slope(self, metric: Any, system: int) -> tuple[np.ndarray, float]:
        """How the ratio moves with one user's x and w; and the ratio."""
        products = self.products[self.place[metric]]
        x, w = system, self.systems + system
        # Σ w and Σ x: weights are 0 or 1, and x is 0 where the weight is.
        below, above = products[w, w], products[x, w]
        slope = np.zeros(2 * self.systems)
        if below == 0:
            return slope, math.nan
        slope[x], slope[w] = 1 / below, -above / below**2
        return slope, float(above / below)


Get = Callable[[Any], np.ndarray]
"""From a column's key to its sum: a number, or one a draw."""


class Draws:
    """A Poisson bootstrap of column sums: every draw weighs each user by a Poisson(1) number.

    The columns of all systems and list lengths are drawn together, so that differences are paired. The
    spread of the draws gives the standard error; the interval is put around the value itself, since measures
    such as a distance come out too large in every draw.
    """

    def __init__(self, draws: int = DRAWS, seed: int = 0) -> None:
        self.seed = seed
        self.weight_of = poisson_table().astype(np.float32)
        self.draws = draws
        self.place: dict[Any, slice | int] = {}
        self.observed = np.zeros(0)
        self.drawn = np.zeros((draws, 0))
        self.users = 0

    def add(self, columns: Mapping[Any, np.ndarray], before: int | None = None) -> None:
        """One block of users; each column is [users] or [users, m], the same keys at every call.

        `before` is how many users come before them, if not just those that were added: it says where in the stream
        of random numbers theirs begin, four of 16 bits in each step of the generator.
        """
        if not self.place:
            width = 0
            for key, column in columns.items():
                self.place[key] = width if column.ndim == 1 else slice(width, width + column.shape[1])
                width += 1 if column.ndim == 1 else column.shape[1]
            self.observed, self.drawn = np.zeros(width), np.zeros((self.draws, width))
        block = np.column_stack(list(columns.values()))
        skipped = self.draws * (self.users if before is None else before) // 4
        generator = np.random.Generator(np.random.PCG64(self.seed).advance(skipped))
        number = generator.integers(0, len(self.weight_of), (self.draws, len(block)), dtype=np.uint16)
        self.observed += block.sum(axis=0)
        self.drawn += self.weight_of[number] @ block.astype(np.float32)
        self.users += len(block)

    def sum(self, key: Any) -> Any:
        return self.observed[self.place[key]]

    def measure(self, formula: Callable[[Get], Any]) -> Measured:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(formula(lambda key: self.observed[self.place[key]]))
            drawn = np.asarray(formula(lambda key: self.drawn[:, self.place[key]]), dtype=np.float64)
        drawn = drawn[np.isfinite(drawn)]
        error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
        # Sums of float32 leave dust where all draws are the same.
        if error <= 1e-6 * abs(value):
            error = 0.0
        return Measured(value, error, self.users)


class Measures:
    """What one sweep says of every system at every k."""

    def __init__(self, swept: Swept, has_test: bool) -> None:
        self.swept, self.has_test = swept, has_test
        self.places = {name: i for i, name in enumerate(swept.systems)}

    def measured(self, name: str, k: int, a: str, b: str | None = None) -> Measured:
        """A metric of one system at k or, with a second, how much larger it is than that one's, on the same users."""
        metric, means = METRICS[name], self.swept.means[k]
        places = self.places[a], None if b is None else self.places[b]
        if metric.of_items is not None:
            of_b = 0.0 if b is None else self._of_items(metric.of_items, k, b)
            value = self._of_items(metric.of_items, k, a) - of_b
            felt = self.swept.influence.measured((name, k), *places)
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
