"""Every objective against its formula in plain loops, its limits, and the slips that published code makes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, tensor

from evenhand.data.interactions import Interactions
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, given_split
from evenhand.encoders import MF, Encoder, LightGCN, Tables, Vectors
from evenhand.methods import METHODS, made_by, parse
from evenhand.models.base import described, from_description
from evenhand.objectives import BPR, IPS, MACR, BCLoss, CausE, Loss, Objective, Reg, Scored
from evenhand.objectives.bc import RunningBCLoss, cosine, cosines
from evenhand.objectives.cause import CausELoss, first_occurrences, inclusion, treatment
from evenhand.objectives.macr import GRID, MACRLoss
from evenhand.objectives.pairwise import correlation, propensity_weights
from evenhand.samplers import AUCSampler, BalancedSampler, DynamicSampler, Sampler, UniformSampler
from evenhand.samplers.base import rows
from evenhand.testing import check_learns
from evenhand.training import Settings, run, train
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.trainer import Trainer
from evenhand.utils.errors import InputError

CPU = torch.device("cpu")
SEEDS = (3, 8)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def uneven_log(n_users: int = 14, n_items: int = 12) -> Interactions:
    """Items from popular to rare, the last one without any pair."""
    rng = np.random.default_rng(5)
    liked = rng.random((n_users, n_items)) < np.linspace(0.9, 0.05, n_items)
    liked[:, -1], liked[0, -2] = False, True
    return Interactions.from_pairs(*np.nonzero(liked), n_users=n_users, n_items=n_items)


@dataclass
class Case:
    """A running objective in double precision, and one batch of it for two replicas."""

    log: Interactions
    model: Tables
    loss: Loss
    users: Tensor
    positives: Tensor
    negatives: Tensor

    def batch(self) -> Scored:
        vectors = self.model()
        self.loss.prepare(self.model)
        return Scored(
            replicas=slice(0, len(SEEDS)),
            users=self.users,
            positives=self.positives,
            negatives=self.negatives,
            user=rows(vectors.users, self.users),
            positive=rows(vectors.items, self.positives),
            items=vectors.items,
        )

    def value(self) -> Tensor:
        return self.loss(self.batch())

    def triples(self, r: int) -> list[tuple[int, int, list[int]]]:
        return list(zip(self.users[r].tolist(), self.positives[r].tolist(), self.negatives[r].tolist(), strict=True))


def case(
    objective: Objective,
    encoder: Encoder = MF(dim=4),  # noqa: B008 (frozen)
    size: int = 9,
    n: int = 1,
) -> Case:
    log = uneven_log()
    model = encoder.start(log, SEEDS, "cpu").double()
    loss = objective.start(log, model, SEEDS).double()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():  # larger than at the start, so that nothing is nearly linear
        for parameter in (*model.parameters(), *loss.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    pairs = torch.randint(len(log), (len(SEEDS), size), generator=g)
    return Case(
        log,
        model,
        loss,
        torch.from_numpy(log.users)[pairs].long(),
        torch.from_numpy(log.items)[pairs].long(),
        torch.randint(log.n_items, (len(SEEDS), size, n), generator=g),
    )


# ---- the formulas in plain loops: one replica's loss from its vectors p and q

Oracle = Callable[[Case, int, Tensor, Tensor], Tensor]


def log_sigmoid(x: Tensor) -> Tensor:
    return torch.log(1 / (1 + torch.exp(-x)))


def mean(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0]) / len(values)


def bpr_loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
    return mean([-log_sigmoid(p[u] @ q[i] - p[u] @ q[j]) for u, i, js in case.triples(r) for j in js])


def ips_loop(smoothing: float) -> Oracle:
    def loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
        counts = [max(int(c), 1) for c in case.log.popularity]
        inverse = [max(counts) / c for c in counts]
        clipped = [min(w, statistics.median(inverse)) for w in inverse]
        weight = [(w / max(clipped)) ** smoothing for w in clipped]
        return mean([-weight[i] * log_sigmoid(p[u] @ q[i] - p[u] @ q[j]) for u, i, js in case.triples(r) for j in js])

    return loop


def reg_loop(weight: float) -> Oracle:
    def loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
        pairs = [(u, i, j) for u, i, js in case.triples(r) for j in js]
        x = [torch.sigmoid(p[u] @ q[i] - p[u] @ q[j]) for u, i, j in pairs]
        y = [tensor(float(case.log.popularity[i]), dtype=torch.float64) for _, i, _ in pairs]
        mx, my = mean(x), mean(y)
        covariance = mean([(a - mx) * (b - my) for a, b in zip(x, y, strict=True)])
        spread = mean([(a - mx) ** 2 for a in x]).sqrt() * mean([(b - my) ** 2 for b in y]).sqrt()
        return (1 - weight) * bpr_loop(case, r, p, q) + weight * (covariance / spread) ** 2

    return loop


def macr_loop(alpha: float, beta: float, matrix: bool) -> Oracle:
    def loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
        assert isinstance(case.loss, MACRLoss)
        to_item, to_user = case.loss.item_head[r], case.loss.user_head[r]
        total = torch.zeros((), dtype=torch.float64)
        for label, pairs in (
            (1, [[(u, i)] for u, i, _ in case.triples(r)]),
            (0, [[(u, j) for j in js] for u, _, js in case.triples(r)]),
        ):

            def cost(logit: Tensor, label: int = label) -> Tensor:
                return -log_sigmoid(logit if label else -logit)

            def heads(u: int, i: int) -> Tensor:
                return torch.sigmoid(q[i] @ to_item) * torch.sigmoid(p[u] @ to_user)

            flat = [pair for of_one in pairs for pair in of_one]
            if matrix:  # the heads of each pair with the score of every other at the same place
                match = [
                    cost((p[other[k][0]] @ q[other[k][1]]) * heads(*own[k]))
                    for k in range(len(pairs[0]))
                    for own in pairs
                    for other in pairs
                ]
            else:
                match = [cost((p[u] @ q[i]) * heads(u, i)) for u, i in flat]
            total = total + mean(match)
            total = total + alpha * mean([cost(q[i] @ to_item) for _, i in flat])
            total = total + beta * mean([cost(p[u] @ to_user) for u, _ in flat])
        return total

    return loop


def encoded(case: Case, r: int, q: Tensor) -> tuple[Tensor, Tensor]:
    """The encoder's users beside other items, with dense algebra."""
    p = case.model.users[r]
    if not case.model.propagates:
        return p, q
    n = case.log.n_users
    graph = torch.zeros(n + case.log.n_items, n + case.log.n_items, dtype=torch.float64)
    graph[case.log.users, n + case.log.items.astype(np.int64)] = 1
    graph = graph + graph.T
    scale = graph.sum(1).clamp_min(1) ** -0.5
    graph = scale[:, None] * graph * scale
    layers = [torch.cat([p, q])]
    for _ in range(2):
        layers.append(graph @ layers[-1])
    out = mean(layers)
    return out[:n], out[n:]


