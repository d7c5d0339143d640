"""Balanced mining: the stated distribution by chi-square, empty sides, and what counts as less popular."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.samplers import BalancedSampler
from evenhand.testing import chi_square_p, corner_cases
from evenhand.utils.errors import InputError

DRAWS = 4_000


def draws(train: Interactions, user: int, positive: int, n: int = 1, seed: int = 0) -> np.ndarray:
    """int64 [DRAWS, n]"""
    return (
        BalancedSampler()
        .bind(train)
        .sample(
            torch.full((DRAWS,), user),
            positives=torch.full((DRAWS,), positive),
            n=n,
            generator=torch.Generator().manual_seed(seed),
        )
        .numpy()
    )


def stated_law(train: Interactions, user: int, positive: int) -> np.ndarray:
    """Half over the unobserved items of at most the positive's popularity, half over the others."""
    free = ~train.contains(np.full(train.n_items, user), np.arange(train.n_items))
    less = free & (train.popularity <= train.popularity[positive])
    more = free & ~less
    sides = [side / side.sum() for side in (less, more) if side.any()]
    return sum(sides) / 2 if len(sides) == 2 else free / free.sum()


def stairs(n_items: int = 8) -> Interactions:
    """Users 0…i have item i, so its popularity is i + 1; user u has the items from u on, the last none."""
    pairs = [(user, item) for item in range(n_items) for user in range(item + 1)]
    return Interactions.from_pairs(*zip(*pairs, strict=True), n_users=n_items + 1, n_items=n_items)


def test_stairs_by_hand() -> None:
    log = stairs(4)
    assert log.popularity.tolist() == [1, 2, 3, 4]
    assert [log.row(u).tolist() for u in range(5)] == [[0, 1, 2, 3], [1, 2, 3], [2, 3], [3], []]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("user", [1, 3, 5, 8])
@pytest.mark.parametrize("positive", [2, 5])
def test_half_are_less_popular_and_each_half_is_even(user: int, positive: int, n: int) -> None:
    for log in (stairs(), corner_cases(9, 12)):
        counts = np.bincount(draws(log, user, positive, n).ravel(), minlength=log.n_items)
        assert chi_square_p(counts, stated_law(log, user, positive)) > 1e-4


def test_the_two_sides_by_hand() -> None:
    """User 8 of the stairs has nothing: below or level with item 1 are items 0 and 1, above it are six."""
    distribution = stated_law(stairs(), 8, 1)
    assert distribution.tolist() == pytest.approx([1 / 4] * 2 + [1 / 12] * 6)


@pytest.mark.parametrize(("user", "positive", "only"), [(7, 7, range(7)), (4, 7, range(4))])
def test_an_empty_side_leaves_an_even_draw_over_the_rest(user: int, positive: int, only: range) -> None:
    """Nothing is more popular than the most popular item."""
    counts = np.bincount(draws(stairs(), user, positive).ravel(), minlength=8)
    assert chi_square_p(counts, np.isin(np.arange(8), only).astype(float)) > 1e-4


def test_an_empty_lower_side() -> None:
    """The user has every item of the positive's popularity or less: all are from above."""
    log = Interactions.from_pairs([0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 2, 3], n_items=4)
    assert log.popularity.tolist() == [1, 1, 2, 2]
    counts = np.bincount(draws(log, 0, 1).ravel(), minlength=4)
    assert chi_square_p(counts, np.array([0, 0, 1, 1])) > 1e-4


def test_equally_popular_items_count_as_less_popular() -> None:
    log = Interactions.from_pairs([0, 1, 2, 3, 4], [0, 1, 2, 3, 3], n_items=4)
    counts = np.bincount(draws(log, 0, 0).ravel(), minlength=4)
    assert chi_square_p(counts, np.array([0, 1, 1, 2])) > 1e-4


def test_the_coin_is_tossed_for_every_negative() -> None:
    """Were one toss shared by the n of a positive, all of them would lie on one side."""
    upper = draws(stairs(), 8, 3, n=2) > 3
    both = np.bincount(upper.sum(1), minlength=3)
    assert chi_square_p(both, np.array([1, 2, 1])) > 1e-4


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_never_an_observed_item(data: st.DataObject) -> None:
    n_users, n_items = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 6))
    has = np.array(data.draw(st.lists(st.booleans(), min_size=n_users * n_items, max_size=n_users * n_items)))
    log = Interactions.from_pairs(*np.nonzero(has.reshape(n_users, n_items)), n_users=n_users, n_items=n_items)
    bound = BalancedSampler().bind(log)
    users = torch.arange(n_users)[bound.eligible].repeat_interleave(40)
    assert bound.eligible.tolist() == (log.activity < n_items).tolist()
    positives = torch.arange(len(users)) % n_items
    items = bound.sample(users, positives=positives, n=3, generator=torch.Generator().manual_seed(0))
    assert ((items >= 0) & (items < n_items)).all()
    assert not log.contains(users.numpy()[:, None], items.numpy()).any()


def test_it_asks_for_the_positive() -> None:
    with pytest.raises(InputError, match="give `positives`"):
        BalancedSampler().bind(stairs()).sample(torch.tensor([3]))
