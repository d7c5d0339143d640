"""Weights of a blend: the value against plain loops, and what found weights must be."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.baselines import ALS, EASE, ItemKNN, Popular
from evenhand.baselines.ensemble import K, Shortlists, evaluated_users, found_weights
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.splits import held_out_share
from evenhand.models.blend_model import BlendModel
from evenhand.training.evaluation import Evaluator


@pytest.fixture(scope="module")
def parts() -> tuple[Interactions, Interactions]:
    return held_out_share(simulate_log(80, 60, 2400, seed=1), 0.2)


@pytest.fixture(scope="module")
def lists(parts: tuple[Interactions, Interactions]) -> Shortlists:
    rest, held = parts
    return Shortlists.of(models(rest), rest, held)


def models(rest: Interactions) -> list:
    return [EASE(l2=20).fit_pairs(rest), ALS(factors=4).fit_pairs(rest), Popular(log=True).fit_pairs(rest)]


def test_the_value_is_the_ndcg_of_the_blends_lists(parts: tuple[Interactions, Interactions], lists: Shortlists) -> None:
    rest, held = parts
    weights = (0.6, 0.3, -0.1)
    total = torch.einsum("p,puc->uc", torch.tensor(weights), lists.scores)
    recs = BlendModel(tuple(models(rest)), weights, known=rest).recommend(k=K)
    wanted = {u: set(held.items[held.users == u].tolist()) for u in np.unique(held.users)}
    place = {name: n for n, name in enumerate(rest.user_ids.to_pylist())}
    item = {name: n for n, name in enumerate(rest.item_ids.to_pylist())}
    found: dict[int, float] = dict.fromkeys(wanted, 0.0)
    for row in recs.to_pylist():
        user = place[row["user"]]
        if user in wanted and item[row["item"]] in wanted[user]:
            found[user] += 1 / math.log2(row["rank"] + 1)
    values = [found[u] / sum(1 / math.log2(n + 2) for n in range(min(K, len(w)))) for u, w in wanted.items()]
    assert lists.value(total) == pytest.approx(np.mean(values), abs=1e-6)


def test_exposure_is_the_share_of_slots_over_the_share_of_pairs(
    parts: tuple[Interactions, Interactions], lists: Shortlists
) -> None:
    rest, held = parts
    head = set(np.argsort(-rest.popularity, kind="stable")[: rest.n_items // 10].tolist())
    recs = BlendModel(tuple(models(rest)), (1.0, 0.0, 0.0), known=rest).recommend(k=K).to_pylist()
    users = set(rest.user_ids.take(np.unique(held.users)).to_pylist())
    item = {name: n for n, name in enumerate(rest.item_ids.to_pylist())}
    shown = [item[row["item"]] in head for row in recs if row["user"] in users]
    demand = sum(int(rest.popularity[i]) for i in head) / len(rest)
    assert lists.ratio((1.0, 0.0, 0.0)) == pytest.approx(np.mean(shown) / demand, abs=1e-9)


def _drawn(seed: int, parts: int = 3, users: int = 30, items: int = 40) -> Shortlists:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(parts, users, items, generator=generator)
    wanted = torch.rand(users, items, generator=generator) < 0.1
    wanted[:, 0] = True
    ideal = torch.tensor([sum(1 / math.log2(n + 2) for n in range(min(K, int(w.sum())))) for w in wanted])
    head = torch.zeros(users, items, dtype=torch.bool)
    head[:, :4] = True
    return Shortlists(scores, wanted, torch.zeros(users, items, dtype=torch.bool), head, ideal.double(), 0.4, users)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_weights_are_never_worse_than_the_best_part_and_no_small_step_gains(seed: int) -> None:
    lists = _drawn(seed)
    weights, value = found_weights(lists, [False, False, True])
    assert sum(map(abs, weights)) == pytest.approx(1, abs=1e-5)
    assert min(weights[:2]) >= 0
    assert value >= max(lists.value(one) for one in lists.scores[:2])
    total = torch.einsum("p,puc->uc", torch.tensor(weights), lists.scores)
    assert lists.value(total) == pytest.approx(value, abs=1e-3)  # weights are written with six digits


def test_noise_beside_the_truth_gets_nothing() -> None:
    lists = _drawn(1, parts=2)
    lists.scores[1] = lists.wanted.float()
    weights, value = found_weights(lists, [False, False])
    assert weights == (0.0, 1.0)
    assert value == pytest.approx(1)


def test_popularity_can_be_taken_out() -> None:
    lists = _drawn(2, parts=2)
    bias = torch.randn(lists.scores.shape[-1], generator=torch.Generator().manual_seed(5))
    lists.scores[0] = lists.wanted.float() + 2 * bias
    lists.scores[1] = bias.expand_as(lists.scores[1])
    plain, _ = found_weights(lists, [False, False])
    signed, value = found_weights(lists, [False, True])
    assert plain[1] == 0
    assert signed[1] < 0
    assert value == pytest.approx(1)


def test_a_limit_on_exposure_is_kept_where_a_part_can_keep_it() -> None:
    lists = _drawn(3, parts=2)
    lists.scores[0] = lists.wanted.float() + 3 * lists.head.float()
    lists.scores[1] = -lists.head.float()
    weights, _ = found_weights(lists, [False, False], limit=0.4)
    assert lists.ratio((1.0, 0.0)) == pytest.approx(0.5)
    assert lists.ratio(weights) <= 0.4


def test_a_sample_of_users_is_always_the_same(parts: tuple[Interactions, Interactions]) -> None:
    held = parts[1]
    some = evaluated_users(held, 10)
    assert len(some) == 10
    assert (some == evaluated_users(held, 10)).all()
    assert not (some == np.flatnonzero(held.activity > 0)[:10]).all()
    assert len(evaluated_users(held, 10**6)) == int((held.activity > 0).sum())


def test_a_part_that_counts_against_items_is_seen_to_lift_what_nobody_lists() -> None:
    """Popularity with a negative weight puts rare items forward; what the weights were found to be worth is what
    lists over the whole catalogue are worth."""
    log = simulate_log(150, 400, 3000, seed=3)
    rest, held = held_out_share(log, 0.2)
    parts = [ItemKNN(300, 0, "gram", item_exponent=0.3).fit_pairs(rest), Popular(log=True).fit_pairs(rest)]
    weights = (0.45, -0.55)
    blend = BlendModel(tuple(parts), weights, known=rest)  # type: ignore[arg-type]
    seen = Evaluator(held, rest, np.zeros(rest.n_items, dtype=bool), (20,))
    whole = seen.evaluate([blend.scorer(0)])[0][20].mean("ndcg")
    values = []
    for signed in ((False, True), (False, False)):
        lists = Shortlists.of(parts, rest, held, signed)
        values.append(lists.value(torch.einsum("p,puc->uc", torch.tensor(weights), lists.scores)))
    assert values[0] == pytest.approx(whole, abs=0.005)
    assert values[1] > whole + 0.02  # without them it looked better than it is
