"""The sharded engine: the same bits on any number of processes, and in the order of the batch those of one process."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.encoders import MF
from evenhand.methods import parse
from evenhand.objectives import softmax_relatives
from evenhand.objectives.softmax_relatives import SLatKLoss
from evenhand.training.engines.sharded import ShardedEngine
from evenhand.training.engines.spread_engine import spread_plan
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.training.trainer import Trainer
from evenhand.utils import keyed
from evenhand.utils.world import Blocks, World
from ranks import on_ranks

METHODS = ("rns", "pns", "fairstatic", "dns", "auc-ns:ecdf=16", "auc-ns:ecdf=16:alpha=auto", "auc-ns:pool=30:ecdf=16")
SHARED = (
    "softmax:shared=50", "psl:shared=50", "bsl:shared=50", "auc-softmax:shared=50",
    "softmax:shared=50:similarity=inner:positive=true:correction=true",
    "slatk:shared=50:refresh=1:k=5", "slatk:shared=50:refresh=1:k=5:similarity=inner:positive=true",
)  # fmt: skip
EPOCHS = 2


def log(users: int = 150, items: int = 120, pairs: int = 1500) -> Interactions:
    return simulate_log(users, items, pairs, seed=3)


def make(
    data: Interactions, method: str, engine: str, updates: str, seeds: tuple[int, ...] = (0, 7), batch: int = 768
) -> Trainer:
    held_out = data.take(np.arange(len(data)) % 10 == 0)
    train = data.take(np.arange(len(data)) % 10 > 0)
    settings = Settings(batch=batch, lr=0.01, l2=0.01, weight_decay=0.0, engine=engine, updates=updates)  # type: ignore[arg-type]
    found = parse(method)
    assert isinstance(found, Trained)
    hot = train.popularity >= np.quantile(train.popularity, 0.8)
    return Trainer(
        train, MF(dim=12), [found.sampler] * len(seeds), seeds, settings, torch.device("cpu"),
        hot=hot, held_out=held_out, objective=found.objective,
    )  # fmt: skip


def state_of(trainer: Trainer) -> dict[str, np.ndarray]:
    """The tables with Adam's memory and the tallies of the epochs; those of all ranks put together."""
    logs = []
    for epoch in range(EPOCHS):
        done = trainer.run_epoch(epoch)
        assert done is not None
        assert done.false_share is not None
        logs.append(np.stack([done.loss, done.hot_share, done.false_share]))
    found = {"log": np.stack(logs)}
    adam, world = trainer.optimisers[0], trainer.world
    for side, n in enumerate(sizes_of(trainer)):
        blocks = (Blocks.of_users if side == 0 else Blocks.of_items)(n, world.size)
        tables = {"rows": adam.parameters[side].detach(), "mean": adam.mean[side], "square": adam.square[side]}
        if adam.lazy:
            tables["clock"] = adam.clocks[side].unsqueeze(-1)
        for name, table in tables.items():
            found[f"{name}{side}"] = gathered(world, table, blocks)
    if isinstance(trainer.loss, SLatKLoss):
        assert trainer.loss.beta.any(1).all()
        users = Blocks.of_users(sizes_of(trainer)[0], world.size)
        found["beta"] = gathered(world, trainer.loss.beta.detach().unsqueeze(-1), users)
    return found


def sizes_of(trainer: Trainer) -> tuple[int, int]:
    return trainer.work.n_users, trainer.work.n_items


def gathered(world: World, table: torch.Tensor, blocks: Blocks) -> np.ndarray:
    if world.size == 1:
        return table.numpy().copy()
    parts = world.exchange([table.transpose(0, 1).contiguous()] * world.size)
    whole = np.empty((blocks.n, *parts[0].shape[1:]), dtype=parts[0].numpy().dtype)
    for rank, part in enumerate(parts):
        whole[blocks.mine(rank)] = part.numpy()
    return whole.swapaxes(0, 1)


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def on_a_rank(world: World, updates: str, ordered: bool, small: bool = False) -> dict[str, dict[str, np.ndarray]]:
    ShardedEngine.ordered = ordered
    try:
        data = log(5, 40, 120) if small else log()
        methods = METHODS if ordered else METHODS + SHARED
        return {method: state_of(make(data, method, "sharded", updates)) for method in methods}
    finally:
        ShardedEngine.ordered = False


