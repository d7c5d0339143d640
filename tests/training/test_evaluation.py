"""Evaluation during training: who is evaluated, where it is not everybody."""

from __future__ import annotations

import numpy as np
import pytest

from evenhand.data.interactions import Interactions
from evenhand.methods import parse
from evenhand.training import evaluation
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Conditions
from toy_log import random_log


def test_a_sample_is_drawn_from_all_users_with_held_out_items() -> None:
    """Not the first of them, who may be the oldest customers: the mean of 500 of 5,000 is 2,500 ± 61."""
    truth = Interactions.from_pairs(np.arange(0, 10_000, 2), np.zeros(5000, dtype=int), n_users=10_000, n_items=3)
    nothing = truth.take(np.zeros(len(truth), dtype=bool))
    users = Evaluator(truth, nothing, np.zeros(3, dtype=bool), (1,), sample=500).users
    assert len(np.unique(users)) == 500
    assert (users % 2 == 0).all()
    assert abs((users / 2).mean() - 2500) < 5 * 61
    assert users.max() > 9000


def test_a_look_at_test_that_would_take_hours_is_taken_at_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same users for every method, said in a note; within the ceiling it is everybody."""
    log = random_log(1, n_users=2000, n_items=14)
    split = log.split(test=0.3, validation=0.1, seed=0)
    whole = Conditions.of(split, k=3, device="cpu")
    assert not any("sample" in note for note in whole.split.notes)
    monkeypatch.setattr(evaluation, "MOST_SCORES", 15 * 1200)
    conditions = Conditions.of(split, k=3, device="cpu")
    there = int((split.test.activity > 0).sum())
    assert f"Test metrics are those of a sample of 1,200 of {there:,} users, the same for every method." in (
        conditions.split.notes
    )
    fits = [parse(name).fit_under(conditions) for name in ("popular", "rns")]
    assert [len(fit.results[3][0].users.users) for fit in fits] == [1200, 1200]
    assert all(any("sample of 1,200" in note for note in fit.notes) for fit in fits)
    assert (fits[0].results[3][0].users.users == fits[1].results[3][0].users.users).all()