def cause_loop(weight: float, share: float) -> Oracle:
    def loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
        assert isinstance(case.loss, CausELoss)
        mask = treatment(case.log, share)
        treated = set(zip(case.log.users[mask].tolist(), case.log.items[mask].tolist(), strict=True))
        p_t, q_t = encoded(case, r, case.loss.items[r])
        fit = []
        for u, i, js in case.triples(r):
            a, b = (p_t, q_t) if (u, i) in treated else (p, q)
            fit += [-log_sigmoid(a[u] @ b[i] - a[u] @ b[j]) for j in js]
        seen = {i for _, i, _ in case.triples(r)} | {j for _, _, js in case.triples(r) for j in js}
        return mean(fit) + weight * mean([((q[i] - q_t[i]) ** 2).sum() for i in sorted(seen)])

    return loop


def cos(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a @ a).sqrt() / (b @ b).sqrt()


def softmax_loss(positive: Tensor, others: list[Tensor], tau: float) -> Tensor:
    top = torch.exp(positive / tau)
    return -torch.log(top / (top + sum(torch.exp(o / tau) for o in others)))


def bc_loop(of: BCLoss, warming: bool) -> Oracle:
    def loop(case: Case, r: int, p: Tensor, q: Tensor) -> Tensor:
        assert isinstance(case.loss, RunningBCLoss)
        # Counts of 0 share the first place with the smallest.
        user_counts, item_counts = (sorted(set(c) - {0}) for c in (case.log.activity, case.log.popularity))
        a = [case.loss.user_table[r, user_counts.index(max(c, user_counts[0]))] for c in case.log.activity]
        b = [case.loss.item_table[r, item_counts.index(max(c, item_counts[0]))] for c in case.log.popularity]
        terms = []
        batch = [i for _, i, _ in case.triples(r)]
        for u, i, js in case.triples(r):
            others = [j for j in batch if j != i] if of.in_batch else js
            if warming:
                terms.append(softmax_loss(cos(a[u], b[i]), [cos(a[u], b[j]) for j in others], of.tau2))
                continue
            theta = torch.arccos(cos(p[u], q[i]))
            margin = 1 - torch.sigmoid(a[u] @ b[i]) if of.margin == "code" else torch.arccos(cos(a[u], b[i]))
            raised = torch.cos(theta + min(margin.item(), math.pi - theta.item()))
            terms.append(softmax_loss(raised, [cos(p[u], q[j]) for j in others], of.tau1 or 0.07))
        return (of.weight if warming else 1 - of.weight) * mean(terms)

    return loop


