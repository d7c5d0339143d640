"""Popularity with a half-life: worked by hand, whatever the unit of time, and refused without times."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evenhand.baselines.popular import Popular, recency
from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError

TIMES = np.array([10.0, 20.0, 20.0, 40.0])
LOG = Interactions.from_pairs([0, 1, 2, 3], [0, 0, 1, 1], timestamps=TIMES, n_items=3)


def test_a_pair_counts_half_once_that_share_of_the_log_is_newer() -> None:
    """Newer than the four pairs are three, one, one and none."""
    np.testing.assert_allclose(recency(LOG, 0.25), [1 / 8, 1 / 2, 1 / 2, 1])
    np.testing.assert_allclose(recency(LOG, 0.5), [2**-1.5, 2**-0.5, 2**-0.5, 1])
    scores = Popular(half_life=0.25).fit_pairs(LOG).scores(np.array([0]))[0]
    np.testing.assert_allclose(scores, [5 / 8, 3 / 2, 0])


def test_the_unit_of_time_does_not_matter_and_no_half_life_is_a_plain_count() -> None:
    seconds = Interactions.from_pairs(LOG.users, LOG.items, timestamps=1e9 + 86_400 * TIMES, n_items=3)
    first = Popular(half_life=0.1).fit_pairs(LOG).scores(np.array([0]))
    assert torch.equal(first, Popular(half_life=0.1).fit_pairs(seconds).scores(np.array([0])))
    assert Popular().fit_pairs(LOG).scores(np.array([0])).tolist() == [[2, 2, 0]]


@pytest.mark.parametrize("times", [None, [1.0, np.nan, 2.0, 3.0]])
def test_a_half_life_without_times_is_refused(times: list[float] | None) -> None:
    log = Interactions.from_pairs(LOG.users, LOG.items, timestamps=times)
    with pytest.raises(InputError, match=r"^a half_life needs the time of every pair; name its column"):
        Popular(half_life=0.1).fit_pairs(log)


def test_all_parts_of_a_split_keep_their_times() -> None:
    split = Interactions.from_pairs(
        np.repeat(np.arange(20), 5), np.tile(np.arange(5), 20), timestamps=np.arange(100.0)
    ).split(how="time")
    both = split.train.union(split.validation, split.test)
    assert both.timestamps is not None
    assert both.timestamps.tolist() == list(range(100))
    assert split.train.union(Interactions.from_pairs([], [], n_users=20, n_items=5)).timestamps is None
