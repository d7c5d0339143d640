"""On a GPU: the fused and the recorded engine against the plain one. Skipped where there is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.methods import METHODS, parse
from evenhand.samplers import AUCSampler, Sampler
from evenhand.training import Settings
from evenhand.training.trainer import Trainer

if not torch.cuda.is_available():
    pytest.skip("There is no GPU.", allow_module_level=True)

CUDA = torch.device("cuda")


def log(n_users: int = 60, n_items: int = 50) -> Interactions:
    rng = np.random.default_rng(0)
    liked = rng.random((n_users, n_items)) < 0.2
    liked[:, 0] |= ~liked.any(1)
    return Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)


def loop(method: str | list[Sampler], how: Settings, seeds: list[int], encoder: Encoder | None = None) -> Trainer:
    train = log()
    named = parse(method) if isinstance(method, str) else None
    objective = None if named is None else named.objective
    samplers = method if isinstance(method, list) else [parse(method).sampler] * len(seeds)
    hot = np.arange(train.n_items) < 10
    held = Interactions.from_pairs([0, 1], [3, 4], n_users=train.n_users, n_items=train.n_items)
    return Trainer(train, encoder or MF(dim=8), samplers, seeds, how, CUDA, hot=hot, held_out=held, objective=objective)


def epochs(running: Trainer, n: int) -> Trainer:
    for epoch in range(n):
        running.run_epoch(epoch)
    return running


def assert_close(mine: Trainer, theirs: Trainer) -> None:
    for a, b in zip(mine.model.raw(), theirs.model.raw(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8, layers=2)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("method", [*METHODS, "dns:candidates=20:top=4", "auc-ns:rule=exact:candidates=20:inside=4"])
def test_the_fast_engines_learn_what_the_plain_one_learns(method: str, encoder: Encoder) -> None:
    """Three epochs, the last batch of each incomplete, the learning rate falling once."""
    how = Settings(batch=64, lr=0.01, milestones=(2,))
    fast = loop(method, how, [0, 7, 3], encoder)
    plain = loop(method, replace(how, engine="torch"), [0, 7, 3], encoder)
    fused = method in ("rns", "pns", "dns", "fairstatic", "auc-ns") and type(encoder) is MF
    assert (fast.engine.name, plain.engine.name) == ("triton" if fused else "graph", "torch")
    for epoch in range(3):
        mine, theirs = fast.run_epoch(epoch), plain.run_epoch(epoch)
        assert mine is not None
        assert theirs is not None
        np.testing.assert_allclose(mine.loss, theirs.loss, rtol=1e-3)
        np.testing.assert_allclose(mine.hot_share, theirs.hot_share, atol=0.02)
    assert_close(fast, plain)


@pytest.mark.parametrize("updates", ["dense", "sparse"])
def test_fused_steps_repeat_to_the_bit_beside_any_replicas_and_when_resumed(updates: str) -> None:
    how = Settings(batch=64, updates=updates)  # type: ignore[arg-type]
    samplers: list[Sampler] = [AUCSampler(), AUCSampler(alpha=1, beta=0.5), AUCSampler(gamma=1)]
    together = epochs(loop(samplers, how, [0, 1, 2]), 3)
    for r in range(3):
        alone = epochs(loop([samplers[r]], how, [r]), 3)
        assert torch.equal(alone.model.users[0], together.model.users[r])
    first = epochs(loop(samplers, how, [0, 1, 2]), 1)
    first.engine.stride = 1
    assert first.run_epoch(1, pause=lambda: first.step >= 3) is None
    second = loop(samplers, how, [0, 1, 2])
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()}, first.step)
    second.run_epoch(1)
    second.run_epoch(2)
    assert torch.equal(second.model.items, together.model.items)


def test_automatic_alpha_is_recorded() -> None:
    how = Settings(batch=64)
    fast = loop([AUCSampler(alpha="auto")], how, [0])
    plain = loop([AUCSampler(alpha="auto")], replace(how, engine="torch"), [0])
    assert fast.engine.name == "graph"
    mine, theirs = epochs(fast, 2).run_epoch(2), epochs(plain, 2).run_epoch(2)
    assert mine is not None
    assert theirs is not None
    assert mine.sampler["alpha"] == pytest.approx(theirs.sampler["alpha"], rel=1e-4)
    assert mine.sampler["alpha"] != pytest.approx([0.5])


def test_exact_repeats_are_made_by_the_plain_engine_where_others_cannot() -> None:
    how = Settings(batch=64, deterministic=True)
    assert loop("rns", how, [0]).engine.name == "triton"
    assert loop("rns", how, [0], LightGCN(dim=4)).engine.name == "torch"
