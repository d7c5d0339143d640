"""The fused steps over processes: the same bits for any number of them, near those of one; in Triton's interpreter."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

if not find_spec("triton"):
    pytest.skip("Triton is not installed.", allow_module_level=True)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from test_sharded import equal, log, make, state_of

from evenhand.training import engines
from evenhand.training.engines.fused_tables import message_length
from evenhand.training.engines.triton_ranks import TritonRanksEngine
from evenhand.training.estimates import wire_of
from evenhand.utils import world as world_module
from evenhand.utils.world import World
from ranks import on_ranks

METHODS = ("rns", "pns", "fairstatic", "dns", "auc-ns:ecdf=16")


def on_a_rank(world: World, updates: str, small: bool = False) -> dict[str, dict[str, np.ndarray]]:
    os.environ["TRITON_INTERPRET"] = "1"
    before = dict(engines.ENGINES)
    try:
        kind = engines.Kind("triton_ranks", "TritonRanksEngine", lambda work: work.ranks > 0)
        engines.ENGINES.clear()
        engines.ENGINES["triton-ranks"] = kind
        return states("sharded", updates, small)
    finally:
        engines.ENGINES.clear()
        engines.ENGINES.update(before)


def states(engine: str, updates: str, small: bool) -> dict[str, dict[str, np.ndarray]]:
    data, found = log(3, 20, 36) if small else log(24, 20, 120), {}
    for method in METHODS:
        trainer = make(data, method, engine, updates, batch=48)
        assert isinstance(trainer.engine, TritonRanksEngine) == (engine == "sharded")
        found[method] = state_of(trainer)
    return found


def to_itself(world: World, updates: str) -> dict[str, dict[str, np.ndarray]]:
    """One process whose messages all go the way of several."""
    World.sends_to_itself, world_module._current = True, None
    assert not World.from_environment().lone
    return on_a_rank(world, updates)


@pytest.mark.parametrize("updates", ["sparse", "dense"])
def test_any_number_of_ranks_gives_the_same_bits_near_those_of_one_process(updates: str) -> None:
    expected, plain = on_a_rank(World.alone(), updates), states("auto", updates, False)
    for size in (2, 3) if updates == "sparse" else (2,):
        for answer in on_ranks(size, on_a_rank, updates):
            assert [method for method in METHODS if not equal(answer[method], expected[method])] == [], size
    if updates == "sparse":
        (answer,) = on_ranks(1, to_itself, updates)
        assert [method for method in METHODS if not equal(answer[method], expected[method])] == []
    for method in METHODS:
        for name in ("rows0", "rows1", "mean1", "square1"):
            assert np.abs(expected[method][name] - plain[method][name]).max() < 1e-3, (method, name)
        assert np.allclose(expected[method]["log"], plain[method]["log"], rtol=1e-3), method


def test_what_a_positive_says_to_all_is_what_explain_says() -> None:
    work = replace(make(log(24, 20, 120), "dns", "sharded", "sparse", batch=48).work, ranks=3)
    work.__dict__["engine"] = "triton-ranks"
    wire = wire_of(work, np.ones(20))
    assert (wire.positives, wire.rows, wire.bytes) == (16, 0, 2 * 2 * 4 * message_length(12))
    assert message_length(64) == 72
    assert work.needs()["rows on their way"] >= 2 * 20 * 12 * 20


def test_more_ranks_than_users() -> None:
    expected = on_a_rank(World.alone(), "dense", True)
    for answer in on_ranks(4, on_a_rank, "dense", True):
        assert all(equal(answer[method], expected[method]) for method in METHODS)
