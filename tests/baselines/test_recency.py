"""What users had lately counts for more: counts, windows and scores against plain loops; a folder keeps the times."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.baselines import EASE, GFCF, ItemKNN
from evenhand.baselines.base import Baseline
from evenhand.baselines.recipe import Recipe
from evenhand.data.interactions import Interactions, later_pairs, recency_counts
from evenhand.data.splits import held_out_share
from evenhand.methods import parse
from evenhand.models.folder import load
from evenhand.models.item_weights import GraphFilter, ItemWeightModel
from evenhand.training.method import RunOptions
from evenhand.utils.errors import InputError

METHODS = [ItemKNN(5, 0, "gram", recency=0.7), EASE(l2=3, max_items=9, recency=0.7), GFCF(4, recency=0.7)]


def timed_log(seed: int = 0) -> Interactions:
    """Random pairs with few times, so that many are the same, and some unknown."""
    random = np.random.default_rng(seed)
    users, items, times = random.integers(12, size=90), random.integers(14, size=90), random.integers(5, size=90)
    log = Interactions.from_pairs(users, items, timestamps=times.astype(float), n_users=12, n_items=14)
    assert log.timestamps is not None
    log.timestamps[::11] = np.nan
    return log


def test_later_pairs_are_counted() -> None:
    log = timed_log()
    times = np.nan_to_num(log.timestamps, nan=-1.0)  # an unknown time is before all others
    for place, later in enumerate(later_pairs(log)):
        assert later == sum(log.users[o] == log.users[place] and times[o] > times[place] for o in range(len(log)))
    counts = recency_counts(log, 0.5)
    assert counts is not None
    np.testing.assert_allclose(counts, (1 + later_pairs(log)) ** -0.5, rtol=1e-6)
    assert recency_counts(log, 0) is None


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_scores_are_sums_by_recency(method: Baseline) -> None:
    """Scores are linear in what a user has: those of single items, added up by what each counts for."""
    log = timed_log()
    model = method.fit_pairs(log)
    assert isinstance(model, ItemWeightModel)
    everyone, alone = np.arange(log.n_users), Interactions.from_pairs(range(14), range(14), n_users=14, n_items=14)
    single = model.table.scores(alone, np.arange(14)).numpy()
    expected = np.zeros((log.n_users, log.n_items))
    for user, item, count in zip(log.users, log.items, (1.0 + later_pairs(log)) ** -0.7, strict=True):
        expected[user] += count * single[item]
    np.testing.assert_allclose(model.scores(everyone), expected, rtol=1e-4, atol=1e-5)
    if isinstance(model.table, GraphFilter):
        counts = recency_counts(log, 0.7)
        products = model.table._linear_by_products(log, everyone, counts)
        np.testing.assert_allclose(products, model.table._linear(log, everyone, counts), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("window", [1, 3, 50])
def test_a_window_counts_what_is_near_in_time(window: int) -> None:
    log = timed_log()
    times = np.nan_to_num(log.timestamps, nan=-1.0)
    together = np.zeros((14, 14))
    for user in range(log.n_users):
        own = sorted(np.flatnonzero(log.users == user), key=lambda n: (times[n], log.items[n]))
        for a, one in enumerate(own):
            for b, other in enumerate(own):
                if 0 < abs(a - b) <= window:
                    together[log.items[one], log.items[other]] += abs(a - b) ** -0.7 * len(own) ** -0.5
    popularity = np.maximum(log.popularity, 1) ** 0.3
    expected = together / (popularity[:, None] * popularity + 2)
    model = ItemKNN("all", 2, "cosine", 0.3, user_exponent=0.5, window=window).fit_pairs(log)
    alone = Interactions.from_pairs(range(14), range(14), n_users=14, n_items=14)
    np.testing.assert_allclose(model.table.scores(alone, np.arange(14)), expected, rtol=1e-5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
def test_a_folder_keeps_the_times(method: Baseline, tmp_path: Path) -> None:
    log = timed_log()
    model, users = method.fit_pairs(log), np.arange(log.n_users)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, ItemWeightModel)
    assert again.recency == 0.7
    assert torch.equal(again.scores(users), model.scores(users))
    # New users whose times are not known: all that they have counts the same.
    plain = Interactions.from_pairs(log.users, log.items, n_users=log.n_users, n_items=log.n_items)
    flat = model.having(recency=0.0)
    assert torch.equal(again.with_users(plain).scores(users), flat.scores(users))


@pytest.mark.parametrize(("method", "what"), [(ItemKNN(window=3), "window"), (GFCF(recency=1), "recency")])
def test_without_times_it_is_refused(method: Baseline, what: str) -> None:
    with pytest.raises(InputError, match=f"the {what} of {method.name} needs timestamps"):
        method.fit_pairs(Interactions.from_pairs([0, 0, 1], [0, 1, 1]))


@pytest.mark.parametrize("text", ["gfcf:recency=-1", "ease:recency=11", "itemknn:window=-1", "itemknn:recency=x"])
def test_bad_values_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


def test_the_recipe_finds_out_that_order_matters(tmp_path: Path) -> None:
    """Users who walk along a ring of items: what comes next is near what came last. Kept parts keep their recency."""
    random, rows = np.random.default_rng(0), []
    for user in range(150):
        place = random.integers(60)
        for step in range(14):
            place += random.integers(1, 4) if step != 7 else random.integers(60)  # half way they move elsewhere
            rows.append((user, place % 60, step))
    users, items, steps = np.array(rows).T
    log = Interactions.from_pairs(users, items, timestamps=steps.astype(float))
    rest, held = held_out_share(log, 0.15, "leave-last-out")
    model, final = Recipe(budget=2).settle(rest, held, 0, torch.device("cpu"), RunOptions(checkpoints=tmp_path))
    assert any(part.parameters().get("recency") for part in final.parts)
    again, _ = Recipe(budget=2).settle(rest, held, 0, torch.device("cpu"), RunOptions(checkpoints=tmp_path))
    first = {one["part"]: one["ndcg"] for one in model.info["tried"]}
    second = {one["part"]: one["ndcg"] for one in again.info["tried"]}
    assert first.items() <= second.items()