PAPER_MARGIN = BCLoss(margin="paper", weight=0.3, tau1=0.3, warm_up=0)
FORMULAS: dict[str, tuple[Objective, Oracle]] = {
    "bpr": (BPR(), bpr_loop),
    "ips": (IPS(), ips_loop(1)),
    "ips-smooth": (IPS(smoothing=0.4), ips_loop(0.4)),
    "reg": (Reg(weight=0.3), reg_loop(0.3)),
    "macr": (MACR(item_weight=0.2, user_weight=0.3), macr_loop(0.2, 0.3, matrix=False)),
    "macr-matrix": (MACR(0.2, 0.3, matrix=True), macr_loop(0.2, 0.3, matrix=True)),
    "cause": (CausE(weight=0.7, share=0.3), cause_loop(0.7, 0.3)),
    "bc-warm-up": (BCLoss(weight=0.3), bc_loop(BCLoss(weight=0.3), warming=True)),
    "bc-main": (BCLoss(weight=0.3, warm_up=0), bc_loop(BCLoss(weight=0.3), warming=False)),
    "bc-paper": (PAPER_MARGIN, bc_loop(PAPER_MARGIN, warming=False)),
    "bc-in-batch": (BCLoss(in_batch=True, warm_up=0), bc_loop(BCLoss(in_batch=True), warming=False)),
    "bc-in-batch-warm-up": (BCLoss(in_batch=True), bc_loop(BCLoss(in_batch=True), warming=True)),
}
OBJECTIVES: list[Objective] = [
    BPR(),
    IPS(),
    Reg(),
    MACR(),
    MACR(matrix=True),
    CausE(),
    BCLoss(warm_up=1),
    BCLoss(warm_up=1, margin="paper", final="cosine"),
    BCLoss(warm_up=1, in_batch=True),
]


def parameters(case: Case) -> list[Tensor]:
    return [*case.model.parameters(), *case.loss.parameters()]


def gradients(value: Tensor, case: Case) -> list[Tensor | None]:
    return list(torch.autograd.grad(value.sum(), parameters(case), allow_unused=True))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("name", FORMULAS)
def test_value_and_gradient_are_those_of_the_formula(name: str, encoder: Encoder, n: int) -> None:
    objective, oracle = FORMULAS[name]
    mine = case(objective, encoder, n=n)
    got = mine.value()
    vectors = mine.model()
    expected = torch.stack([oracle(mine, r, *(side[r] for side in vectors)) for r in range(len(SEEDS))])
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)  # the graph holds float32 numbers
    assert not torch.isclose(got[0], got[1], rtol=1e-3)
    for a, b in zip(gradients(got, mine), gradients(expected, mine), strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_all_replicas_at_once_are_each_in_turn(name: str) -> None:
    mine = case(FORMULAS[name][0], n=2)
    at_once = mine.value()
    in_turn = torch.cat([mine.loss(one) for one in mine.batch().each()])
    torch.testing.assert_close(at_once, in_turn)
    for a, b in zip(gradients(at_once, mine), gradients(in_turn, mine), strict=True):
        torch.testing.assert_close(a, b)


# ---- limits


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("objective", [IPS(smoothing=0), Reg(weight=0)], ids=str)
def test_without_its_correction_an_objective_is_bpr(objective: Objective, n: int) -> None:
    mine, plain = case(objective, n=n), case(BPR(), n=n)
    torch.testing.assert_close(mine.value(), plain.value())
    assert not torch.allclose(mine.value(), case(type(objective)(), n=n).value())


def where_treated(mine: Case, treated: bool) -> Case:
    """The same with pairs that all are treated, or all are not."""
    pool = np.flatnonzero(treatment(mine.log, 0.3) == treated)
    pairs = torch.from_numpy(pool)[torch.arange(mine.users.numel()).view(mine.users.shape) % len(pool)]
    return replace(
        mine,
        users=torch.from_numpy(mine.log.users)[pairs].long(),
        positives=torch.from_numpy(mine.log.items)[pairs].long(),
    )


@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)], ids=["mf", "lightgcn"])
def test_cause_without_treatment_or_penalty_is_bpr_with_one_of_its_tables(encoder: Encoder) -> None:
    start = case(CausE(weight=0, share=0.3), encoder)
    control = where_treated(start, treated=False)
    expected = torch.stack([bpr_loop(control, r, *(s[r] for s in control.model())) for r in range(2)])
    torch.testing.assert_close(control.value(), expected, rtol=1e-6, atol=1e-6)

    assert isinstance(start.loss, CausELoss)
    other = where_treated(start, treated=True)
    expected = torch.stack([bpr_loop(other, r, *encoded(other, r, start.loss.items[r])) for r in range(2)])
    torch.testing.assert_close(other.value(), expected, rtol=1e-6, atol=1e-6)
    gradient = gradients(other.value(), other)[1]  # of the control table
    assert gradient is None or not gradient.any()


def test_macr_finals_score_s_minus_c_times_the_pull() -> None:
    for c in (0.0, 1.5, -0.3):
        mine = case(MACR(c=c))
        assert isinstance(mine.loss, MACRLoss)
        (final,) = mine.loss.finals(mine.model())
        scores = mine.model.users @ mine.model.items.mT
        pull = torch.sigmoid((mine.model.items * mine.loss.item_head.unsqueeze(1)).sum(-1)).unsqueeze(1)
        torch.testing.assert_close(final.users @ final.items.mT, (scores - c) * pull)
        assert final.users.shape[-1] == 5
        if c == 0:
            assert torch.equal((final.users @ final.items.mT).argsort(-1), (scores * pull).argsort(-1))


