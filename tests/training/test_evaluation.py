"""Evaluation during training: who is evaluated, where it is not everybody."""

from __future__ import annotations

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.training.evaluation import Evaluator


def test_a_sample_is_drawn_from_all_users_with_held_out_items() -> None:
    """Not the first of them, who may be the oldest customers: the mean of 500 of 5,000 is 2,500 ± 61."""
    truth = Interactions.from_pairs(np.arange(0, 10_000, 2), np.zeros(5000, dtype=int), n_users=10_000, n_items=3)
    nothing = truth.take(np.zeros(len(truth), dtype=bool))
    users = Evaluator(truth, nothing, np.zeros(3, dtype=bool), (1,), sample=500).users
    assert len(np.unique(users)) == 500
    assert (users % 2 == 0).all()
    assert abs((users / 2).mean() - 2500) < 5 * 61
    assert users.max() > 9000
