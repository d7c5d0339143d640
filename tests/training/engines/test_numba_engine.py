"""The compiled engine against the plain one: the same draws, the same choices, the same steps."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.objectives import BPR, IPS, MACR, Objective
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.samplers.auc import EXACT_UP_TO
from evenhand.training import Settings
from evenhand.training.engines.numba_engine import NumbaEngine
from evenhand.training.settings import DENSE_UP_TO
from evenhand.training.trainer import Trainer
from evenhand.utils.errors import InputError

CPU = torch.device("cpu")
SAMPLERS: list[Sampler] = [
    UniformSampler(),
    PopularitySampler(),
    GroupSampler(),
    DynamicSampler(),
    DynamicSampler(candidates=1),
    AUCSampler(ecdf="exact"),
    AUCSampler(ecdf=16),
    AUCSampler(alpha=0.6, beta=0.5, gamma=0.8, candidates=3, probes=1, ecdf=1),
    AUCSampler(alpha=1, beta=1, gamma=1, candidates=7, probes=4, ecdf="exact"),
    AUCSampler(alpha="auto", ecdf=16),
    AUCSampler(ecdf=16, pool=20),
    AUCSampler(pool=3),
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


def loop(
    train: Interactions,
    sampler: Sampler | list[Sampler],
    how: Settings | list[Settings],
    seeds: list[int],
    encoder: Encoder | None = None,
    objective: Objective | None = None,
) -> Trainer:
    samplers = sampler if isinstance(sampler, list) else [sampler] * len(seeds)
    hot = np.arange(train.n_items) % 3 == 0
    few = min(2, train.n_users), min(2, train.n_items)
    held = Interactions.from_pairs(*np.nonzero(np.ones(few)), n_users=train.n_users, n_items=train.n_items)
    return Trainer(train, encoder or MF(dim=8), samplers, seeds, how, CPU, hot=hot, held_out=held, objective=objective)


def both(
    train: Interactions,
    sampler: Sampler | list[Sampler],
    how: Settings,
    seeds: list[int],
    dim: int = 8,
    objective: Objective | None = None,
) -> list[Trainer]:
    names: tuple[Any, Any] = ("torch", "auto")
    engines = [loop(train, sampler, replace(how, engine=name), seeds, MF(dim=dim), objective) for name in names]
    assert [one.engine.name for one in engines] == ["torch", "numba"]
    return engines


def assert_alike(plain: Trainer, fast: Trainer) -> None:
    for (name, mine), (_, theirs) in zip(fast.state().items(), plain.state().items(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-6, msg=lambda text, at=name: f"{at}: {text}")


def after(step: int, one: Trainer) -> Callable[[], bool]:
    """A pause once this many steps are made."""
    one.engine.stride = 1
    return lambda: one.step >= step


@pytest.mark.parametrize("updates", ["dense", "sparse"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_step_is_the_plain_engines_step(sampler: Sampler, updates: Any) -> None:
    """Chosen negatives enter loss, shares, gradients and so Adam's means: all of them must agree."""
    plain, fast = both(log(), sampler, Settings(batch=50, updates=updates), [3, 0, 11])
    for step in range(3):
        for one in (plain, fast):
            one.run_epoch(0, pause=after(step + 1, one))
        assert_alike(plain, fast)


@pytest.mark.parametrize("sampler", [UniformSampler(), DynamicSampler(), AUCSampler(ecdf=16)], ids=str)
def test_so_it_is_where_positives_weigh_differently(sampler: Sampler) -> None:
    plain, fast = both(log(), sampler, Settings(batch=50, l2=0.1), [3, 0], objective=IPS(smoothing=0.7))
    for epoch in range(2):
        done = [one.run_epoch(epoch) for one in (plain, fast)]
        np.testing.assert_allclose(done[1].loss, done[0].loss, rtol=1e-5)  # type: ignore[union-attr]
    assert_alike(plain, fast)