def test_macr_offers_references_relative_to_each_replicas_largest_score() -> None:
    mine = case(MACR())
    assert isinstance(mine.loss, MACRLoss)
    finals = mine.loss.finals(mine.model())
    largest = (mine.model.users @ mine.model.items.mT).amax((1, 2))
    pull = torch.sigmoid((mine.model.items * mine.loss.item_head.unsqueeze(1)).sum(-1))
    assert sorted(GRID) == [0, 0.25, 0.5, 1, 2]
    for share, final in zip(GRID, finals, strict=True):
        torch.testing.assert_close(final.items[..., -1], -share * largest.unsqueeze(1) * pull)
    # From the largest score on, more pull means a lower score for everyone.
    scores = (finals[GRID.index(2)].users @ finals[GRID.index(2)].items.mT).detach()
    assert (scores <= 0).all()


def test_a_margin_of_nothing_leaves_the_plain_contrastive_loss() -> None:
    mine = case(BCLoss(warm_up=0), n=5)
    assert isinstance(mine.loss, RunningBCLoss)
    with torch.no_grad():
        for table in (mine.loss.user_table, mine.loss.item_table):
            table.fill_(100)  # σ(a·b) = 1
    batch = mine.batch()
    everything = torch.cat([batch.positive.unsqueeze(2), batch.negative], 2)
    cosines = torch.nn.functional.cosine_similarity(batch.user.unsqueeze(2), everything, dim=-1)
    plain = -torch.log_softmax(cosines / 0.07, -1)[..., 0].mean(1)
    torch.testing.assert_close(mine.value(), 0.5 * plain, rtol=1e-5, atol=1e-6)


# ---- slips that published code makes


def test_macr_multiplies_a_score_with_the_heads_of_its_own_pair() -> None:
    """The B×B product of the published code is another number; with one pair a batch there is no other."""
    assert not torch.allclose(case(MACR()).value(), case(MACR(matrix=True)).value(), rtol=1e-3)
    torch.testing.assert_close(case(MACR(), size=1).value(), case(MACR(matrix=True), size=1).value())


def test_cause_measures_distances_item_by_item() -> None:
    """Not normalised over the batch: the penalty of disjoint batches is the mean of theirs by item."""
    mine = case(CausE(weight=1, share=0.3), size=4)
    no_penalty = case(CausE(weight=0, share=0.3), size=4)

    def penalty(positives: list[int], negatives: list[int]) -> Tensor:
        batch = {
            "users": torch.zeros(2, len(positives), dtype=torch.int64),
            "positives": tensor([positives] * 2),
            "negatives": tensor([negatives] * 2).unsqueeze(-1),
        }
        with_, without = replace(mine, **batch), replace(no_penalty, **batch)
        without.loss.load_state_dict(with_.loss.state_dict())
        without.model.load_state_dict(with_.model.state_dict())
        return with_.value() - without.value()

    one, other = penalty([0, 1], [2, 2]), penalty([5, 6], [7, 8])
    torch.testing.assert_close(penalty([0, 1, 5, 6], [2, 2, 7, 8]), (3 * one + 4 * other) / 7)
    torch.testing.assert_close(penalty([0, 1, 0, 1], [2, 2, 2, 0]), one)


@pytest.mark.parametrize("warm_up", [0, 5])
def test_bc_cosines_are_of_pairs_not_of_columns(warm_up: int) -> None:
    """A batch is the mean of its pairs, and no vector's length matters."""
    mine = case(BCLoss(warm_up=warm_up), size=3, n=4)
    batch = mine.batch()
    alone = []
    for b in range(3):
        one = {
            name: getattr(batch, name)[:, b : b + 1] for name in ("users", "positives", "negatives", "user", "positive")
        }
        alone.append(mine.loss(replace(batch, **one)))
    torch.testing.assert_close(mine.loss(batch), mean(alone))
    longer = replace(batch, user=batch.user * tensor([1.0, 2.0, 9.0]).view(1, 3, 1))
    torch.testing.assert_close(mine.loss(longer), mine.loss(batch))


@pytest.mark.parametrize("n_items", [5, 12, 13, 40])
def test_cosines_are_the_same_by_products_with_all_items(n_items: int) -> None:
    """With 3 negatives of 4 numbers, products serve up to 12 items; a vector of 0 has the cosine 0."""
    draw = torch.Generator().manual_seed(n_items)
    users, items = (torch.randn(2, n, 4, dtype=torch.float64, generator=draw) for n in (6, n_items))
    index = torch.randint(n_items, (2, 6, 3), generator=draw)
    sides = users.requires_grad_(), items.requires_grad_()
    found, plain = cosines(users, items, index), cosine(users.unsqueeze(2), rows(items, index))
    torch.testing.assert_close(found, plain)
    weights = torch.randn(found.shape, dtype=torch.float64, generator=draw)
    mine, theirs = (torch.autograd.grad((each * weights).sum(), sides) for each in (found, plain))
    torch.testing.assert_close(mine, theirs)
    one = _cosine(users[1, 2].detach(), items[1, index[1, 2, 0]].detach())
    torch.testing.assert_close(found[1, 2, 0].detach(), one)
    with torch.no_grad():
        users[0, 0] = 0
        assert not cosines(users, items, index)[0, 0].any()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / (a.norm() * b.norm())


