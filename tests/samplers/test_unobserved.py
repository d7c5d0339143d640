"""The distribution of unobserved items against a list that a reader can check: every place of every user."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.samplers.unobserved import _WEIGHT_RESOLUTION, UnobservedDistribution, scaled
from evenhand.utils.errors import InputError

LARGEST = 1 - 2.0**-53
"""The largest number a uniform draw can be."""


def interactions(has: np.ndarray) -> Interactions:
    return Interactions.from_pairs(*np.nonzero(has), n_users=len(has), n_items=has.shape[1])


@st.composite
def logs(draw: st.DrawFn) -> np.ndarray:
    """bool [n_users, n_items]; rows of users with nothing, everything and everything but one are common."""
    n_users, n_items = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    row = st.one_of(
        st.just([False] * n_items),
        st.just([True] * n_items),
        st.integers(0, n_items - 1).map(lambda gap: [i != gap for i in range(n_items)]),
        st.lists(st.booleans(), min_size=n_items, max_size=n_items),
    )
    return np.array(draw(st.lists(row, min_size=n_users, max_size=n_users)), dtype=bool)


def every_place(distribution: UnobservedDistribution, user: int) -> list[int]:
    places = torch.arange(int(distribution.mass[user]))
    return distribution.at(torch.full_like(places, user), places).tolist()


@given(has=logs())
@example(has=np.array([[True]]))
@example(has=np.array([[False]]))
@settings(max_examples=200, deadline=None)
def test_uniform_law_lists_what_is_unobserved(has: np.ndarray) -> None:
    distribution = UnobservedDistribution(interactions(has), None, "cpu")
    for user, own in enumerate(has):
        assert every_place(distribution, user) == np.flatnonzero(~own).tolist()


@given(has=logs(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_weighted_law_repeats_each_item_by_its_weight(has: np.ndarray, data: st.DataObject) -> None:
    """Weights that sum to a power of two are held exactly; shrinking the table keeps the list short."""
    n_items = has.shape[1]
    weights = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n_items, max_size=n_items)))
    weights[data.draw(st.integers(0, n_items - 1))] += 64 - weights.sum()
    distribution = UnobservedDistribution(interactions(has), weights, "cpu")
    unit = _WEIGHT_RESOLUTION // 64
    for user, own in enumerate(has):
        expected = [i for i in range(n_items) if not own[i] for _ in range(weights[i])]
        assert int(distribution.mass[user]) == len(expected) * unit
        # The first and the last place of every unit, so that no boundary is off by one.
        for end in (0, unit - 1):
            places = torch.arange(len(expected)) * unit + end
            assert distribution.at(torch.full_like(places, user), places).tolist() == expected


@given(has=logs(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_weights_are_met_to_the_resolution(has: np.ndarray, data: st.DataObject) -> None:
    n_items = has.shape[1]
    some = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))
    weights = np.array(data.draw(st.lists(some, min_size=n_items, max_size=n_items)))
    weights[data.draw(st.integers(0, n_items - 1))] = 1.0
    distribution = UnobservedDistribution(interactions(has), weights, "cpu")
    for user, own in enumerate(has):
        target = np.where(own, 0.0, weights)
        mass = int(distribution.mass[user])
        assert mass == pytest.approx(target.sum() / weights.sum() * _WEIGHT_RESOLUTION, abs=n_items)
        assert (mass > 0) == (target.sum() > 0)
        if mass:
            cuts = [0, *boundaries(distribution, user, mass), mass]
            for begin, end in pairwise(cuts):
                item = int(distribution.at(torch.tensor([user]), torch.tensor([begin])))
                assert not own[item]
                share = weights[item] / weights.sum() * _WEIGHT_RESOLUTION
                assert end - begin == pytest.approx(share, abs=1)


def boundaries(distribution: UnobservedDistribution, user: int, mass: int) -> list[int]:
    """Where the item changes, by bisection between neighbours: a search that knows nothing of the distribution."""

    def item(place: int) -> int:
        return int(distribution.at(torch.tensor([user]), torch.tensor([place])))

    found, begin = [], 0
    while item(begin) != item(mass - 1):
        low, high = begin, mass - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if item(middle) == item(begin) else (low, middle)
        found.append(high)
        begin = high
    return found


@given(has=logs(), weighted=st.booleans())
@settings(max_examples=100, deadline=None)
def test_extreme_uniforms_stay_inside(has: np.ndarray, weighted: bool) -> None:
    weights = np.linspace(1, 3, has.shape[1]) if weighted else None
    distribution = UnobservedDistribution(interactions(has), weights, "cpu")
    for user in np.flatnonzero(~has.all(axis=1)):
        drawn = distribution.draw(torch.tensor([user]), torch.tensor([[0.0, LARGEST]], dtype=torch.float64))
        left = np.flatnonzero(~has[user])
        assert drawn.tolist() == [[left[0], left[-1]]]


@given(size=st.integers(1, 2**40), uniform=st.floats(0, LARGEST))
def test_scaled_is_the_floor_and_below_size(size: int, uniform: float) -> None:
    got = int(scaled(torch.tensor(uniform, dtype=torch.float64), torch.tensor(size)))
    assert got == min(int(uniform * size), size - 1)


@pytest.mark.parametrize("size", [1, 3, 2**36, 2**53 + 1, 2**62])
def test_a_uniform_that_was_rounded_to_one_is_still_inside(size: int) -> None:
    """Single-precision generators can return it once they are widened."""
    assert int(scaled(torch.tensor(1.0, dtype=torch.float64), torch.tensor(size))) == size - 1


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [1, np.inf], [np.nan, 1]])
def test_impossible_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="finite, non-negative and not all zero"):
        UnobservedDistribution(interactions(np.zeros((1, 2), dtype=bool)), np.array(weights), "cpu")
