"""Scores that are no numbers are refused in one sentence, and shorter lists are not mistaken for them."""

from __future__ import annotations

import pytest
import torch

from evenhand.models.factors import FactorModel
from evenhand.utils.errors import InputError
from run_cli import small_log


def factors(value: float = 1.0) -> FactorModel:
    log = small_log()
    users = torch.ones(1, log.n_users, 3)
    users[0, 2] = value
    return FactorModel(users, torch.full((1, log.n_items, 3), value), known=log, seeds=(0,))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e20])
def test_numbers_that_ran_away_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"the model's scores are not finite for \d+ of 60 users: .*train it again"):
        factors(value).recommend(k=5)


def test_one_user_whose_products_overflow_is_counted() -> None:
    made = factors()
    made.user_vectors[0, 7] = 3e38
    with pytest.raises(InputError, match="for 1 of 60 users"):
        made.recommend(k=5)


def test_a_list_that_ends_early_for_want_of_items_is_no_problem() -> None:
    made = factors()
    log = made.known
    most = log.n_items - int(log.activity.min()) + 1  # more than anyone has left
    assert len(made.recommend(k=most)) == int((log.n_items - log.activity).clip(max=most).sum())
    some = log.item_ids.slice(0, 3)
    assert len(made.recommend(k=10, only=some, known=True)) == 3 * log.n_users