@pytest.mark.parametrize("margin", ["code", "paper"])
def test_bc_learns_one_part_at_a_time(margin: str) -> None:
    """First the branch alone, then the encoder alone: not even through the margin goes a gradient."""
    mine = case(BCLoss(warm_up=2, margin=margin), n=4)  # type: ignore[arg-type]
    for epoch, encoder_learns in ((0, False), (1, False), (2, True), (3, True)):
        mine.loss.begin_epoch(epoch)
        found = gradients(mine.value(), mine)
        assert [g is not None for g in found] == [encoder_learns] * 2 + [not encoder_learns] * 2
        assert all(g is None or bool(g.any()) for g in found)
        assert mine.loss.trains_encoder == encoder_learns


@pytest.mark.parametrize("margin", ["code", "paper"])
def test_a_margin_never_turns_an_angle_past_pi(margin: str) -> None:
    """So a wider angle never gets a better logit."""
    mine = case(BCLoss(warm_up=0, margin=margin), size=200)  # type: ignore[arg-type]
    assert isinstance(mine.loss, RunningBCLoss)
    angles = torch.linspace(0, math.pi, 200, dtype=torch.float64).expand(2, -1)
    same = replace(mine, users=torch.full_like(mine.users, 3), positives=torch.full_like(mine.positives, 4))
    margins = mine.loss.margins(same.batch(), angles)
    free = margins[:, :1]
    assert (free > 0.05).all()
    torch.testing.assert_close(margins, torch.minimum(free.expand_as(angles), math.pi - angles))
    assert ((angles + margins).cos().diff(dim=1) <= 1e-12).all()


def test_bc_takes_the_users_own_positive_once() -> None:
    """Two rows with the same item: neither is the other's negative, so with nothing else the loss is 0."""
    mine = case(BCLoss(in_batch=True, warm_up=0), size=2)
    same = replace(mine, positives=torch.full_like(mine.positives, 4))
    torch.testing.assert_close(same.value(), torch.zeros(2, dtype=torch.float64))
    assert (mine.value() > 0).any()


def test_bc_levels_are_places_among_the_distinct_counts() -> None:
    log = Interactions.from_pairs([0, 0, 0, 1, 1, 1, 2], [0, 1, 2, 0, 1, 4, 0], n_users=4, n_items=6)
    loss = BCLoss().start(log, MF(dim=3).start(log, [0], "cpu"), [0])
    assert loss.user_level.tolist() == [1, 1, 0, 0]  # 3, 3, 1, 0 items
    assert loss.item_level.tolist() == [2, 1, 0, 0, 0, 0]  # 3, 2, 1, 0, 1, 0 users
    assert loss.user_table.shape == (1, 2, 3)
    assert loss.item_table.shape == (1, 3, 3)


def movielens(folder: Path) -> Interactions:
    """The train part of the published split, over the items of both parts."""
    parts = (read_interactions(folder / "ml-100k" / f"paper_{part}.csv") for part in ("train", "test"))
    return given_split(*parts).train


def test_ips_weights_of_movielens(shared_data: Path) -> None:
    """The median is over items: over interactions it would be far smaller."""
    log = movielens(shared_data)
    weights = propensity_weights(log.popularity)
    assert 1 / weights.min() == pytest.approx(21.2, abs=0.05)
    assert weights.min() == pytest.approx(0.047, abs=5e-4)
    assert weights[log.items].mean() == pytest.approx(0.29, abs=5e-3)
    assert (weights[log.popularity <= np.median(log.popularity)] == 1).all()


def test_bc_levels_of_movielens(shared_data: Path) -> None:
    log = movielens(shared_data)
    loss = BCLoss().start(log, MF(dim=2).start(log, [0], "cpu"), [0])
    assert loss.user_table.shape[1] == 231
    assert loss.item_table.shape[1] == 236
    assert (loss.item_level.numpy()[log.popularity == 0] == 0).all()


def test_a_correlation_is_clipped_and_survives_what_does_not_vary() -> None:
    a = torch.rand(1, 50, generator=torch.Generator().manual_seed(0))
    assert float(correlation(a, a)) == pytest.approx(1, abs=1e-4)
    assert float(correlation(a, -3 * a + 1)) == pytest.approx(-1, abs=1e-4)
    many = 1e3 * torch.rand(2000, 7, generator=torch.Generator().manual_seed(0))
    assert float(correlation(many, 3 * many).max()) == 1  # rounding alone would go beyond
    constant = torch.ones(1, 50, requires_grad=True)
    r = correlation(constant, a)
    r.sum().backward()
    assert float(r.detach()) == pytest.approx(0, abs=1e-2)
    assert constant.grad is not None
    assert constant.grad.isfinite().all()


