import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule, hot_items
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, given_split
from evenhand.utils.errors import InputError


def part(*items: int) -> Interactions:
    """Ten items; the n-th interaction is by the n-th user."""
    return Interactions.from_pairs(range(len(items)), items, n_users=20, n_items=10)


def test_hand_worked_share() -> None:
    popularity = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert hot_items(popularity, 0.2).nonzero()[0].tolist() == [8, 9]
    assert hot_items(popularity).nonzero()[0].tolist() == [8, 9]  # position int(8.5) = 8


def test_ties_enlarge_the_set_and_untouched_items_stay_cold() -> None:
    assert hot_items(np.array([1, 7, 7, 7]), 0.25).tolist() == [False, True, True, True]
    assert hot_items(np.array([0, 0, 0, 5]), 0.5).tolist() == [False, False, False, True]
    assert not hot_items(np.zeros(8, dtype=int)).any()


def test_decimal_shares_are_not_blurred_by_binary() -> None:
    assert hot_items(np.arange(1, 11), 0.9).sum() == 9
    assert hot_items(np.arange(1, 101), 0.71).sum() == 71


@given(st.lists(st.integers(0, 20), min_size=1, max_size=60))
def test_default_is_the_published_rule(counts: list[int]) -> None:
    threshold = sorted(counts)[int(0.85 * len(counts))]
    assert hot_items(np.array(counts)).tolist() == [c >= threshold and c > 0 for c in counts]


def test_default_position_is_exact_for_every_number_of_items() -> None:
    for n in (*range(1, 3000), 62_423, 1_000_000):
        assert int(round((1 - 0.15) * n, 6)) == int(0.85 * n)


def test_rules_count_what_they_say() -> None:
    split = Split(part(0, 0, 0, 1), part(1, 1, 1, 2), part(2, 2, 2, 2, 2, 2), "by hand")
    assert HotRule.parse("honest").mask(split).nonzero()[0].tolist() == [0, 1]  # position 8 of 10: count 1
    assert HotRule.parse("paper").mask(split).nonzero()[0].tolist() == [1, 2]  # counts 3, 4, 7
    assert HotRule.parse("0.1").mask(split).nonzero()[0].tolist() == [0]
    assert HotRule.parse("3").mask(split).nonzero()[0].tolist() == [0]
    assert HotRule.parse(1).mask(split).nonzero()[0].tolist() == [0, 1]


def test_description_names_share_and_counts() -> None:
    assert HotRule.parse("0.2").describe() == "the top 20 % of the items by interactions in train"
    assert "validation and test" in HotRule.parse("paper").describe()
    assert HotRule.parse("1500").describe() == "items with at least 1,500 train interactions"


@pytest.mark.parametrize("text", ["0", "1.0", "-3", "0.0", "fair", "", "nan", "1.5", "inf"])
def test_anything_else_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(InputError, match=r"unknown hot rule .* paper, honest, a share"):
        HotRule.parse(text)


@pytest.mark.parametrize(("name", "threshold", "n_hot"), [("ml-100k", 128, 253), ("ml-1m", None, 556)])
def test_published_numbers_of_hot_items(shared_data, name, threshold, n_hot) -> None:
    train, test = (read_interactions(shared_data / name / f"paper_{part}.csv") for part in ("train", "test"))
    split = given_split(train, test)
    hot = HotRule.parse("paper").mask(split)
    assert hot.sum() == n_hot
    if threshold is not None:
        assert (split.train.popularity + split.test.popularity)[hot].min() == threshold
        assert split.train.popularity[hot].sum() / len(split.train) == pytest.approx(0.551, abs=5e-4)
