"""The tests for a difference: published tables, known answers, and coverage by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini
from evenhand.metrics import statistics
from evenhand.metrics.evaluate import UserMetrics, score_lists
from evenhand.metrics.statistics import (
    LEAST_USERS,
    Comparison,
    Interval,
    bootstrap_over_users,
    bootstrap_ratios_over_users,
    compare_metric,
    holm,
    paired_over_seeds,
    summarise,
    t_quantile,
    t_two_sided,
)
from evenhand.utils.errors import InputError


@pytest.mark.parametrize(
    ("probability", "df", "published"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 9, 2.2622),
        (0.975, 30, 2.0423),
        (0.95, 5, 2.0150),
        (0.995, 10, 3.1693),
        (0.9995, 3, 12.9240),
        (0.90, 120, 1.2886),
    ],
)
def test_quantiles_of_the_published_t_table(probability: float, df: int, published: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(published, abs=5.1e-5)
    assert t_quantile(1 - probability, df) == pytest.approx(-published, abs=5.1e-5)


def t_cdf(t: float, df: float) -> float:
    tail = t_two_sided(t, df) / 2
    return 1 - tail if t > 0 else tail


@given(st.floats(-50, 50))
def test_the_closed_forms_for_one_and_two_degrees_of_freedom(t: float) -> None:
    assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-13)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_the_quantile_inverts_the_distribution(probability: float, df: int) -> None:
    assert t_cdf(t_quantile(probability, df), df) == pytest.approx(probability, abs=1e-12)


def test_tails_far_out_keep_their_relative_precision() -> None:
    assert t_two_sided(1e6, 2) == pytest.approx(1e-12, rel=1e-6)
    assert t_two_sided(math.inf, 3) == 0.0


def test_a_summary_of_seeds() -> None:
    found = summarise([0.1, 0.2, 0.6])
    assert found.mean == pytest.approx(0.3)
    assert found.std == pytest.approx(math.sqrt(0.07))
    assert summarise([0.5]).to_json() == {"mean": 0.5, "std": None, "values": [0.5]}
    assert summarise([0.5, math.nan]).to_json() == {"mean": None, "std": None, "values": [0.5, None]}
    with pytest.raises(InputError, match="one per seed"):
        summarise([])


def test_the_paired_t_test_on_a_textbook_sample() -> None:
    # Student's own sleep data: ten patients, two drugs; mean 1.58, t = 4.0621 on 9 degrees, p = .00283.
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_over_seeds(second, first)
    assert found is not None
    assert found.difference == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert found.p == pytest.approx(0.00283289, abs=1e-8)
    assert found.excludes_zero


def test_what_seeds_cannot_tell() -> None:
    assert paired_over_seeds([0.4], [0.3]) is None
    assert paired_over_seeds([0.4, math.nan], [0.3, 0.3]) is None
    with pytest.raises(InputError, match="per seed on both sides, not 2 and 1"):
        paired_over_seeds([1, 2], [1])


def test_seeds_that_all_agree_leave_a_point() -> None:
    # Both differences are .1 up to the last bits, which must not be taken for a spread.
    found = paired_over_seeds([0.3, 0.8], [0.2, 0.7])
    assert found is not None
    assert found.low == found.high == found.difference == pytest.approx(0.1)
    assert found.p == 0.0
    assert paired_over_seeds([0.1 + 0.2, 0.4], [0.3, 0.4]) == Interval(0.0, 0.0, 0.0, 1.0)
    assert paired_over_seeds([0.0, 0.0], [0.0, 0.0]) == Interval(0.0, 0.0, 0.0, 1.0)


def test_the_t_interval_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    samples = rng.normal(0.5, 2.0, (1000, 4))
    intervals = [paired_over_seeds(sample, np.zeros(4)) for sample in samples]
    covered = np.mean([found.low <= 0.5 <= found.high for found in intervals if found])
    assert covered == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 1000))


def test_the_bootstrap_finds_the_standard_error_of_the_mean() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.3, 1.0, 5000), rng.normal(0.0, 1.0, 5000)
    found = bootstrap_over_users(a, b, draws=4000)
    assert found is not None
    half = 1.95996 * np.std(a - b) / math.sqrt(5000)
    assert found.difference == pytest.approx(np.mean(a - b))
    assert found.high - found.difference == pytest.approx(half, rel=0.08)
    assert found.difference - found.low == pytest.approx(half, rel=0.08)
    assert found.p == pytest.approx(2 / 4001)


def test_the_bootstrap_covers_at_its_level() -> None:
    rng = np.random.default_rng(3)
    covered = []
    for trial in range(300):
        a = rng.exponential(1.0, 200)
        found = bootstrap_over_users(a, np.zeros(200), draws=300, seed=trial)
        assert found is not None
        covered.append(found.low <= 1.0 <= found.high)
    # A percentile interval of a skewed mean is a little short of its level at n = 200.
    assert 0.89 <= np.mean(covered) <= 0.98


def test_the_ratio_bootstrap_agrees_with_the_delta_method() -> None:
    rng = np.random.default_rng(4)
    below = rng.integers(0, 6, (2, 4000)).astype(float)
    above = rng.binomial(below.astype(int), [[0.5], [0.4]]).astype(float)
    found = bootstrap_ratios_over_users(above[0], below[0], above[1], below[1], draws=4000)
    assert found is not None
    ratio = above.sum(axis=1) / below.sum(axis=1)
    influence = (above - ratio[:, None] * below) / below.mean(axis=1, keepdims=True)
    error = np.std(influence[0] - influence[1]) / math.sqrt(4000)
    assert found.difference == pytest.approx(ratio[0] - ratio[1])
    assert found.high - found.low == pytest.approx(2 * 1.95996 * error, rel=0.08)


def test_pairing_removes_what_users_have_in_common() -> None:
    rng = np.random.default_rng(5)
    common = rng.normal(0.0, 10.0, 500)
    found = bootstrap_over_users(common + 0.1 + rng.normal(0, 0.1, 500), common)
    assert found is not None
    assert 0.08 < found.low < found.high < 0.12


def test_the_bootstrap_is_a_function_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(6).random(300)
    again = bootstrap_over_users(a, 1 - a, seed=7)
    assert bootstrap_over_users(a, 1 - a, seed=7) == again
    assert bootstrap_over_users(a, 1 - a, seed=8) != again
    monkeypatch.setattr(statistics, "CHUNK_CELLS", 17_000)
    in_blocks = bootstrap_over_users(a, 1 - a, seed=7)
    assert in_blocks is not None
    assert again is not None
    assert in_blocks.low == pytest.approx(again.low, abs=0.02)


def test_poisson_weights_have_mean_and_variance_one() -> None:
    weights = statistics.poisson_table()
    assert weights.mean() == pytest.approx(1.0, abs=1e-4)
    assert weights.var() == pytest.approx(1.0, abs=5e-4)
    assert (weights == 0).mean() == pytest.approx(math.exp(-1), abs=1e-5)


def test_where_the_bootstrap_has_nothing_to_say() -> None:
    one, two = np.ones(1), np.ones(2)
    assert bootstrap_over_users(one, one) is None
    assert bootstrap_over_users(np.array([1.0, np.nan]), two) is None
    assert bootstrap_ratios_over_users(two, two, 0 * two, 0 * two) is None
    assert bootstrap_over_users(two, two) == Interval(0.0, 0.0, 0.0, 1.0)
    with pytest.raises(InputError, match="at least one draw"):
        bootstrap_over_users(two, two, draws=0)
    with pytest.raises(InputError, match="per user on both sides"):
        bootstrap_over_users(one, two)
    with pytest.raises(InputError, match="same users"):
        bootstrap_ratios_over_users(one, one, two, two)


def test_holm_steps_down() -> None:
    # .005·4 = .02, .01·3 = .03, .03·2 = .06, and .04·1 is lifted to the .06 before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(holm([math.nan, 0.02]), [math.nan, 0.02])
    assert len(holm([])) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_raw_p_and_bonferroni(p: list[float]) -> None:
    adjusted = holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1.0, np.array(p) * len(p))).all()


ABOVE, BELOW, ACROSS = Interval(1, 0.5, 1.5, 0.01), Interval(-1, -1.5, -0.5, 0.02), Interval(1, -1, 3, 0.3)


@pytest.mark.parametrize(
    ("seeds", "users", "beyond", "p"),
    [
        (ABOVE, ABOVE, True, 0.01),
        (BELOW, BELOW, True, 0.02),
        (ABOVE, ACROSS, False, 0.3),
        (ACROSS, ABOVE, False, 0.3),
        (ABOVE, BELOW, False, 0.02),
        (None, ABOVE, True, 0.01),
        (None, ACROSS, False, 0.3),
        (None, None, False, math.nan),
    ],
)
def test_a_verdict_needs_every_test_made(
    seeds: Interval | None, users: Interval | None, beyond: bool, p: float
) -> None:
    found = Comparison(seeds, users, n_seeds=3, n_users=1000)
    assert found.beyond_uncertainty is beyond
    assert found.p == pytest.approx(p, nan_ok=True)


def test_a_verdict_says_what_it_rests_on() -> None:
    both = Comparison(ABOVE, ABOVE, n_seeds=3, n_users=943)
    assert both.rests_on == "a paired t test over 3 seeds and a bootstrap over 943 users"
    assert Comparison(None, None, 1, 1).rests_on == "no test"


def test_few_users_give_no_verdict() -> None:
    """A bootstrap over three users calls noise a difference about one time in ten."""
    few = Comparison(ABOVE, ABOVE, n_seeds=3, n_users=LEAST_USERS - 1)
    assert not few.beyond_uncertainty
    assert few.rests_on == "a paired t test over 3 seeds and a bootstrap over 19 users, too few to tell"
    assert Comparison(ABOVE, ABOVE, n_seeds=3, n_users=LEAST_USERS).beyond_uncertainty


def metrics_of(seed: int, skill: float, n_users: int = 400) -> UserMetrics:
    """Lists of five over forty items in which each slot is a test item with probability `skill`."""
    rng = np.random.default_rng(seed)
    truth = Interactions.from_pairs(np.repeat(np.arange(n_users), 20), np.tile(np.arange(20), n_users), n_items=40)
    wanted = rng.random((n_users, 5)) < skill
    top = np.where(wanted, np.arange(5), np.arange(20, 25)) + 5 * rng.integers(0, 4, (n_users, 1))
    return score_lists(top, np.arange(n_users), truth, np.arange(40) % 2 == 0, [5])[5]


def test_a_bootstrap_of_a_formula_is_that_of_the_ratio_it_states() -> None:
    a, b = [metrics_of(seed, 0.5) for seed in range(2)], [metrics_of(10 + seed, 0.3) for seed in range(2)]
    sides = [
        np.mean([run.sums[f"ohr.{side}"] for run in runs], axis=0) for runs in (a, b) for side in ("above", "below")
    ]
    assert compare_metric(a, b, "ohr_pooled").users == bootstrap_ratios_over_users(*sides)


def spread_of(seed: int, power: float) -> UserMetrics:
    """Lists of five of forty items, the first ones the more often the larger the power."""
    rng = np.random.default_rng(seed)
    known = Interactions.from_pairs(*np.nonzero(rng.random((300, 40)) < 1 / np.arange(2, 42)), n_users=300, n_items=40)
    truth = Interactions.from_pairs(np.repeat(np.arange(300), 2), rng.integers(0, 40, 600), n_users=300, n_items=40)
    keys = rng.random((300, 40)) ** (np.arange(1, 41) ** power)
    return score_lists(np.argsort(-keys, axis=1)[:, :5], np.arange(300), truth, np.arange(40) < 6, [5], known)[5]


@pytest.mark.parametrize(
    ("name", "sign"), [("gini", 1), ("entropy", -1), ("items_for_half", -1), ("top_tenth_share", 1), ("arp", 1)]
)
def test_two_methods_are_compared_on_exposure(name: str, sign: int) -> None:
    narrow, wide = [spread_of(0, 0.8), spread_of(1, 0.8)], [spread_of(0, 0.2), spread_of(1, 0.2)]
    found = compare_metric(narrow, wide, name)
    assert found.users is not None
    assert found.beyond_uncertainty
    assert found.users.difference * sign > 0
    assert found.users.difference == pytest.approx(mean_of(narrow, name) - mean_of(wide, name), rel=1e-3)
    assert compare_metric(narrow, narrow, name).p == 1.0


def mean_of(runs: list[UserMetrics], name: str) -> float:
    return float(np.mean([run.mean(name) for run in runs]))


def test_an_influence_gives_the_spread_of_drawing_users_again() -> None:
    """Gini over resampled users, by brute force, against the interval from slopes."""
    a, b = spread_of(0, 0.8), spread_of(0, 0.2)
    rng = np.random.default_rng(3)

    def gap(users: np.ndarray) -> float:
        shown = [np.bincount(run.slots.top[users].ravel(), minlength=40) for run in (a, b)]  # type: ignore[union-attr]
        return gini(shown[0]) - gini(shown[1])

    drawn = [gap(rng.integers(0, 300, 300)) for _ in range(400)]
    found = compare_metric([a], [b], "gini").users
    assert found is not None
    assert (found.high - found.low) / 2 / 1.97 == pytest.approx(np.std(drawn), rel=0.15)


@pytest.mark.parametrize(("name", "sign"), [("precision", 1), ("ohr", -1), ("ohr_defined", -1), ("ohr_pooled", -1)])
def test_two_methods_are_compared_on_any_metric(name: str, sign: int) -> None:
    better = [metrics_of(seed, 0.5) for seed in range(3)]
    worse = [metrics_of(10 + seed, 0.3) for seed in range(3)]
    found = compare_metric(better, worse, name)
    assert found.seeds is not None
    assert found.users is not None
    assert found.beyond_uncertainty
    assert found.seeds.difference * sign > 0.1
    assert found.users.difference == pytest.approx(found.seeds.difference, abs=2e-3)
    same = compare_metric(better, better, name)
    assert (same.p, same.beyond_uncertainty) == (1.0, False)


def test_unlike_results_are_not_compared() -> None:
    with pytest.raises(InputError, match="as many seeds"):
        compare_metric([metrics_of(0, 0.5)], [], "precision")
    with pytest.raises(InputError, match="same users"):
        compare_metric([metrics_of(0, 0.5)], [metrics_of(0, 0.5, n_users=399)], "precision")