# ---- the treatment sample


def long_tail() -> Interactions:
    rng = np.random.default_rng(2)
    chance = 0.6 / np.arange(1, 301) ** 0.7
    return Interactions.from_pairs(*np.nonzero(rng.random((400, 300)) < chance), n_users=400, n_items=300)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_the_treatment_is_even_over_items_and_has_the_rarest(share: float) -> None:
    log = long_tail()
    chance, mask = inclusion(log.popularity, share), treatment(log, share)
    expected = chance * log.popularity
    assert expected.sum() == pytest.approx(share * len(log))
    # Every item expects the same number of pairs, but for those that have fewer, which give all.
    capped = (chance == 1) & (log.popularity > 0)
    level = expected[~capped].max()
    assert expected[~capped] == pytest.approx(level)
    assert (expected[capped] == log.popularity[capped]).all()
    assert (log.popularity[capped] <= level + 1e-9).all()
    assert abs(mask.sum() - share * len(log)) < 4 * (share * len(log)) ** 0.5
    drawn = np.bincount(log.items[mask], minlength=log.n_items)
    assert (drawn[capped] == log.popularity[capped]).all()
    for half in (log.popularity > np.median(log.popularity), log.popularity <= np.median(log.popularity)):
        assert abs(drawn[half].sum() - expected[half].sum()) < 4 * expected[half].sum() ** 0.5
    assert drawn[np.argsort(log.popularity)[:30]].any()  # a tenth of the items
    if share == 0.4:
        assert capped.sum() > 10
        assert drawn[log.popularity == log.popularity[log.popularity > 0].min()].all()


def test_the_treatment_is_one_for_all_replicas_and_runs() -> None:
    log = uneven_log()
    model = MF(dim=2).start(log, SEEDS, "cpu")
    one, other = (CausE(share=0.3).start(log, model, seeds).treated for seeds in (SEEDS, (0, 1)))
    assert torch.equal(one, other)
    assert torch.equal(one, torch.from_numpy(log.keys[treatment(log, 0.3)]))
    assert torch.equal(one, one.unique())


def test_an_empty_treatment_is_refused() -> None:
    log = Interactions.from_pairs([0, 1], [0, 1])
    with pytest.raises(InputError, match=r"a share of 1e-06 of 2 training pairs leaves none to treat; raise"):
        CausE(share=1e-6).start(log, MF(dim=2).start(log, [0], "cpu"), [0])


def test_first_occurrences_by_hand() -> None:
    items = tensor([[3, 1, 3, 3, 0, 1], [2, 2, 2, 2, 2, 2]])
    assert first_occurrences(items).int().tolist() == [[1, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]]


# ---- in training


def noisy_split(seed: int = 0) -> Split:
    rng = np.random.default_rng(seed)
    like = (np.arange(30)[:, None] % 2) == (np.arange(24) % 2)
    chosen = rng.random((30, 24)) < np.where(like, 0.5, 0.1)
    return Interactions.from_pairs(*np.nonzero(chosen), n_users=30, n_items=24).split(
        test=0.2, validation=0.1, seed=seed
    )


def loop(log: Interactions, objective: Objective, seeds: list[int], encoder: Encoder) -> Trainer:
    settings = Settings(batch=64, lr=0.02, negatives=2)
    hot = np.zeros(log.n_items, dtype=bool)
    return Trainer(log, encoder, [UniformSampler()] * len(seeds), seeds, settings, CPU, hot=hot, objective=objective)


@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_a_replica_is_a_run_of_its_own(objective: Objective, encoder: Encoder) -> None:
    """To the last bit: what it learns, what its objective learns, and every model it offers."""
    log = noisy_split().train
    together = loop(log, objective, [5, 0, 9], encoder)
    losses = [together.run_epoch(epoch).loss for epoch in range(3)]
    for place, seed in enumerate([5, 0, 9]):
        alone = loop(log, objective, [seed], encoder)
        assert [alone.run_epoch(epoch).loss[0] for epoch in range(3)] == [one[place] for one in losses]
        for mine, own in zip(together.finals(), alone.finals(), strict=True):
            assert torch.equal(mine.users[place], own.users[0])
            assert torch.equal(mine.items[place], own.items[0])
        for mine, own in zip(together.loss.parameters(), alone.loss.parameters(), strict=True):
            assert torch.equal(mine[place], own[0])


@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_again_is_identical_with_any_number_of_threads(objective: Objective, encoder: Encoder) -> None:
    log = noisy_split().train

    def vectors(threads: int) -> Vectors:
        torch.set_num_threads(threads)
        running = loop(log, objective, [0, 1], encoder)
        for epoch in range(2):
            running.run_epoch(epoch)
        return running.finals()[0]

    one, two = vectors(1), vectors(2)
    assert torch.equal(one.users, two.users)
    assert torch.equal(one.items, two.items)


