"""Propensities and the corrected recall: by hand, and in a simulation whose propensities are known."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.data.interactions import Interactions
from evenhand.metrics.evaluate import UserMetrics, score_lists
from evenhand.metrics.slots import STEEPEST, AnswerSheet, Slots, power_law_exponent, propensities
from evenhand.metrics.statistics import estimate_metric


def pairs(users: list[int], items: list[int], n_users: int, n_items: int) -> Interactions:
    return Interactions.from_pairs(
        np.array(users), np.array(items), user_ids=list(range(n_users)), item_ids=list(range(n_items))
    )


def test_the_exponent_is_that_of_the_law_that_drew_the_counts() -> None:
    uniform = np.random.default_rng(0).random(200_000)
    counts = np.floor(19.5 * (1 - uniform) ** (-1 / 1.5) + 0.5)  # P(count > c) ∝ c^-1.5, so g = 2.5, from 20 on
    assert power_law_exponent(counts) == pytest.approx(2.5, abs=0.02)


def test_stated_answers_at_the_edges() -> None:
    assert propensities(np.array([7, 7, 7])).tolist() == [1, 1, 1]
    assert propensities(np.array([3])).tolist() == [1]
    assert propensities(np.array([0, 0])).tolist() == [1, 1]
    assert np.isnan(propensities(np.array([np.nan, np.nan]))).all()
    assert np.isnan(power_law_exponent(np.array([0, 0])))
    # Counts that are nearly alike have any exponent: it is held.
    assert propensities(np.array([100, 101]))[0] == pytest.approx((100 / 101) ** STEEPEST)


def test_corrected_recall_by_hand() -> None:
    """Item 0 has four known pairs, item 1 one, item 2 none: with g from these counts p is 1, 4^-e and .01."""
    known = pairs([0, 1, 2, 3, 3], [0, 0, 0, 0, 1], 6, 3)
    truth = pairs([4, 4, 5, 5], [0, 1, 1, 2], 6, 3)
    e = (1 + 2 / (np.log(4 / 0.5) + np.log(1 / 0.5)) + 1) / 2
    p = np.array([1, 0.25**e, 0.01])
    found = score_lists(np.array([[1], [2]]), np.array([4, 5]), truth, np.zeros(3, dtype=bool), (1,), known)[1]
    expected = (1 / p[1] + 1 / p[2]) / (1 / p[0] + 1 / p[1] + 1 / p[1] + 1 / p[2])
    assert found.mean("recall_even") == pytest.approx(expected)


def test_equal_popularity_gives_the_pooled_recall() -> None:
    known = pairs([0, 1], [0, 1], 4, 2)
    truth = pairs([2, 2, 3], [0, 1, 1], 4, 2)
    found = score_lists(np.array([[0], [0]]), np.array([2, 3]), truth, np.zeros(2, dtype=bool), (1,), known)[1]
    assert found.mean("recall_even") == pytest.approx(1 / 3)
    assert np.isnan(
        score_lists(np.array([[0]]), np.array([2]), truth, np.zeros(2, dtype=bool), (1,))[1].mean("recall_even")
    )


def test_it_is_unbiased_and_its_interval_covers_where_propensities_are_known() -> None:
    """Each user wants every item with the same chance; what is wanted is seen with the item's propensity.

    Everyone is shown the same rare items, so that the true recall is their share of what is wanted: plain recall is far
    below it. Over 200 draws the interval holds the truth about 95 times in 100.
    """
    n_users, n_items, k = 250, 40, 10
    propensity = np.geomspace(1, 0.05, n_items)
    generator = np.random.default_rng(1)
    top = np.tile(np.arange(n_items - k, n_items), (n_users, 1))
    covered, values, plain = 0, [], []
    for _ in range(200):
        wanted = generator.random((n_users, n_items)) < 0.5
        seen = wanted & (generator.random((n_users, n_items)) < propensity)
        truth = pairs(*(side.tolist() for side in np.nonzero(seen)), n_users, n_items)
        users = np.flatnonzero(truth.activity > 0)
        sheet = AnswerSheet(users, truth, np.zeros(n_items, dtype=bool))
        sheet.__dict__["propensity"] = propensity
        metrics = UserMetrics.of(Slots(sheet, top[users]), k)
        found = estimate_metric([metrics], "recall_even", draws=100)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= k / n_items <= found.high
        values.append(found.value)
        plain.append(metrics.mean("recall"))
    assert np.mean(values) == pytest.approx(k / n_items, abs=0.005)
    assert np.mean(plain) < 0.15
    assert 180 <= covered <= 199
