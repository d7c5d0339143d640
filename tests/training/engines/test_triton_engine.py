"""The fused GPU steps against plain torch, step by step; without a GPU they run in Triton's interpreter."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

CUDA = torch.cuda.is_available()
if not find_spec("triton"):
    pytest.skip("Triton is not installed.", allow_module_level=True)
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"

from evenhand.data.interactions import Interactions  # noqa: E402
from evenhand.samplers.auc import AUCSampler  # noqa: E402
from evenhand.samplers.base import Batch, Sampler, bind, rows  # noqa: E402
from evenhand.samplers.dynamic import DynamicSampler  # noqa: E402
from evenhand.samplers.static import GroupSampler, PopularitySampler, UniformSampler  # noqa: E402
from evenhand.training.adam import penalty  # noqa: E402
from evenhand.training.engines.fused_tables import Table, distribution_and_rule  # noqa: E402
from evenhand.training.engines.triton_engine import FusedSteps  # noqa: E402
from evenhand.utils import keyed  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
SAMPLERS: dict[str, Sampler] = {
    "rns": UniformSampler(),
    "pns": PopularitySampler(0.75),
    "dns": DynamicSampler(5),
    "fair": GroupSampler(shares=(0.6, 0.4)),
    "auc": AUCSampler(alpha=0.8, beta=0.05, gamma=0.3, candidates=3, probes=2, ecdf="exact"),
    "auc-sampled": AUCSampler(alpha=0.8, beta=0.05, gamma=0.3, candidates=5, probes=3, ecdf=7),
}


def log(n_users: int, n_items: int, density: float, seed: int = 0) -> Interactions:
    """Random pairs with some very popular items; every user keeps an item untouched."""
    chance = np.random.default_rng(seed)
    seen = chance.random((n_users, n_items)) < density * (1 + 3 / (1 + np.arange(n_items)))
    seen[:, -1] = False
    seen[:, 0] |= ~seen.any(1)
    users, items = np.nonzero(seen)
    return Interactions.from_pairs(users, items, n_users=n_users, n_items=n_items)


def on_device(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


class Plain:
    """One step in plain torch: the samplers' own choice, autograd, and Adam written out in float64."""

    def __init__(self, setup: Setup) -> None:
        self.s = setup
        self.tables = [t.clone().double() for t in setup.start]
        self.mean = [torch.zeros_like(t) for t in self.tables]
        self.square = [torch.zeros_like(t) for t in self.tables]
        self.clock = [torch.zeros(t.shape[:2], dtype=torch.int32, device=DEVICE) for t in self.tables]

    def step(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        s = self.s
        chosen = s.order[:, step * s.batch : (step + 1) * s.batch]
        users, positives = s.pair_users[chosen], s.pair_items[chosen]
        single = [t.float() for t in self.tables]
        negatives = s.bound.choose(
            Batch(
                users=users,
                positives=positives,
                uniforms=keyed.uniforms(s.own[:, step], users.shape[1], s.bound.width(1)),
                shared=keyed.uniforms(s.shared[:, step], s.bound.shared_width),
                user_vectors=single[0],
                item_vectors=single[1],
            )
        ).squeeze(-1)
        live = [t.clone().requires_grad_() for t in self.tables]
        user, positive, negative = rows(live[0], users), rows(live[1], positives), rows(live[1], negatives)
        loss = softplus((user * negative).sum(-1) - (user * positive).sum(-1)).mean(1)
        pull = s.l2 * penalty(user, positive, negative.unsqueeze(2))
        gradients = torch.autograd.grad((loss + pull).sum(), live)
        for i, touched in enumerate((users, torch.cat([positives, negatives], 1))):
            self._adam(i, gradients[i], touched)
        hot = s.hot[negatives].double().mean(1)
        false = torch.isin(users * s.train.n_items + negatives, s.held_out).double().mean(1)
        return torch.stack([loss.detach(), hot, false]), negatives

    def _adam(self, i: int, gradient: torch.Tensor, touched: torch.Tensor) -> None:
        s, p, mean, square = self.s, self.tables[i], self.mean[i], self.square[i]
        moved = torch.ones(p.shape[:2], dtype=torch.bool, device=DEVICE)
        if s.sparse:
            moved = torch.zeros_like(moved).scatter_(1, touched, True)
        self.clock[i] += moved.int()
        past = self.clock[i].double().unsqueeze(-1).clamp_min(1)
        g = gradient + s.decay.view(-1, 1, 1) * p
        new_mean, new_square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        spread = (new_square / (1 - 0.999**past)).sqrt() + 1e-8
        new = p - s.rates.view(-1, 1, 1) * new_mean / (1 - 0.9**past) / spread
        for table, value in ((p, new), (mean, new_mean), (square, new_square)):
            table.copy_(torch.where(moved.unsqueeze(-1), value, table))


class Setup:
    def __init__(
        self, sampler: str, train: Interactions, replicas: int = 2, dim: int = 5, batch: int = 8,
        sparse: bool = False, steps: int | None = None, seeds: list[int] | None = None,
    ) -> None:  # fmt: skip
        self.train, self.batch, self.sparse = train, batch, sparse
        seeds = seeds or list(range(replicas))
        self.bound = bind([SAMPLERS[sampler]] * replicas, train, DEVICE)
        usable = self.bound.eligible.cpu().numpy()[train.users]
        self.pair_users = on_device(train.users[usable]).long()
        self.pair_items = on_device(train.items[usable]).long()
        n = len(self.pair_users)
        self.steps = steps or -(-n // batch)
        self.order = keyed.permutations(keyed.keys(seeds, 1, device=DEVICE), n)
        self.own = keyed.hashes(keyed.keys(seeds, 2, device=DEVICE), self.steps)
        self.shared = keyed.hashes(keyed.keys(seeds, 3, device=DEVICE), self.steps)
        self.start = [
            torch.stack([torch.randn(size, dim, generator=torch.Generator().manual_seed(seed)) for seed in seeds]).to(
                DEVICE
            )
            for size in (train.n_users, train.n_items)
        ]
        self.rates = torch.tensor([0.01 * (1 + seed) for seed in seeds], device=DEVICE)
        self.decay = torch.tensor([1e-4 * seed for seed in seeds], device=DEVICE)
        self.l2 = torch.tensor([0.3 * seed for seed in seeds], device=DEVICE)
        self.hot = on_device(train.popularity >= np.median(train.popularity))
        chance = np.random.default_rng(5)
        self.held_out = on_device(np.flatnonzero(chance.random(train.n_users * train.n_items) < 0.3))

    def fused(self, **options: object) -> tuple[FusedSteps, list[Table]]:
        def table(start: torch.Tensor) -> Table:
            clock = torch.zeros(start.shape[:2], dtype=torch.int32, device=DEVICE) if self.sparse else None
            return Table(start.clone(), torch.zeros_like(start), torch.zeros_like(start), clock)

        tables = [table(start) for start in self.start]
        distribution, rule = distribution_and_rule(self.bound, self.train)
        made = FusedSteps(
            *tables, (self.pair_users, self.pair_items), distribution, rule, batch=self.batch, steps=self.steps,
            decay=self.decay, l2=self.l2, hot=self.hot, held_out=self.held_out, **options,
        )  # fmt: skip
        made.begin_epoch(self.order, self.own, self.shared, self.rates)
        return made, tables


def check(setup: Setup, **options: object) -> None:
    """Every step of the epoch: the same negatives, then the same sums, tables and moments."""
    assert setup.steps
    fused, tables = setup.fused(**options)
    plain = Plain(setup)
    for step in range(setup.steps):
        sums, negatives = plain.step(step)
        found = fused.run(step, step + 1)
        n = negatives.shape[1]
        assert torch.equal(fused.touched[:, 2, :n].long(), negatives)
        assert (fused.touched[:, :, n:] == -1).all()
        torch.testing.assert_close(found, sums, rtol=1e-5, atol=1e-6)
        for i, mine in enumerate(tables):
            torch.testing.assert_close(mine.rows.double(), plain.tables[i], rtol=1e-4, atol=3e-5)
            torch.testing.assert_close(mine.mean.double(), plain.mean[i], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(mine.square.double(), plain.square[i], rtol=1e-4, atol=1e-7)
            if mine.clock is not None:
                assert torch.equal(mine.clock, plain.clock[i])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_steps_are_those_of_the_plain_path(sampler: str, sparse: bool) -> None:
    check(Setup(sampler, log(9, 21, 0.15), sparse=sparse))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_user_with_one_item_left(sampler: str) -> None:
    train = Interactions.from_pairs([0] * 4, [0, 1, 3, 4], n_users=1, n_items=5)
    if sampler == "pns":  # which never draws an item without data
        train = Interactions.from_pairs([0, 0, 1], [0, 1, 2], n_users=2, n_items=3)
    check(Setup(sampler, train, replicas=1, batch=3))


@pytest.mark.parametrize("sampler", ["rns", "auc", "auc-sampled"])
def test_a_batch_larger_than_the_data(sampler: str) -> None:
    check(Setup(sampler, log(4, 6, 0.3), batch=64, sparse=True, replicas=1))


@pytest.mark.parametrize("sampler", ["auc", "auc-sampled"])
def test_a_replica_does_not_depend_on_its_neighbours(sampler: str) -> None:
    """Seven replicas, or one of them alone, or the same again: equal to the bit."""
    train = log(4, 9, 0.2)

    def trained(seeds: list[int]) -> list[Table]:
        setup = Setup(sampler, train, replicas=len(seeds), batch=8, seeds=seeds)
        fused, tables = setup.fused()
        fused.run(0, setup.steps)
        return tables

    together = trained([0, 1, 2, 3, 4, 5, 6])
    for seeds in ([4], [6, 2]):
        for mine, theirs in zip(trained(seeds), together, strict=True):
            assert torch.equal(mine.rows, theirs.rows[seeds])


def test_sums_in_float32_agree_too() -> None:
    check(Setup("auc", log(9, 21, 0.15), batch=16), exact_sums=False)
    check(Setup("dns", log(9, 21, 0.15), batch=16, sparse=True), exact_sums=False)


def test_steps_go_on_where_they_are_reported_to() -> None:
    """Two halves, or one whole; and back to the first step for the next epoch."""
    setup = Setup("rns", log(7, 9, 0.3), batch=4, replicas=1)
    whole, one = setup.fused()
    halves, two = setup.fused()
    for _ in range(2):
        total = whole.run(0, setup.steps)
        parts = halves.run(0, 3) + halves.run(3, setup.steps)
        torch.testing.assert_close(total, parts)
        assert torch.equal(one[0].rows, two[0].rows)
        assert torch.equal(one[1].rows, two[1].rows)


def test_adam_goes_on_from_the_steps_it_has_made() -> None:
    setup = Setup("rns", log(5, 9, 0.2), batch=64, steps=1)
    fresh, one = setup.fused()
    later, two = setup.fused(taken=50)
    fresh.run(0, 1)
    later.run(0, 1)
    moved = (one[0].rows - setup.start[0], two[0].rows - setup.start[0])
    ratio = (1 - 0.9) / (1 - 0.9**51) * ((1 - 0.999**51) / (1 - 0.999)) ** 0.5
    torch.testing.assert_close(moved[1], moved[0] * ratio, rtol=1e-3, atol=1e-6)


def test_vectors_longer_than_a_tile_and_many_candidates() -> None:
    SAMPLERS["wide"] = AUCSampler(candidates=9, probes=3, ecdf=150)
    check(Setup("wide", log(5, 60, 0.1), batch=16, dim=70, steps=1))
    del SAMPLERS["wide"]