@pytest.mark.parametrize("sampler", [UniformSampler(), BalancedSampler(), DynamicSampler()], ids=str)
@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("objective", [IPS(), Reg(), MACR(), CausE(), BCLoss()], ids=lambda o: type(o).__name__)
def test_brings_the_withheld_item_back(objective: Objective, encoder: Encoder, sampler: Sampler) -> None:
    check_learns(sampler, encoder, objective=objective, epochs=12)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_every_objective_works_with_a_sampler_that_looks_at_scores(objective: Objective) -> None:
    settings = Settings(epochs=3, batch=64, lr=0.02, negatives=2)
    one, other = (
        train(noisy_split(), MF(dim=4), sampler, 2, settings, ks=(5,), device="cpu", objective=objective)
        for sampler in (AUCSampler(), UniformSampler())
    )
    assert one.model.info["objective"] == described(objective.closed())
    assert one.model.info["sampler"]["kind"] == "AUCSampler"
    if not (isinstance(objective, BCLoss) and objective.in_batch):  # which does not ask the sampler
        assert not torch.equal(one.model.item_vectors, other.model.item_vectors)


@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("objective", OBJECTIVES[3:], ids=str)
def test_a_resumed_run_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: Objective, encoder: Encoder
) -> None:
    """From the end of an epoch, with what the objective has learned; the warm-up may lie before or behind."""
    monkeypatch.setattr(run, "Checkpoints", partial(Checkpoints, share=0))
    settings = Settings(epochs=3, batch=64, lr=0.02, negatives=2)
    fitted = partial(
        train,
        noisy_split(),
        encoder,
        UniformSampler(),
        2,
        settings,
        ks=(5,),
        device="cpu",
        objective=objective,
    )
    whole = fitted()
    for crash in (1, 2):

        def fail(done: int, most: int, record: object, crash: int = crash) -> None:
            if done == crash + 1:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fitted(checkpoints=tmp_path / str(crash), on_epoch=fail)
        again = fitted(checkpoints=tmp_path / str(crash), resume=True)
        assert again.epochs == whole.epochs
        assert torch.equal(again.model.user_vectors, whole.model.user_vectors)
        assert torch.equal(again.model.item_vectors, whole.model.item_vectors)
        assert [r["loss"] for r in again.model.history] == [r["loss"] for r in whole.model.history]


@pytest.mark.parametrize("patience", [1, 3])
def test_a_warm_up_costs_no_patience_and_is_never_chosen(patience: int) -> None:
    settings = Settings(epochs=9, batch=64, lr=0.02, negatives=4, patience=patience)
    start = MF(dim=4).start(noisy_split().train, [0], "cpu").raw().detach()
    done = train(noisy_split(), MF(dim=4), UniformSampler(), 1, settings, ks=(5,), device="cpu", objective=BCLoss())
    assert done.epochs[0] > 5
    assert not torch.equal(done.model.user_vectors, start.users)
    short = train(
        noisy_split(),
        MF(dim=4),
        UniformSampler(),
        1,
        replace(settings, epochs=3),
        ks=(5,),
        device="cpu",
        objective=BCLoss(),
    )
    assert short.epochs == (3,)
    assert torch.equal(short.model.user_vectors, start.users)


def test_validation_picks_macrs_reference_for_each_replica() -> None:
    settings = Settings(epochs=4, batch=64, lr=0.05)
    split = noisy_split()
    chosen = train(split, MF(dim=4), UniformSampler(), 3, settings, objective=MACR(), ks=(5,), device="cpu")
    assert chosen.validation is not None
    running = loop(split.train, MACR(), [0], MF(dim=4))
    assert len(running.finals()) == len(GRID)
    assert chosen.model.user_vectors.shape[-1] == 5
    assert torch.equal(chosen.model.user_vectors[..., -1], torch.ones(3, 30))
    nothing = replace(split, validation=None)
    last = train(nothing, MF(dim=4), UniformSampler(), 1, settings, objective=MACR(), ks=(5,), device="cpu").model
    # c·a over a·q: one number for all items, half of the largest score among users and items.
    tables = last.tables
    assert tables is not None
    largest = (tables[0][0] @ tables[1][0].T).max()
    pull = last.item_vectors[0, :, :-1].norm(dim=1) / tables[1][0].norm(dim=1)
    torch.testing.assert_close(-last.item_vectors[0, :, -1], 0.5 * largest * pull)