@cache
def alone(updates: str, engine: str, small: bool = False) -> dict[str, dict[str, np.ndarray]]:
    data = log(5, 40, 120) if small else log()
    return {method: state_of(make(data, method, engine, updates)) for method in METHODS + SHARED}


@pytest.mark.parametrize("updates", ["sparse", "dense"])
def test_in_the_order_of_the_batch_every_bit_is_that_of_one_process(updates: str) -> None:
    answers = [on_a_rank(World.alone(), updates, True)]  # which compiles what the ranks will load
    sizes = (2, 3) if updates == "sparse" else (2,)
    answers += [answer for size in sizes for answer in on_ranks(size, on_a_rank, updates, True)]
    for answer in answers:
        for method, found in answer.items():
            expected = alone(updates, "auto")[method]
            for name in expected.keys() - {"log"}:
                assert np.array_equal(found[name], expected[name]), (method, name)
            assert np.allclose(found["log"], expected["log"], rtol=1e-8), method


def test_whole_sums_give_any_number_of_ranks_the_same_bits() -> None:
    expected = alone("sparse", "sharded")
    plain = alone("sparse", "auto")
    for size in (2, 3, 4):
        for answer in on_ranks(size, on_a_rank, "sparse", False):
            wrong = [method for method in METHODS + SHARED if not equal(answer[method], expected[method])]
            assert not wrong, (size, wrong)
    for method in METHODS + SHARED:
        for name in ("rows0", "rows1"):
            assert np.abs(expected[method][name] - plain[method][name]).max() < 1e-3, method
        assert np.allclose(expected[method]["log"], plain[method]["log"], rtol=1e-3)


def test_more_ranks_than_users_and_empty_ranks() -> None:
    expected = alone("dense", "sharded", small=True)
    for answer in on_ranks(4, on_a_rank, "dense", False, True):
        assert all(equal(answer[method], expected[method]) for method in METHODS + SHARED)


def edges_on_a_rank(world: World, pairs: int) -> np.ndarray:
    """β of all users, renewed in blocks of so many pairs, which makes some ranks ask more often than others."""
    before = softmax_relatives.PAIRS_AT_ONCE
    softmax_relatives.PAIRS_AT_ONCE = pairs
    try:
        trainer = make(log(1200, 300, 40_000), "slatk:shared=100:refresh=1:k=30", "sharded", "sparse")
        trainer.engine.refresh(1)
    finally:
        softmax_relatives.PAIRS_AT_ONCE = before
    loss = trainer.loss
    assert isinstance(loss, SLatKLoss)
    return gathered(world, loss.beta.detach().unsqueeze(-1), Blocks.of_users(1200, world.size))


def test_the_edge_of_a_user_depends_on_no_other_user() -> None:
    expected = edges_on_a_rank(World.alone(), softmax_relatives.PAIRS_AT_ONCE)
    assert np.array_equal(edges_on_a_rank(World.alone(), 700), expected)
    for answer in on_ranks(3, edges_on_a_rank, 700):
        assert np.array_equal(answer, expected)
    plain = make(log(1200, 300, 40_000), "slatk:shared=100:refresh=1:k=30", "auto", "sparse")
    plain.engine.refresh(1)
    assert isinstance(plain.loss, SLatKLoss)
    assert np.abs(plain.loss.beta.detach().numpy() - expected[..., 0]).max() < 1e-6


def order_on_a_rank(world: World, n: int) -> list[list[int]]:
    mine = torch.arange(n)[Blocks(n, 3, world.size).owner(torch.arange(n)) == world.rank]
    plan = spread_plan(world, (0, 5), 4, mine, 7)
    placed = torch.full((2, n), -1)
    for r in range(2):
        placed[r, plan.places[r]] = mine[plan.order[r]]
    return placed.tolist()


def test_the_order_of_an_epoch_is_that_of_one_process() -> None:
    n = 100
    keys = keyed.keys((0, 5), 4, 1)
    expected = keyed.permutations(keys, n)
    found = torch.tensor(on_ranks(3, order_on_a_rank, n))
    assert torch.equal(found.max(0).values, expected)
    assert ((found >= 0).sum(0) == 1).all()
    alone = torch.tensor(order_on_a_rank(World.alone(), n))
    assert torch.equal(alone, expected)
