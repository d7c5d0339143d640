"""The sharded engine of GPUs, on CPUs: one code for all devices, the same bits on any number of processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_sharded import METHODS, SHARED, alone, equal, log, make, state_of

from evenhand.training import engines
from evenhand.training.engines.sharded_torch import ShardedTorchEngine
from evenhand.training.engines.spread_engine import from_units, in_units
from evenhand.utils import world as world_module
from evenhand.utils.world import World
from ranks import on_ranks

ALL = METHODS + SHARED


def on_a_rank(world: World, updates: str, small: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """What the engine of GPUs makes of a log."""
    before = dict(engines.ENGINES)
    try:
        engines.ENGINES["sharded"] = engines.Kind("sharded_torch", "ShardedTorchEngine", before["sharded"].serves)
        kind = engines.Kind("sharded_torch", "ShardedTorchSoftmaxEngine", before["sharded-softmax"].serves)
        engines.ENGINES["sharded-softmax"] = kind
        data = log(5, 40, 120) if small else log()
        found = {}
        for method in ALL:
            trainer = make(data, method, "sharded", updates)
            assert isinstance(trainer.engine, ShardedTorchEngine)
            found[method] = state_of(trainer)
        return found
    finally:
        engines.ENGINES.update(before)


def to_itself(world: World, updates: str) -> dict[str, dict[str, np.ndarray]]:
    """One process whose messages all go the way of several."""
    World.sends_to_itself, world_module._current = True, None
    assert not World.from_environment().lone
    return on_a_rank(world, updates)


@pytest.mark.parametrize("updates", ["sparse", "dense"])
def test_any_number_of_ranks_gives_the_same_bits_near_those_of_one_process(updates: str) -> None:
    expected, plain = on_a_rank(World.alone(), updates), alone(updates, "auto")
    for size in (2, 3, 4) if updates == "sparse" else (2,):
        for answer in on_ranks(size, on_a_rank, updates):
            assert [method for method in ALL if not equal(answer[method], expected[method])] == [], size
    if updates == "sparse":
        (answer,) = on_ranks(1, to_itself, updates)
        assert [method for method in ALL if not equal(answer[method], expected[method])] == []
    for method in ALL:
        for name in ("rows0", "rows1", "mean1", "square1"):
            assert np.abs(expected[method][name] - plain[method][name]).max() < 1e-3, (method, name)
        assert np.allclose(expected[method]["log"], plain[method]["log"], rtol=1e-3), method


def test_more_ranks_than_users() -> None:
    expected = on_a_rank(World.alone(), "dense", True)
    for answer in on_ranks(4, on_a_rank, "dense", True):
        assert all(equal(answer[method], expected[method]) for method in ALL)


def test_units_keep_what_float32_says_and_add_up_in_any_order() -> None:
    values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * 1e-3
    assert torch.equal(from_units(in_units(values)), values)
    order = torch.randperm(1000)
    assert torch.equal(in_units(values).sum(0), in_units(values)[order].sum(0))
    assert in_units(torch.tensor([torch.nan, 1e9])).tolist() == [0, 2**62]