@pytest.mark.parametrize("objective", [MACR(), CausE(), BCLoss(warm_up=1, final="cosine")], ids=str)
@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)], ids=["mf", "lightgcn"])
def test_a_model_can_be_updated_whatever_became_of_its_vectors(objective: Objective, encoder: Encoder) -> None:
    split = noisy_split()
    settings = Settings(epochs=2, batch=64, negatives=2, lr=1e-9)
    done = train(split, encoder, UniformSampler(), 1, settings, ks=(5,), device="cpu", objective=objective).model
    users, items = done.tables or done.vectors
    assert users.shape[-1] == items.shape[-1] == 4
    again = made_by(done).update(done, split.test, device="cpu").model
    for before, after in zip((users, items), again.tables or again.vectors, strict=True):
        torch.testing.assert_close(before, after, atol=1e-6, rtol=1e-6)


def test_a_treatment_table_starts_where_the_items_do() -> None:
    """Also where training goes on from given tables, which a random second table would pull away."""
    log = noisy_split().train
    running = loop(log, CausE(), [0, 1], MF(dim=4))
    assert isinstance(running.loss, CausELoss)
    assert torch.equal(running.loss.items, running.model.items)
    running.start_from((torch.ones_like(running.model.users), torch.ones_like(running.model.items)))
    assert isinstance(running.loss, CausELoss)
    assert torch.equal(running.loss.items, torch.ones_like(running.model.items))
    running.run_epoch(0)
    assert not torch.equal(running.loss.items, torch.ones_like(running.model.items))


@pytest.mark.parametrize(("objective", "decays"), [(MACR(), False), (CausE(), True), (BCLoss(), False)])
def test_weight_decay_acts_on_tables_but_not_on_heads_and_branches(objective: Objective, decays: bool) -> None:
    running = loop(noisy_split().train, objective, [0], MF(dim=4))
    assert [o.decay[0] > 0 for o in running.optimisers] == [True, decays]


def test_bc_wants_many_negatives_unless_it_finds_them_in_the_batch() -> None:
    assert (BCLoss().negatives, BCLoss(in_batch=True).negatives, BPR().negatives) == (128, 1, 1)


def test_cosine_finals_rank_by_the_angle() -> None:
    mine = case(BCLoss(final="cosine"))
    (final,) = mine.loss.finals(mine.model())
    users, items = mine.model()
    expected = torch.nn.functional.cosine_similarity(users.unsqueeze(2), items.unsqueeze(1), dim=-1)
    torch.testing.assert_close(final.users @ final.items.mT, expected)
    (plain,) = case(BCLoss()).loss.finals(mine.model())
    assert torch.equal(plain.users, users)


# ---- how they are asked for


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("ips-cn:smoothing=0.5", IPS(smoothing=0.5)),
        ("samreg:weight=0.2", Reg(weight=0.2)),
        ("macr", MACR(1e-3, 1e-3, "validation", matrix=False)),
        ("macr:c=30:matrix=true:item_weight=0.01", MACR(item_weight=0.01, c=30, matrix=True)),
        ("cause:share=0.2:weight=1", CausE(weight=1, share=0.2)),
        ("bc-loss", BCLoss(None, 0.1, 0.5, 5, "code", None, in_batch=False)),
        (
            "bc-loss:margin=paper:final=cosine:in_batch=True",
            BCLoss(margin="paper", final="cosine", in_batch=True),
        ),
    ],
)
def test_is_parsed_and_written_down(text: str, objective: Objective) -> None:
    got = parse(text)
    assert got.objective == objective
    assert from_description(Objective, described(objective)) == objective


@pytest.mark.parametrize("name", ["ips-cn", "samreg", "macr", "cause", "bc-loss"])
def test_no_parameter_belongs_to_sampler_and_objective_both(name: str) -> None:
    method = METHODS[name]
    sampler, objective = ({f.name for f in fields(part)} for part in (method.sampler, method.objective))
    assert not sampler & objective
    assert set(method.parameters()) == sampler | objective


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ips-cn:smoothing=2", "smoothing must lie in [0, 1], not 2."),
        ("samreg:weight=1", "weight must lie in [0, 1), not 1."),
        ("macr:item_weight=-1", "item_weight must be at least 0, not -1."),
        ("macr:c=high", "c must be a number or 'validation', not 'high'."),
        ("macr:c=inf", "c must be a finite number, not inf."),
        ("macr:matrix=2", "matrix must be true or false, not 2."),
        ("cause:weight=-0.1", "weight must be at least 0, not -0.1."),
        ("cause:share=1", "share must lie between 0 and 1, not 1."),
        ("bc-loss:tau1=0", "tau1 must be a positive number, not 0."),
        ("bc-loss:tau2=0", "tau2 must be a positive number, not 0."),
        ("bc-loss:weight=1", "weight must lie between 0 and 1, not 1."),
        ("bc-loss:warm_up=1.5", "warm_up must be a whole number of at least 0, not 1.5."),
        ("bc-loss:margin=papr", "unknown margin 'papr'; did you mean 'paper'? Known: code, paper."),
        ("bc-loss:final=cos", "unknown final 'cos'; did you mean 'cosine'? Known: cosine, inner."),
        ("bc-loss:in_batch=1", "in_batch must be true or false, not 1."),
        ("cause:share=many", "'cause:share=many': share=many is not a number."),
    ],
)
def test_refuses_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == message
