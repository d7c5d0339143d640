"""What the rules of a split promise: uniform items under popularity shift, one moment in time, nothing leaked."""

from itertools import pairwise

import numpy as np
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.split_rules import RULES, Request
from evenhand.data.splits import given_split, rolling_splits
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.errors import InputError
from evenhand.utils.world import World

SKEWED = simulate_log(2000, 400, 40_000, seed=1)


def shift(data: Interactions, **options) -> object:
    return data.split(how="popularity-shift", **options)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """The p value of the counts under the expected ones."""
    from scipy import stats  # here and below: every process of the tests would import it for half a second

    return float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), df=len(counts) - 1))


def test_popularity_shift_draws_items_uniformly_whatever_their_popularity() -> None:
    """Items that cannot run out share the draws equally; a random split follows popularity instead."""
    rich = Interactions.from_pairs(*np.nonzero(np.random.default_rng(0).random((600, 40)) < np.linspace(0.2, 1, 40)))
    test = shift(rich, test=0.05, validation=0).test
    assert rich.popularity.min() > 100 > test.popularity.max()
    assert chi_square(test.popularity, np.full(40, len(test) / 40)) > 0.01
    random = rich.split(test=0.05, validation=0).test
    assert chi_square(random.popularity, np.full(40, len(random) / 40)) < 1e-4


def test_rounds_have_the_distribution_of_one_draw_at_a_time() -> None:
    """Against the published procedure, pair by pair, on a log so small that items run out."""
    # Every user has an item of their own, which is never drawn, so that nobody loses every pair.
    users = [0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 1, 2, 3]
    data = Interactions.from_pairs(users, [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 6])
    wanted, draws, rng = 4, 3000, np.random.default_rng(3)
    fast, slow = np.zeros((2, draws, 7), dtype=int)
    for seed in range(draws):
        log = SpreadLog.of(data, World.alone())
        ask = Request(log, wanted / len(data), log.random_keys(seed), seed, "test")
        fast[seed] = np.bincount(data.items[RULES["popularity-shift"].draw(ask).held_out], minlength=7)
        while slow[seed].sum() < wanted:
            item = rng.integers(7)
            slow[seed, item] += slow[seed, item] < data.popularity[item] - 1
    kinds, which = np.unique(np.concatenate([fast, slow]), axis=0, return_inverse=True)
    table = [np.bincount(side, minlength=len(kinds)) for side in np.split(which.ravel(), 2)]
    assert len(kinds) == 5
    from scipy import stats

    assert stats.chi2_contingency(table).pvalue > 0.01


def test_which_user_of_an_item_is_drawn_is_uniform_and_depends_on_the_seed() -> None:
    data = Interactions.from_pairs(np.repeat(np.arange(30), 2), np.tile([0, 1], 30))
    drawn = sum(shift(data, test=0.2, validation=0, seed=seed).test.activity for seed in range(400))
    assert chi_square(drawn, np.full(30, drawn.sum() / 30)) > 0.01
    assert not np.array_equal(shift(data, seed=0).test.keys, shift(data, seed=1).test.keys)


@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_popularity_shift_leaks_nothing_and_leaves_a_pair_to_every_user_and_item(validation) -> None:
    split = shift(SKEWED, validation=validation)
    parts = list(split.parts().values())
    assert sum(map(len, parts)) == len(np.unique(np.concatenate([part.keys for part in parts]))) == len(SKEWED)
    assert (split.train.activity > 0).tolist() == (SKEWED.activity > 0).tolist()
    assert (split.train.popularity > 0).tolist() == (SKEWED.popularity > 0).tolist()
    assert split.how == "popularity-shift"
    begin = "popularity shift: items drawn uniformly, test 20 % of the pairs, "
    rest = "validation 10 % of the rest, split seed 0" if validation else "no validation, split seed 0"
    assert split.description == begin + rest


def test_validation_is_drawn_as_test_is_unless_asked_otherwise() -> None:
    alike, random = shift(SKEWED), shift(SKEWED, validation_how="random")
    assert np.array_equal(alike.test.keys, random.test.keys)
    mean = SKEWED.popularity[alike.validation.items].mean()
    assert mean < 0.6 * SKEWED.popularity[random.validation.items].mean()
    assert random.description.endswith("split seed 0; validation by the random rule")


def test_items_with_one_pair_stay_in_train() -> None:
    data = Interactions.from_pairs([0, 1, 2, 3, 4, 5, 6, 0, 1, 2], [0, 0, 0, 0, 0, 0, 0, 1, 2, 3])
    split = shift(data, test=0.3, validation=0)
    assert set(split.test.items.tolist()) == {0}
    with pytest.raises(InputError, match="at most 6 can be drawn; choose a smaller share"):
        shift(data, test=0.7, validation=0)


def test_a_user_who_would_lose_every_pair_keeps_one_and_that_is_said() -> None:
    # Five users have one pair, the others two; one of the five is often drawn.
    users = np.concatenate([np.arange(25), np.arange(5, 25)])
    data = Interactions.from_pairs(users, np.repeat([0, 1], [25, 20]))
    said = 0
    for seed in range(20):
        split = shift(data, test=0.3, validation=0, seed=seed)
        assert split.train.activity.min() > 0
        said += any("every pair drawn; one of them stays outside the test part" in note for note in split.notes)
        assert said or len(split.test) == round(0.3 * 45)
    assert said > 10
    with pytest.raises(InputError, match="the test part of the popularity-shift split is empty"):
        shift(Interactions.from_pairs(np.arange(30), np.arange(30) % 2), test=0.2, validation=0)


