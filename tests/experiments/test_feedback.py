"""The feedback loop: what it counts, and that the log really grows by what users chose."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.popularity import hot_items
from evenhand.data.simulate import Simulation, simulate_rounds
from evenhand.experiments.fit import _measured, feedback_loop

SETTINGS = eh.Settings(epochs=3, batch=256)


@pytest.fixture(scope="module")
def world() -> Simulation:
    return eh.simulate(80, 60, 600, uniform_test=5, seed=1)


def test_a_round_is_measured_against_the_truth(world: Simulation) -> None:
    """By a plain loop over users and shown items."""
    rng = np.random.default_rng(0)
    top = np.array([rng.permutation(60)[:7] for _ in range(80)])
    top[3, 5:] = -1
    (turn,) = simulate_rounds(world, lambda log: top, 1, 7)
    hot = hot_items(world.log.popularity)
    found = _measured(world, turn, hot)
    over, liked, shown = [], 0, 0
    for user in range(80):
        items = [item for item in top[user] if item >= 0]
        truth = [bool(world.truth(user, item)) for item in items]
        liked, shown = liked + sum(truth), shown + len(items)
        hits = [good for item, good in zip(items, truth, strict=True) if hot[item]]
        over.append(1 - sum(hits) / len(hits) if hits else 0.0)
    assert found.ohr == pytest.approx(np.mean(over))
    assert found.precision == pytest.approx(liked / shown)


def test_rounds_follow_each_other_and_repeat(world: Simulation) -> None:
    first = feedback_loop(world, "rns", eh.MF(dim=8), 3, 5, SETTINGS)
    assert [turn.number for turn in first] == [1, 2, 3]
    assert first == feedback_loop(world, "rns", eh.MF(dim=8), 3, 5, SETTINGS)
    assert first != feedback_loop(world, "rns", eh.MF(dim=8), 3, 5, SETTINGS, seed=1)
    assert len({turn.popularity_gini for turn in first}) == 3, "every round adds to the log"
