"""Do the intervals hold what they promise? Against textbook formulas, brute force, and known truth."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.audit.measures import Draws, Measured, Measures, Moments
from evenhand.audit.sweep import Reference, sweep
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule, gini
from evenhand.data.splits import Split
from evenhand.metrics.formulas import (
    coverage,
    coverage_slope,
    entropy_slope,
    gini_slope,
    items_for_half,
    items_for_half_slope,
    shannon_entropy,
)
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import ItemPopularity
from evenhand.metrics.statistics import bootstrap_ratios_over_users, paired_over_seeds

RNG = np.random.default_rng(7)


def test_moments_of_a_mean_are_the_textbooks() -> None:
    values = RNG.random(40)
    moments = Moments(["m"], 1)
    for block in np.split(values, 4):
        moments.add(block[None, None], np.ones((1, 1, 10)))
    found = moments.measured("m", 0)
    assert found.value == pytest.approx(values.mean())
    assert found.error == pytest.approx(values.std(ddof=1) / np.sqrt(40))
    estimate = found.estimate()
    assert estimate.low == pytest.approx(values.mean() - 2.022691 * found.error, abs=1e-6)  # t, 39 degrees


def test_a_difference_is_the_paired_t_test() -> None:
    a, b = RNG.random(30), RNG.random(30)
    moments = Moments(["m"], 2)
    moments.add(np.array([[a, b]]), np.ones((1, 2, 30)))
    found, known = moments.measured("m", 0, 1), paired_over_seeds(a, b)
    assert known is not None
    assert (found.value, found.p) == (pytest.approx(known.difference), pytest.approx(known.p))
    assert (found.estimate().low, found.estimate().high) == (
        pytest.approx(known.low),
        pytest.approx(known.high),
    )


def test_users_who_do_not_count_are_left_out() -> None:
    values, counts = RNG.random(50), RNG.random(50) < 0.4
    moments = Moments(["m"], 1)
    moments.add((values * counts)[None, None], counts.astype(float)[None, None])
    found = moments.measured("m", 0)
    assert found.users == counts.sum()
    assert found.value == pytest.approx(values[counts].mean())
    assert found.error == pytest.approx(values[counts].std(ddof=1) / np.sqrt(counts.sum()))


def test_draws_agree_with_the_existing_bootstrap() -> None:
    above, below = RNG.integers(0, 5, 400).astype(float), RNG.integers(5, 9, 400).astype(float)
    draws = Draws()
    for part in np.split(np.arange(400), 5):
        draws.add({"above": above[part], "below": np.column_stack([below[part], below[part]])})
    found = draws.measure(lambda get: get("above") / get("below")[..., 1])
    zero, one = np.zeros(400), np.ones(400)
    known = bootstrap_ratios_over_users(above, below, zero, one)
    assert known is not None
    assert found.value == pytest.approx(known.difference)
    estimate = found.estimate()
    assert (estimate.low, estimate.high) == (
        pytest.approx(known.low, abs=3e-3),
        pytest.approx(known.high, abs=3e-3),
    )


@pytest.mark.parametrize(("error", "value", "p"), [(0.0, 0.0, 1.0), (0.0, 0.5, 0.0)])
def test_without_spread_there_is_no_doubt(error: float, value: float, p: float) -> None:
    assert Measured(value, error, 10).p == p


def test_one_user_gives_no_interval() -> None:
    alone = Measured(0.5, float("nan"), 1)
    assert alone.estimate().low is None
    assert np.isnan(alone.p)


@pytest.mark.parametrize(("measure", "slope"), [(gini, gini_slope), (shannon_entropy, entropy_slope)])
def test_slopes_are_derivatives(
    measure: Callable[[np.ndarray], float], slope: Callable[[np.ndarray], np.ndarray]
) -> None:
    counts = np.array([1.0, 4.0, 2.0, 9.0, 6.0])
    step = 1e-6
    for item in range(5):
        moved = counts.copy()
        moved[item] += step
        assert (measure(moved) - measure(counts)) / step == pytest.approx(slope(counts)[item], abs=1e-5)


def test_the_slope_of_items_for_half_is_the_step_of_its_straight_line() -> None:
    """Between whole numbers of items, those needed follow a line whose slope is 1 / slots of the last one."""
    counts = np.array([400, 300, 200, 100, 100])

    def needed(slots: np.ndarray) -> float:
        held = np.concatenate([[0], np.cumsum(np.sort(slots)[::-1])])
        return float(np.interp(held[-1] / 2, held, np.arange(len(held))))

    assert items_for_half(counts) == 2
    for item in range(5):
        moved = counts.copy()
        moved[item] += 1
        assert needed(moved) - needed(counts) == pytest.approx(items_for_half_slope(counts)[item], rel=0.02)


def test_nothing_of_n_has_wilsons_interval() -> None:
    """0 of 64 is no proof of never: 1.96² / (64 + 1.96²) with the normal quantile, a little more with t."""
    none = Measured(0.0, 0.0, 64).estimate(0.0, 1.0)
    assert (none.low, none.high) == (0.0, pytest.approx(2.0**2 / (64 + 2.0**2), abs=2e-3))
    every = Measured(1.0, 0.0, 64).estimate(0.0, 1.0)
    assert (every.low, every.high) == (pytest.approx(1 - none.high), 1.0)
    some = Measured(0.5, 0.0, 64).estimate(0.0, 1.0)
    assert (some.low, some.high) == (0.5, 0.5)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12).filter(any))
@settings(max_examples=50, deadline=None)
def test_coverage_slope_is_what_an_item_alone_adds(counts: list[int]) -> None:
    for item, n in enumerate(counts):
        without = np.array(counts)
        without[item] = max(n - 1, 0)
        lost = coverage(np.array(counts)) - coverage(without)
        assert coverage_slope(np.array(counts))[item] == pytest.approx(lost)


# Known truth: a large population of users, whose samples are audited again and again.
N_ITEMS, PEOPLE, SAMPLE, K = 60, 20_000, 150, 5


@dataclass
class World:
    """Everybody's history, wishes, and lists of two systems, as [people, …] of item indices."""

    train: np.ndarray
    test: np.ndarray
    lists: dict[str, np.ndarray]

    def sample(self, users: np.ndarray) -> Measures:
        """The audit of these users, with the whole world's popularity."""
        split = Split(part(self.train[users]), None, part(self.test[users]), "")
        popularity = np.bincount(self.train.ravel(), minlength=N_ITEMS)
        hot = popularity >= np.sort(popularity)[-9]
        order = np.argsort(np.argsort(-popularity, kind="stable"))
        items = ItemPopularity(popularity, (order * 10 // N_ITEMS).astype(np.int8))
        reference = Reference(split, HotRule(), hot, items, hot[self.train[users]].mean(axis=1), ())
        lists = {name: Lists(np.arange(len(users) + 1) * K, rows[users].ravel()) for name, rows in self.lists.items()}
        return Measures(sweep(reference, lists, (K,)), reference.has_test)


def part(rows: np.ndarray) -> Interactions:
    items = np.sort(rows, axis=1).astype(np.int32)
    return Interactions(
        pa.array(np.arange(len(rows))),
        pa.array(np.arange(N_ITEMS)),
        np.arange(len(rows) + 1) * rows.shape[1],
        items.ravel(),
    )


def make_world() -> World:
    generator = np.random.default_rng(3)
    appeal = 1.5 * -np.log1p(np.arange(N_ITEMS))
    taste = generator.normal(0, 1.2, (PEOPLE, 1)) * np.linspace(-1, 1, N_ITEMS)

    def noise() -> np.ndarray:
        return generator.gumbel(size=(PEOPLE, N_ITEMS))

    chosen = np.argsort(-(appeal + taste + noise()), axis=1)[:, :9]
    for row in chosen:
        generator.shuffle(row)
    score = np.zeros((PEOPLE, N_ITEMS))
    np.put_along_axis(score, chosen[:, :6], -np.inf, axis=1)
    ranked = {
        name: np.argsort(-(score + weight * appeal + taste + noise()), axis=1)[:, :K].astype(np.int32)
        for name, weight in (("popular", 1.6), ("even", 0.7))
    }
    return World(chosen[:, :6], chosen[:, 6:], ranked)


CHECKED = ("ndcg", "recall", "mrr", "ohr", "ohr_defined", "ohr_pooled", "ucr_pooled", "popreo", "poprsp")
CHECKED += ("popularity_lift", "aplt", "arp", "top_tenth_share", "top_tenth_ratio", "tail_ratio")
DISTRIBUTIONS = ("gini", "entropy", "coverage", "js_distance", "exposure_gap")
REPEATS = 300


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    world = make_world()
    generator = np.random.default_rng(11)
    samples = [generator.integers(0, PEOPLE, SAMPLE) for _ in range(REPEATS)]
    audits = [world.sample(users) for users in samples]
    whole = world.sample(np.arange(PEOPLE))
    truth = {name: whole.measured(name, K, "popular").value for name in CHECKED}
    # Gini and its like depend on how many users there are; theirs is the mean over samples of this size.
    truth |= {name: float(np.mean([a.measured(name, K, "popular").value for a in audits])) for name in DISTRIBUTIONS}
    gaps = {name: whole.measured(name, K, "popular", "even").value for name in CHECKED}
    hit: dict[str, list[bool]] = {}
    for audit in audits:
        for name, true in truth.items():
            hit.setdefault(name, []).append(_holds(audit.measured(name, K, "popular"), true))
        for name, true in gaps.items():
            hit.setdefault(f"Δ {name}", []).append(_holds(audit.measured(name, K, "popular", "even"), true))
    shares = {name: float(np.mean(held)) for name, held in hit.items()}
    # The jackknife overstates the spread of coverage, which is the safe side.
    assert shares.pop("coverage") >= 0.95
    assert all(0.915 <= share <= 0.985 for share in shares.values()), shares
    assert 0.935 <= np.mean(list(shares.values())) <= 0.965, shares


def _holds(measured: Measured, truth: float) -> bool:
    estimate = measured.estimate()
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high
