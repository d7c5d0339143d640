"""L2 on the rows of a batch: its value and gradient, and what it does not depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.objectives import BPR, BCLoss, CausE, Objective
from evenhand.samplers import DynamicSampler, PopularitySampler, Sampler, UniformSampler
from evenhand.training import Settings
from evenhand.training.adam import add_gradient, penalty, weights
from evenhand.training.trainer import Trainer
from evenhand.utils.errors import InputError

P = torch.tensor([[1.0, 0], [0, 1], [1, 1]], dtype=torch.float64)
Q = torch.tensor([[1.0, 1], [2, 0], [0, 3], [1, -1], [-1, 2]], dtype=torch.float64)
USERS, POSITIVES, NEGATIVES = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 2, 3]]), torch.tensor([[[2], [1], [4]]])


def log(n_users: int = 30, n_items: int = 23, density: float = 0.3) -> Interactions:
    liked = np.random.default_rng(0).random((n_users, n_items)) < density
    liked[:, 0] |= ~liked.any(1)
    return Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)


def loop(
    how: Settings | list[Settings],
    train: Interactions | None = None,
    sampler: Sampler | None = None,
    encoder: Encoder | None = None,
    objective: Objective | None = None,
    seeds: tuple[int, ...] = (0,),
) -> Trainer:
    train = log() if train is None else train
    samplers = [sampler or UniformSampler()] * len(seeds)
    hot = np.zeros(train.n_items, dtype=bool)
    where = torch.device("cpu")
    return Trainer(train, encoder or MF(dim=6), samplers, seeds, how, where, hot=hot, objective=objective)


def test_value_and_gradient_of_a_worked_batch() -> None:
    p, q = P.clone().requires_grad_(), Q.clone().requires_grad_()
    value = 0.1 * penalty(p[USERS], q[POSITIVES], q[NEGATIVES])
    assert value.item() == pytest.approx(0.583333, abs=1e-6)
    value.sum().backward()
    assert q.grad is not None
    assert p.grad is not None
    assert q.grad[2].tolist() == pytest.approx([0, 0.2])
    assert q.grad[4].tolist() == pytest.approx([-0.033333, 0.066667], abs=1e-6)
    assert p.grad[0].tolist() == pytest.approx([0.033333, 0], abs=1e-6)


@pytest.mark.parametrize("shape", [(2, 9, 1), (2, 9, 4), (2, 1, 5)], ids=["one", "four", "shared"])
def test_the_gradient_is_that_of_the_value(shape: tuple[int, ...]) -> None:
    """Also for several negatives and for negatives that the batch shares; replicas have their own λ."""
    model = MF(dim=4).start(log(), [0, 1], "cpu")
    draw = torch.Generator().manual_seed(0)
    users, positives = (torch.randint(23, (2, 9), generator=draw) for _ in range(2))
    negatives = torch.randint(23, shape, generator=draw)
    each = torch.arange(2).view(2, 1)
    value = penalty(model.users[each, users], model.items[each, positives], model.items[each.unsqueeze(-1), negatives])
    wanted = torch.autograd.grad((value * torch.tensor([0.5, 2.0])).sum(), [model.users, model.items])
    loss = BPR().start(log(), model, [0, 1])
    for table in (model.users, model.items):
        table.grad = torch.ones_like(table)
    add_gradient(model, loss, [0.5, 2.0], users, positives, negatives)
    for table, expected in zip((model.users, model.items), wanted, strict=True):
        torch.testing.assert_close(table.grad, 1 + expected)


def test_a_row_weighs_what_its_share_of_the_draws_is() -> None:
    assert weights(torch.tensor([[0, 2, 2, 0], [1, 1, 1, 1]]), 3).tolist() == [[0.5, 0, 0.5], [0, 1, 0]]


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("updates", ["dense", "sparse"])
def test_a_row_that_is_not_in_the_batch_does_not_move(engine: Any, updates: Any) -> None:
    """Item 9 and user 3 are in no pair, and popularity never draws them: even a huge λ leaves them alone."""
    train = Interactions.from_pairs([0, 1, 2, 0], [0, 1, 2, 2], n_users=4, n_items=10)
    how = Settings(batch=2, l2=100.0, weight_decay=0.0, engine=engine, updates=updates)
    running = loop(how, train, PopularitySampler())
    before = [table.detach().clone() for table in running.model.raw()]
    running.run_epoch(0)
    assert torch.equal(running.model.items[0, 9], before[1][0, 9])
    assert torch.equal(running.model.users[0, 3], before[0][0, 3])
    assert (running.model.items[0, :3] != before[1][0, :3]).all()


@pytest.mark.parametrize("updates", ["dense", "sparse"])
@pytest.mark.parametrize("sampler", [UniformSampler(), DynamicSampler()], ids=str)
def test_engines_agree_and_replicas_have_their_own(sampler: Sampler, updates: Any) -> None:
    each = [Settings(batch=40, l2=l2, weight_decay=0.0, lr=0.01, updates=updates) for l2 in (0.0, 0.5, 20.0)]
    fast = loop(each, sampler=sampler, seeds=(0, 1, 2))
    plain = loop([replace(one, engine="torch") for one in each], sampler=sampler, seeds=(0, 1, 2))
    assert (fast.engine.name, plain.engine.name) == ("numba", "torch")
    for epoch in range(2):
        fast.run_epoch(epoch)
        plain.run_epoch(epoch)
    for mine, theirs in zip(fast.model.raw(), plain.model.raw(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-4)
    for r, one in enumerate(each):
        alone = loop(one, sampler=sampler, seeds=(r,))
        for epoch in range(2):
            alone.run_epoch(epoch)
        assert torch.equal(alone.model.items[0], fast.model.items[r])


def test_lightgcn_shrinks_its_raw_rows_and_cause_both_item_tables() -> None:
    for how, sizes in ((Settings(batch=20, l2=0.0), []), (Settings(batch=20, l2=5.0), [])):
        for encoder, objective in ((LightGCN(dim=6, layers=1), BPR()), (MF(dim=6), CausE())):
            running = loop(replace(how, weight_decay=0.0, lr=0.02), encoder=encoder, objective=objective)
            for epoch in range(8):
                running.run_epoch(epoch)
            tables = [*running.model.raw(), *running.loss.item_tables()]
            sizes += [float(table.detach().norm()) for table in tables]
        free = sizes if how.l2 == 0 else free  # noqa: F821
    assert len(sizes) == 5
    assert all(small < 0.5 * large for small, large in zip(sizes, free, strict=True))


def test_the_optimum_is_the_same_at_any_batch_size() -> None:
    """With the users held still the loss is convex in the items, and its one optimum is what a run ends at.

    Each user lacks one item, which so is every negative of theirs: nothing but the batches is random.
    """
    has = np.ones((160, 28), dtype=bool)
    has[np.arange(160), np.arange(160) % 28] = False
    train = Interactions.from_pairs(*np.nonzero(has), n_users=160, n_items=28)
    assert len(train) > 4096

    def optimum(batch: int) -> torch.Tensor:
        steps = -(-len(train) // batch)
        epochs = -(-600 // steps)
        how = Settings(batch=batch, lr=0.02, l2=0.1, weight_decay=0.0, milestones=(epochs // 3, 2 * epochs // 3))
        running = loop(replace(how, engine="torch"), train, encoder=MF(dim=3))
        with torch.no_grad():
            running.model.users.normal_(generator=torch.Generator().manual_seed(1))
        running.model.users.requires_grad_(False)
        for epoch in range(epochs):
            running.run_epoch(epoch)
        return running.model.items.detach()[0]

    small, large = optimum(256), optimum(4096)
    assert large.norm() > 0.3
    assert (small - large).norm() < 0.05 * large.norm()


def test_which_form_is_used() -> None:
    """The honest protocol takes L2 on a batch's rows, the paper's and whoever gives a weight decay the coupled one."""

    def used(how: Settings, protocol: Any = "honest", objective: Objective | None = None) -> tuple[Any, Any]:
        filled = how.under(protocol, MF(), log(), objective or BPR())
        return filled.l2, filled.weight_decay

    assert used(Settings()) == (MF.l2, 0.0)
    assert used(Settings(), objective=BCLoss()) == (0.0, 0.0)
    assert used(Settings(l2=0.5)) == (0.5, 0.0)
    assert used(Settings(l2=0.5), objective=BCLoss()) == (0.5, 0.0)
    assert used(Settings(weight_decay=0.5)) == (0.0, 0.5)
    assert used(Settings(weight_decay=0.0)) == (0.0, 0.0)
    assert used(Settings(weight_decay=0.5, l2=0.25)) == (0.25, 0.5)
    assert used(Settings(), "paper") == (0.0, MF.weight_decay)
    assert used(Settings(l2=0.5), "paper") == (0.5, MF.weight_decay)
    assert Settings().under("honest", MF()).l2 is None


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_wrong_strength_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="l2 must be a number of at least 0"):
        Settings(l2=wrong)
