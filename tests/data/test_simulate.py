"""The simulator tells the truth: its log, its probabilities and its loop are what they claim to be."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data import simulate as module
from evenhand.data.datasets.load import demo_simulation
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini, share_of_hottest
from evenhand.data.simulate import Simulation, simulate, simulate_log, simulate_rounds
from evenhand.utils.errors import InputError
from evenhand.utils.keyed import keyed_uniform


@pytest.fixture(scope="module")
def small() -> Simulation:
    return simulate(200, 300, 6000, seed=5, uniform_test=20)


def everything(world: Simulation) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(world.log.n_users)[:, None], np.arange(world.log.n_items)[None, :]


def dense(part: Interactions) -> np.ndarray:
    matrix = np.zeros((part.n_users, part.n_items), dtype=bool)
    matrix[part.users, part.items] = True
    return matrix


# Measures of inequality


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_gini_is_the_mean_absolute_difference_over_twice_the_mean(counts: list[int]) -> None:
    values = np.array(counts, dtype=float)
    differences = np.abs(values[:, None] - values[None, :]).mean()
    expected = differences / (2 * values.mean()) if values.sum() else 0.0
    assert gini(counts) == pytest.approx(expected, abs=1e-12)


def test_share_of_the_hottest_by_hand() -> None:
    # 15 % of 20 items are 3 items: 10 + 5 + 5 of 37.
    assert share_of_hottest([5, 10, 5] + [1] * 17) == pytest.approx(20 / 37)
    assert share_of_hottest([0, 0]) == 0.0


# Keyed randomness


def test_keyed_numbers_depend_on_the_key_alone() -> None:
    users, items = np.arange(40)[:, None], np.arange(30)
    whole = keyed_uniform(3, 1, users, items)
    assert np.array_equal(whole[7:9, 11:], keyed_uniform(3, 1, users[7:9], items[11:]))
    assert keyed_uniform(3, 1, 7, 11) == whole[7, 11]
    assert len(np.unique(whole)) == whole.size
    assert not np.isin(keyed_uniform(3, 2, users, items), whole).any()
    assert not np.isin(keyed_uniform(4, 1, users, items), whole).any()


def test_keyed_numbers_are_uniform_and_neighbours_unrelated() -> None:
    draws = keyed_uniform(0, np.arange(300)[:, None], np.arange(300))
    counts = np.histogram(draws, bins=100, range=(0, 1))[0]
    chi2 = ((counts - 900) ** 2 / 900).sum()
    assert 50 < chi2 < 160  # 99 degrees of freedom: mean 99, standard deviation 14
    assert abs(np.corrcoef(draws[1:].ravel(), draws[:-1].ravel())[0, 1]) < 0.015
    assert abs(np.corrcoef(draws[:, 1:].ravel(), draws[:, :-1].ravel())[0, 1]) < 0.015


# The world


def test_a_pair_is_observed_iff_exposed_and_liked(small: Simulation) -> None:
    users, items = everything(small)
    assert np.array_equal(dense(small.log), small.truth(users, items) & small.exposed(users, items))


def test_preference_is_the_stated_formula(small: Simulation) -> None:
    users, items = everything(small)
    logit = -4.5 + small.attraction + small.user_taste @ small.item_taste.T
    np.testing.assert_allclose(small.preference(users, items), 1 / (1 + np.exp(-logit)), rtol=1e-12)


def test_labels_and_exposures_have_their_stated_probabilities() -> None:
    world = demo_simulation()
    users, items = everything(world)
    for drawn, probability in (
        (world.truth(users, items), world.preference(users, items)),
        (world.exposed(users, items), world.exposure(users, items)),
    ):
        for low in np.arange(0, 1, 0.1):
            cell = (probability >= low) & (probability < low + 0.1)
            error = drawn[cell].mean() - probability[cell].mean()
            assert abs(error) < 4.5 * np.sqrt(0.25 / cell.sum())


def test_true_negative_probability_is_right_among_the_unobserved() -> None:
    world = demo_simulation()
    users, items = everything(world)
    unobserved = ~dense(world.log)
    stated = world.true_negative_probability(users, items)
    negative = ~world.truth(users, items)
    for low in np.arange(0, 1, 0.1):
        cell = unobserved & (stated >= low) & (stated < low + 0.1)
        assert abs(negative[cell].mean() - stated[cell].mean()) < 4.5 * np.sqrt(0.25 / cell.sum())


def test_true_negative_probability_by_hand(small: Simulation) -> None:
    # With p = 1/2 and e = 1/2: liked and unseen 1/4, not liked 1/2, so 2/3 of the unobserved are negative.
    flat = replace(
        small,
        attraction=np.full(300, 4.5),
        user_taste=np.zeros((200, 1)),
        item_taste=np.zeros((300, 1)),
        user_exposure=np.full(200, np.log(2)),
        item_exposure=np.ones(300),
    )
    assert flat.true_negative_probability(3, 4) == pytest.approx(2 / 3)


def test_uniform_test_is_a_fair_draw_of_unseen_items(small: Simulation) -> None:
    users, items = everything(small)
    test = dense(small.uniform_test)
    liked = small.truth(users, items)
    unseen = ~dense(small.log)
    assert not (test & ~unseen).any()
    assert not (test & ~liked).any()
    # Every unseen liked item of a user has the same chance: 20 of the unseen.
    chance = (20 / unseen.sum(axis=1, keepdims=True)) * (liked & unseen)
    for group in np.array_split(np.argsort(small.item_exposure), 5):
        expected = chance[:, group].sum()
        assert abs(test[:, group].sum() - expected) < 4 * np.sqrt(expected)


def test_exposure_grows_with_attractiveness_only_where_it_is_biased() -> None:
    biased = simulate(100, 400, 3000, seed=1)
    neutral = simulate(100, 400, 3000, seed=1, exposure_bias=0.0)
    assert np.corrcoef(biased.attraction, np.log(biased.item_exposure))[0, 1] > 0.85
    assert abs(np.corrcoef(neutral.attraction, np.log(neutral.item_exposure))[0, 1]) < 0.15
    assert gini(biased.log.popularity) > gini(neutral.log.popularity) + 0.1


def test_chunks_of_users_change_nothing(small: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", 7 * 300)
    again = simulate(200, 300, 6000, seed=5, uniform_test=20)
    assert np.array_equal(again.log.keys, small.log.keys)
    assert np.array_equal(again.log.timestamps, small.log.timestamps)
    assert np.array_equal(again.uniform_test.keys, small.uniform_test.keys)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_log_is_about_as_long_as_asked(seed: int) -> None:
    assert len(simulate(400, 500, 12_000, seed=seed).log) == pytest.approx(12_000, rel=0.04)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 10, 95), "ask for at most"),
        ((0, 10, 5), "n_users must be at least 1"),
        ((1_000_000, 200_000, 1000), "simulate_log"),
    ],
)
def test_impossible_worlds_are_refused(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(*arguments)


# The demo


def test_demo_is_fixed() -> None:
    world = demo_simulation()
    keys = np.concatenate([world.log.keys, world.uniform_test.keys]).astype("<i8")
    assert len(world.log) == 59_533
    assert hashlib.sha256(keys.tobytes()).hexdigest()[:16] == "210ce9c023cabdbf"


def test_demo_is_as_skewed_as_movielens_and_leaves_nobody_without_history() -> None:
    log = demo_simulation().log
    assert 0.62 < gini(log.popularity) < 0.65
    assert log.activity.min() >= 10
    assert demo_simulation().uniform_test.activity.min() >= 1


def test_taste_matters_in_demo() -> None:
    split = demo_simulation().split
    train, test = dense(split.train.union(split.validation)), dense(split.test)
    x = train.astype(float)
    inverse = np.linalg.inv(x.T @ x + 200 * np.eye(x.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    personal = ndcg_at_10(np.where(train, -np.inf, x @ weights), test)
    popular = ndcg_at_10(np.where(train, -np.inf, x.sum(axis=0)), test)
    assert personal > 1.3 * popular > 0.05


def ndcg_at_10(scores: np.ndarray, test: np.ndarray) -> float:
    top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    discount = 1 / np.log2(np.arange(2, 12))
    gained = (np.take_along_axis(test, top, axis=1) * discount).sum(axis=1)
    wanted = test.sum(axis=1)
    best = np.concatenate([[0], np.cumsum(discount)])[np.minimum(wanted, 10)]
    return float((gained[wanted > 0] / best[wanted > 0]).mean())


def test_demo_splits_partition_the_log_or_keep_it_apart_from_the_uniform_test() -> None:
    world = demo_simulation()
    split = world.split
    assert len(split.train) + len(split.validation) + len(split.test) == len(world.log)
    uniform = world.uniform_split
    assert len(uniform.train) + len(uniform.validation) == len(world.log)
    assert np.array_equal(uniform.test.keys, world.uniform_test.keys)


# Logs for speed tests


def test_simulated_log_is_long_tailed_on_both_sides() -> None:
    log = simulate_log(3000, 2000, 100_000, seed=4)
    assert 80_000 < len(log) <= 100_000
    assert gini(log.popularity) > 0.5
    assert gini(log.activity) > 0.4
    assert np.array_equal(log.keys, simulate_log(3000, 2000, 100_000, seed=4).keys)
    assert not np.array_equal(log.keys, simulate_log(3000, 2000, 100_000, seed=5).keys)
    # The popular items lie anywhere, so that an index tells nothing.
    assert abs(np.corrcoef(np.arange(2000), log.popularity)[0, 1]) < 0.1


def test_simulated_log_of_a_million_users_needs_no_matrix() -> None:
    log = simulate_log(1_000_000, 200_000, 50_000)
    assert (log.n_users, log.n_items) == (1_000_000, 200_000)
    assert 45_000 < len(log) <= 50_000


# The loop


def most_popular(log: Interactions) -> np.ndarray:
    scores = np.where(dense(log), -1, log.popularity)
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def anything(log: Interactions) -> np.ndarray:
    noise = keyed_uniform(9, len(log), np.arange(log.n_users)[:, None], np.arange(log.n_items))
    return np.argsort(np.where(dense(log), 2, noise), axis=1)[:, :10]


def test_without_position_bias_exactly_the_liked_are_chosen(small: Simulation) -> None:
    (only,) = simulate_rounds(small, anything, n_rounds=1, position_bias=0.0)
    users = np.arange(200)[:, None]
    assert np.array_equal(only.chosen, small.truth(users, only.top))
    assert len(only.log) == len(small.log) + only.chosen.sum()
    assert only.log.contains(users, only.top)[only.chosen].all()
    assert only.choice_rate == pytest.approx(only.chosen.mean())


def test_strong_position_bias_leaves_only_the_first_place(small: Simulation) -> None:
    (only,) = simulate_rounds(small, anything, n_rounds=1, position_bias=50.0)
    assert only.chosen[:, 0].any()
    assert not only.chosen[:, 1:].any()


def test_the_log_of_a_round_is_what_the_next_one_learns_from(small: Simulation) -> None:
    seen: list[int] = []

    def recommend(log: Interactions) -> np.ndarray:
        seen.append(len(log))
        return most_popular(log)

    rounds = simulate_rounds(small, recommend, n_rounds=3)
    assert [len(small.log), *(len(r.log) for r in rounds)][:3] == seen
    assert seen[0] < seen[1] < seen[2]
    again = simulate_rounds(small, most_popular, n_rounds=3)
    assert all(np.array_equal(a.chosen, b.chosen) for a, b in zip(rounds, again, strict=True))


def test_a_popularity_ranking_makes_the_world_more_uneven_than_chance(small: Simulation) -> None:
    popular = simulate_rounds(small, most_popular, n_rounds=4)[-1]
    fair = simulate_rounds(small, anything, n_rounds=4)[-1]
    assert popular.exposure_gini > fair.exposure_gini + 0.3
    assert popular.popularity_gini > fair.popularity_gini
    assert popular.hot_share > fair.hot_share


def test_empty_places_and_old_items_are_never_chosen(small: Simulation) -> None:
    def recommend(log: Interactions) -> np.ndarray:
        old = np.array([log.row(user)[0] for user in range(log.n_users)])
        return np.stack([np.full(log.n_users, -1), old], axis=1)

    (only,) = simulate_rounds(small, recommend, n_rounds=1, k=2, position_bias=0.0)
    assert not only.chosen.any()
    assert np.array_equal(only.log.keys, small.log.keys)


@pytest.mark.parametrize("answer", [np.zeros((200, 3), int), np.zeros((200, 10)), np.full((200, 10), 300)])
def test_a_wrong_answer_of_the_recommender_is_named(small: Simulation, answer: np.ndarray) -> None:
    with pytest.raises(InputError, match="recommend "):
        simulate_rounds(small, lambda log: answer, n_rounds=1)
