"""The CPU engine for shared negatives against the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF, LightGCN
from evenhand.objectives import BSL, PSL, AUCSoftmax, SLatK, Softmax
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.training import Settings
from evenhand.training.trainer import Trainer
from evenhand.utils.errors import InputError

FAMILY = [
    Softmax(shared=50),
    Softmax(shared=33, positive=True, similarity="inner", temperature=1.0),
    Softmax(shared=33, correction=True, positive=True),
    PSL(shared=20),
    PSL(shared=20, activation="tanh", correction=True),
    BSL(shared=40, negative_weight=1.3),
    SLatK(shared=30, k=3, refresh=1),
    AUCSoftmax(shared=60, beta=0.3, alpha=0.9),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def log(seed: int = 0, n_users: int = 40, n_items: int = 37, density: float = 0.25) -> Interactions:
    rng = np.random.default_rng(seed)
    liked = rng.random((n_users, n_items)) < density
    liked[np.arange(n_users), rng.integers(n_items, size=n_users)] = True
    return Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)


def trainer(
    of: Softmax, how: Settings | list[Settings], seeds: list[int], train: Interactions | None = None, **more: Any
) -> Trainer:
    train = log() if train is None else train
    hot = np.arange(train.n_items) % 3 == 0
    few = min(5, train.n_users), min(5, train.n_items)
    held = Interactions.from_pairs(*np.nonzero(np.ones(few)), n_users=train.n_users, n_items=train.n_items)
    sampler: Sampler = more.pop("sampler", UniformSampler())
    encoder = more.pop("encoder", MF(dim=8))
    samplers, cpu = [sampler] * len(seeds), torch.device("cpu")
    return Trainer(train, encoder, samplers, seeds, how, cpu, hot=hot, held_out=held, objective=of)


def run(one: Trainer, epochs: int = 2) -> Trainer:
    for epoch in range(epochs):
        one.run_epoch(epoch)
    return one


@pytest.mark.parametrize(
    ("sampler", "updates"), [(UniformSampler(), "dense"), (PopularitySampler(), "sparse")], ids=str
)
@pytest.mark.parametrize("of", FAMILY, ids=str)
def test_it_learns_what_the_plain_engine_learns(of: Softmax, sampler: Sampler, updates: Any) -> None:
    """Loss, shares, vectors, Adam's means and squares, and the quantiles of SL@K; each replica with its own λ."""
    each = [Settings(batch=50, updates=updates, lr=lr, l2=l2) for lr, l2 in ((1e-3, 0.0), (2e-3, 0.3))]
    fast = trainer(of, each, [3, 0], sampler=sampler)
    plain = trainer(of, [replace(one, engine="torch") for one in each], [3, 0], sampler=sampler)
    assert (fast.engine.name, plain.engine.name) == ("rows", "torch")
    for epoch in range(2):
        mine, theirs = fast.run_epoch(epoch), plain.run_epoch(epoch)
        assert mine is not None
        assert theirs is not None
        np.testing.assert_allclose(mine.loss, theirs.loss, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mine.hot_share, theirs.hot_share)
        assert mine.false_share is not None
        assert theirs.false_share is not None
        np.testing.assert_allclose(mine.false_share, theirs.false_share)
    for (name, a), (_, b) in zip(fast.state().items(), plain.state().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-5, msg=lambda text, at=name: f"{at}: {text}")


@given(
    of=st.sampled_from(FAMILY),
    shared=st.integers(1, 30),
    n_users=st.integers(1, 9),
    n_items=st.integers(2, 9),
    batch=st.integers(1, 70),
    dim=st.integers(2, 9),  # the cosine of two numbers has no gradient, only rounding
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_any_size(of: Softmax, shared: int, n_users: int, n_items: int, batch: int, dim: int, seed: int) -> None:
    """One user, one item left, all negatives masked, a batch larger than the data."""
    liked = np.random.default_rng(seed).random((n_users, n_items)) < 0.5
    liked[:, 0], liked[:, -1] = True, False
    train = Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)
    how = Settings(batch=batch, lr=1e-4)
    losses = []
    for engine in ("auto", "torch"):
        one = trainer(replace(of, shared=shared), replace(how, engine=engine), [0], train, encoder=MF(dim=dim))
        done = one.run_epoch(0)
        assert done is not None
        losses.append(done.loss)
    np.testing.assert_allclose(*losses, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("of", FAMILY, ids=str)
def test_a_replica_is_a_run_of_its_own_on_any_number_of_threads(of: Softmax) -> None:
    how = Settings(batch=33)
    together = run(trainer(of, how, [5, 0]))
    for threads in (1, 2):
        torch.set_num_threads(threads)
        alone = run(trainer(of, how, [0]))
        for mine, theirs in zip(alone.model.raw(), together.model.raw(), strict=True):
            assert torch.equal(mine[0], theirs[1])


@pytest.mark.parametrize("of", FAMILY, ids=str)
def test_a_resumed_run_is_the_same_to_the_bit(of: Softmax) -> None:
    how = Settings(batch=33, updates="sparse")
    whole = run(trainer(of, how, [0, 4]), 3)
    first = run(trainer(of, how, [0, 4]), 1)
    first.engine.stride = 1
    assert first.run_epoch(1, pause=lambda: first.step >= 2) is None
    second = trainer(of, how, [0, 4])
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()}, first.step)
    for epoch in (1, 2):
        second.run_epoch(epoch)
    assert all(torch.equal(a, b) for a, b in zip(whole.state().values(), second.state().values(), strict=True))


@pytest.mark.parametrize("of", FAMILY, ids=str)
def test_lightgcn_is_for_the_plain_engine(of: Softmax) -> None:
    one = trainer(of, Settings(batch=64, l2=0.1), [0, 1], encoder=LightGCN(dim=4))
    assert one.engine.name == "torch"
    before = [table.detach().clone() for table in one.model.raw()]
    log_ = one.run_epoch(0)
    assert log_ is not None
    assert np.isfinite(log_.loss).all()
    assert all((now != then).any() for now, then in zip(one.model.raw(), before, strict=True))


@pytest.mark.parametrize("sampler", [DynamicSampler(), GroupSampler(), BalancedSampler(), AUCSampler()], ids=str)
def test_a_sampler_that_chooses_for_each_positive_is_refused(sampler: Sampler) -> None:
    with pytest.raises(InputError, match="draws its negatives once for a whole batch, and this sampler"):
        trainer(Softmax(), Settings(), [0], sampler=sampler)


def test_rows_start_at_the_size_that_lr_is_meant_for() -> None:
    for of, wanted in ((Softmax(), 0.02), (Softmax(similarity="inner"), (2 / (400 + 8)) ** 0.5)):
        one = trainer(of, Settings(), [0], log(n_users=400, n_items=400))
        for table in one.model.raw():
            assert table.detach().std().item() == pytest.approx(wanted, rel=0.1)