@given(
    sampler=st.sampled_from(SAMPLERS),
    n_users=st.integers(1, 9),
    n_items=st.integers(2, 9),
    batch=st.integers(1, 70),
    dim=st.integers(1, 9),
    replicas=st.sampled_from([1, 7]),
    updates=st.sampled_from(["dense", "sparse"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_any_size(
    sampler: Sampler,
    n_users: int,
    n_items: int,
    batch: int,
    dim: int,
    replicas: int,
    updates: Any,
    seed: int,
) -> None:
    """One user, one item left, a batch larger than the data: the first step of each is the same."""
    rng = np.random.default_rng(seed)
    liked = rng.random((n_users, n_items)) < 0.5
    liked[:, 0], liked[:, -1] = True, False
    if isinstance(sampler, (PopularitySampler, GroupSampler)):  # draw only what someone touched
        assume(n_users > 1)
        liked[0, -1] = True
    train = Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)
    how = Settings(batch=batch, updates=updates, lr=1e-3)
    plain, fast = both(train, sampler, how, list(range(replicas)), dim=dim)
    wanted, got = plain.run_epoch(0), fast.run_epoch(0)
    assert wanted is not None
    assert got is not None
    # Where two candidates are too close to call in single precision, one of several choices may differ.
    np.testing.assert_allclose(got.loss, wanted.loss, rtol=2e-3)
    assert got.false_share is not None
    if not isinstance(sampler, AUCSampler):
        np.testing.assert_allclose(got.hot_share, wanted.hot_share)
        np.testing.assert_allclose(got.false_share, wanted.false_share)


def epochs(running: Trainer, n: int = 2) -> tuple[torch.Tensor, ...]:
    for epoch in range(n):
        running.run_epoch(epoch)
    return tuple(tensor.clone() for tensor in running.state().values())


@pytest.mark.parametrize("updates", ["dense", "sparse"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_replica_is_a_run_of_its_own_on_any_number_of_threads(sampler: Sampler, updates: Any) -> None:
    how = Settings(batch=33, updates=updates)
    together = loop(log(), sampler, how, [5, 0, 9])
    epochs(together)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for place, seed in enumerate([5, 0, 9]):
            alone = loop(log(), sampler, how, [seed])
            epochs(alone)
            assert alone.engine.name == "numba"
            for mine, theirs in zip(alone.model.raw(), together.model.raw(), strict=True):
                assert torch.equal(mine[0], theirs[place])


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_replicas_may_differ_in_rate_decay_and_the_samplers_numbers(engine: Any) -> None:
    each = [
        Settings(batch=40, engine=engine),
        Settings(batch=40, engine=engine, lr=0.1),
        Settings(batch=40, engine=engine, weight_decay=0.3),
    ]
    samplers: list[Sampler] = [AUCSampler(), AUCSampler(alpha=1, beta=1), AUCSampler(alpha="auto", gamma=1)]
    together = loop(log(), samplers, each, [0, 1, 2])
    epochs(together)
    for r in range(3):
        alone = loop(log(), samplers[r], each[r], [r])
        epochs(alone)
        assert torch.equal(alone.model.users[0], together.model.users[r])


def test_settings_that_fix_the_shape_of_a_run_must_agree() -> None:
    with pytest.raises(InputError, match="may differ in lr, weight_decay and l2 only"):
        loop(log(), UniformSampler(), [Settings(batch=40), Settings(batch=41)], [0, 1])
    with pytest.raises(InputError, match="3 seeds need as many settings, but 2 were given"):
        loop(log(), UniformSampler(), [Settings(), Settings()], [0, 1, 2])


@pytest.mark.parametrize("updates", ["dense", "sparse"])
@pytest.mark.parametrize("sampler", [UniformSampler(), AUCSampler(alpha="auto", ecdf=16)], ids=str)
def test_a_resumed_run_is_the_same_to_the_bit(sampler: Sampler, updates: Any) -> None:
    how = Settings(batch=33, updates=updates)
    whole = epochs(loop(log(), sampler, how, [0, 4]), 3)
    first = loop(log(), sampler, how, [0, 4])
    first.run_epoch(0)
    assert first.run_epoch(1, pause=after(2, first)) is None
    kept = {name: tensor.clone() for name, tensor in first.state().items()}
    second = loop(log(), sampler, how, [0, 4])
    second.load_state(kept, first.step)
    for epoch in (1, 2):
        second.run_epoch(epoch)
    assert all(torch.equal(a, b) for a, b in zip(whole, second.state().values(), strict=True))


# ---- sparse updates


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_where_every_row_is_in_the_batch_lazy_adam_is_adam(engine: Any) -> None:
    """Two items, and users who have one of them: a batch of all pairs touches all rows there are."""
    train = Interactions.from_pairs([0, 1, 2], [0, 1, 0], n_users=3, n_items=2)
    how = Settings(batch=3, weight_decay=0.01, lr=0.05, engine=engine)
    dense = loop(train, UniformSampler(), replace(how, updates="dense"), [0, 1])
    lazy = loop(train, UniformSampler(), replace(how, updates="sparse"), [0, 1])
    epochs(dense, 30)
    epochs(lazy, 30)
    for mine, theirs in zip(lazy.model.raw(), dense.model.raw(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_rows_that_no_batch_touches_stay_as_they_are(engine: Any) -> None:
    train = Interactions.from_pairs([0, 1, 1], [0, 0, 1], n_users=4, n_items=50)
    running = loop(train, PopularitySampler(), Settings(batch=2, updates="sparse", engine=engine), [0])
    before = [table.detach().clone() for table in running.model.raw()]
    epochs(running, 3)
    moved = [(now != then).any(-1)[0] for now, then in zip(running.model.raw(), before, strict=True)]
    assert moved[0].tolist() == [True, False, False, False]  # of what others touched, user 1 has all
    assert moved[1].nonzero().flatten().tolist() == [0, 1]
    assert running.optimisers[0].clocks[0][0].tolist() == [3, 0, 0, 0]


def test_large_tables_are_updated_sparsely_by_default() -> None:
    """Above the stated size, and only where vectors are rows."""
    pairs, half = np.arange(30), DENSE_UP_TO // 2
    small = Interactions.from_pairs(pairs, pairs, n_users=half, n_items=half)
    large = Interactions.from_pairs(pairs, pairs, n_users=half + 1, n_items=half)

    def lazy(train: Interactions, how: Settings) -> bool:
        return loop(train, UniformSampler(), how, [0], MF(dim=1)).optimisers[0].lazy

    assert not lazy(small, Settings())
    assert lazy(large, Settings())
    assert not lazy(large, Settings(updates="dense"))
    assert not lazy(large, Settings().under("paper"))
    assert lazy(small, Settings(updates="sparse"))
    with pytest.raises(InputError, match="sparse updates need an encoder whose vectors are its rows"):
        loop(log(), UniformSampler(), Settings(updates="sparse"), [0], LightGCN(dim=2))


# ---- which engine


@pytest.mark.parametrize(
    ("sampler", "encoder", "objective", "how"),
    [
        (BalancedSampler(), MF(dim=4), BPR(), Settings()),
        (UniformSampler(), LightGCN(dim=4), BPR(), Settings()),
        (UniformSampler(), MF(dim=4), MACR(), Settings()),
        (UniformSampler(), MF(dim=4), BPR(), Settings(negatives=2)),
        (UniformSampler(), MF(dim=4), BPR(), Settings(engine="torch")),
    ],
    ids=str,
)
def test_the_plain_engine_does_the_rest(
    sampler: Sampler, encoder: Encoder, objective: Objective, how: Settings
) -> None:
    running = loop(log(), sampler, how, [0], encoder, objective)
    assert running.engine.name == "torch"
    assert running.run_epoch(0) is not None


def test_without_a_compiler_the_plain_engine_serves_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    import sys

    from evenhand.training import engines

    engines.numba_works.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert [loop(log(), UniformSampler(), Settings(), [0]).engine.name for _ in range(2)] == ["torch"] * 2
    said = [str(one.message) for one in recwarn if "numba" in str(one.message)]
    assert len(said) == 1
    assert said[0].startswith("numba does not work here (")
    assert said[0].endswith("training goes on with torch, slower.")
    engines.numba_works.cache_clear()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_process_trains_with_the_plain_engine() -> None:
    """OpenMP would end it without a word."""
    epochs(loop(log(), UniformSampler(), Settings(), [0]))
    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe(duplex=False)

    def child() -> None:
        running = loop(log(), UniformSampler(), Settings(), [0])
        epochs(running)
        theirs.send(running.engine.name)

    process = fork.Process(target=child)
    process.start()
    process.join(60)
    assert (process.exitcode, mine.recv()) == (0, "torch")


def test_above_a_stated_size_ranks_rest_on_draws() -> None:
    assert [AUCSampler().draws(n) for n in (EXACT_UP_TO, EXACT_UP_TO + 1)] == [0, 64]
    assert [AUCSampler(ecdf="exact").draws(10**7), AUCSampler(ecdf=5).draws(10)] == [0, 5]


def test_memory_does_not_grow_over_epochs() -> None:
    """Everything the engine works with is made once: arrays keep their places."""
    running = loop(log(), AUCSampler(ecdf=16), Settings(batch=33), [0, 1])
    engine = running.engine
    assert isinstance(engine, NumbaEngine)

    def places() -> list[int]:
        tables = [*engine._bench, *engine._tables, *engine._sides[0], *engine._sides[1]]
        return [table.ctypes.data for table in tables if isinstance(table, np.ndarray)]

    before = places()
    epochs(running, 3)
    assert places() == before


def test_idle_threads_sleep_early_in_torchs_library_too() -> None:
    """It reads the number when it is loaded, so importing evenhand sets it and does not load torch."""
    code = "import os, sys, evenhand; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    free = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=free)
    assert ended.stdout.split() == ["1000", "False"], ended.stderr