TIMED = Interactions.from_pairs(
    np.repeat(np.arange(10), 10), np.tile(np.arange(10), 10), timestamps=1.7e9 + 86_400 * (np.arange(100) % 25)
)
"""Ten users and items over 25 days, from 2023-11-14 22:13:20 UTC on; four pairs a day."""


def test_time_cuts_at_the_moment_that_is_given() -> None:
    split = TIMED.split(how="time", test_from="2023-12-01", validation=0.1)
    cut = 1701388800  # 2023-12-01 00:00 UTC
    assert split.test.timestamps.min() >= cut
    assert max(split.train.timestamps.max(), split.validation.timestamps.max()) < cut
    assert split.train.timestamps.max() < split.validation.timestamps.min()
    assert len(split.train) + len(split.validation) + len(split.test) == 100
    assert split.description == "by time: test from 2023-12-01 on, validation 10 % of the rest"
    # The same moment in another time zone, and as a number.
    for same in ("2023-12-01T02:00:00+02:00", "2023-11-30T19:00:00-05:00", cut, str(cut)):
        assert np.array_equal(TIMED.split(how="time", test_from=same).test.keys, split.test.keys)
    assert len(TIMED.split(how="time", test_from="2023-12-01T00:00:00+02:00").test) == len(split.test) + 4


def test_times_in_milliseconds_are_reported_by_their_size() -> None:
    for ticks in (1e3, 1e6, 1e9):
        data = Interactions.from_pairs(TIMED.users, TIMED.items, timestamps=TIMED.timestamps * ticks)
        assert len(data.split(how="time", test_from="2023-12-01").test) == len(
            TIMED.split(how="time", test_from="2023-12-01").test
        )


def test_a_gap_leaves_out_what_lies_before_a_part() -> None:
    split = TIMED.split(how="time", test_from="2023-12-01", gap="3d", validation=0.2)
    cut = 1701388800
    middle = split.validation.timestamps
    assert cut - middle.max() >= 3 * 86_400
    assert middle.min() - split.train.timestamps.max() >= 3 * 86_400
    left_out = 100 - sum(map(len, split.parts().values()))
    assert {
        "12 pairs within the gap before the test part are in no part.",
        "8 pairs within the gap before the validation part are in no part.",
    } <= set(split.notes)
    assert left_out == 20
    assert len(TIMED.split(how="time", test_from="2023-12-01", gap=3 * 86_400, validation=0.2).train) == len(
        split.train
    )


def test_rolling_tests_follow_one_another() -> None:
    splits = list(rolling_splits(TIMED, folds=3, test=0.2))
    spans = [(split.test.timestamps.min(), split.test.timestamps.max()) for split in splits]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    for split, (begin, _) in zip(splits, spans, strict=True):
        assert max(split.train.timestamps.max(), split.validation.timestamps.max()) < begin
        assert len(split.test) == 20
    assert len(splits[-1].train) > len(splits[0].train)
    with pytest.raises(InputError, match="leave nothing to train on"):
        list(rolling_splits(TIMED, folds=5, test=0.2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "random", "test_from": 3}, "belongs to a time split"),
        ({"how": "popularity-shift", "gap": "3d"}, "belongs to a time split"),
        ({"how": "time", "test_from": "yesterday"}, "neither a number nor a date such as 2026-09-01"),
        ({"how": "time", "test_from": "2023"}, "neither a number nor a date"),
        ({"how": "time", "test_from": "2030-01-01"}, "the test part of the time split is empty"),
        ({"how": "time", "test_from": "2003-01-01"}, "the train part of the time split is empty"),
        ({"how": "time", "gap": "3 weeks"}, "is no span of time; give a number, or 7d"),
        ({"how": "time", "gap": -1}, "is no span of time"),
        ({"validation_how": "tmie"}, "unknown split 'tmie'; did you mean 'time'"),
    ],
)
def test_mistakes_end_in_one_sentence(options, message) -> None:
    with pytest.raises(InputError, match=message):
        TIMED.split(**options)


def test_dates_need_times_that_are_dates() -> None:
    data = Interactions.from_pairs([0, 0, 1, 1], [0, 1, 0, 1], timestamps=[1, 2, 3, 4])
    with pytest.raises(InputError, match=r"the timestamps \(up to 4\) are no dates"):
        data.split(how="time", test_from="2023-12-01")
    assert len(data.split(how="time", test_from=3, validation=0).test) == 2


def test_last_is_short_for_leave_last_out() -> None:
    assert np.array_equal(TIMED.split(how="last").test.keys, TIMED.split(how="leave-last-out").test.keys)
    assert TIMED.split(how="last").how == "leave-last-out"


def test_validation_of_a_given_test_is_drawn_by_the_rule_asked_for() -> None:
    whole = shift(SKEWED, validation=0)
    for how in ("popularity-shift", "random", "per-user"):
        split = given_split(whole.train, whole.test, validation=0.1, validation_how=how)
        assert len(split.train) + len(split.validation) == len(whole.train)
        assert not split.train.contains(split.validation.users, split.validation.items).any()
    alike = given_split(whole.train, whole.test, validation=0.1, validation_how="popularity-shift")
    random = given_split(whole.train, whole.test, validation=0.1)
    popularity = whole.train.popularity
    assert popularity[alike.validation.items].mean() < 0.6 * popularity[random.validation.items].mean()
    assert alike.description.endswith("validation 10 % of train, split seed 0, by the popularity-shift rule")
    assert random.description.endswith("validation 10 % of train, split seed 0")
    with pytest.raises(InputError, match="a time split needs timestamps"):
        given_split(whole.train, whole.test, validation=0.1, validation_how="time")
