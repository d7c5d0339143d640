"""The softmax family: worked values, gradients against plain loops, limits, and what a run makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF
from evenhand.encoders.base import Vectors
from evenhand.methods import parse
from evenhand.objectives import BSL, PSL, AUCSoftmax, SLatK, Softmax
from evenhand.objectives.base import Scored
from evenhand.objectives.bc import contrast
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.objectives.softmax_relatives import SLatKLoss, ranks, top_k_edge
from evenhand.samplers.auc import posterior
from evenhand.utils.errors import InputError

P = torch.tensor([[1.0, 0], [0, 1], [1, 1]], dtype=torch.float64)
Q = torch.tensor([[1.0, 1], [2, 0], [0, 3], [1, -1], [-1, 2]], dtype=torch.float64)
POSITIVES, NEGATIVES = (0, 2, 3), ((2, 4), (1, 3), (2, 4))
SHARED = (1, 2, 3, 4)
# Whoever has these items is left with exactly the negatives above.
MASKING = Interactions.from_pairs([0, 0, 1, 1, 2, 2], [1, 3, 2, 4, 1, 3], n_users=3, n_items=5)
TRAIN = Interactions.from_pairs([0, 0, 1, 1, 2, 2, 2], [0, 1, 0, 2, 0, 1, 3], n_users=3, n_items=5)


def running(of: Softmax, train: Interactions = MASKING) -> SoftmaxLoss:
    model = MF(dim=2).start(train, [0], "cpu")
    loss = of.start(train, model, [0])
    assert isinstance(loss, SoftmaxLoss)
    return loss


def batch(p: Tensor, q: Tensor, shared: tuple[int, ...] = SHARED, log_q: Tensor | None = None) -> Scored:
    users, positives, negatives = torch.arange(3)[None], torch.tensor([POSITIVES]), torch.tensor([[shared]])
    return Scored(slice(0, 1), users, positives, negatives, p[users], q[positives], q[None], log_q=log_q)


def each(of: Softmax, **with_batch: Any) -> list[float]:
    """The loss of each positive, from batches of one."""
    found = []
    for b in range(3):
        whole = batch(P, Q, **with_batch)
        one = {name: getattr(whole, name)[:, b : b + 1] for name in ("users", "positives", "user", "positive")}
        found.append(running(of)(replace(whole, **one)).item())
    return found


def gradients(of: Softmax, train: Interactions = MASKING) -> tuple[float, Tensor, Tensor]:
    p, q = P.clone().requires_grad_(), Q.clone().requires_grad_()
    loss = running(of, train)(batch(p, q)).sum()
    return loss.item(), *torch.autograd.grad(loss, [p, q])


def near(*values: float) -> Any:
    return pytest.approx(values, abs=2e-6)


def cosine(u: int, i: int) -> float:
    return float(P[u] @ Q[i] / P[u].norm() / Q[i].norm())


# ---- worked values


def test_softmax_without_and_with_the_positive_and_corrected() -> None:
    of = Softmax(temperature=0.5)
    assert each(of) == near(-1.071446, -1.782378, 1.791005)
    assert each(replace(of, positive=True)) == near(0.294543, 0.155496, 1.945264)
    value, p, q = gradients(of)
    assert value == pytest.approx(-0.354273, abs=1e-6)
    assert p.flatten().tolist() == near(0, 0.174838, 0.628479, 0, -0.594316, 0.594316)
    wanted = (-0.235702, 0.235702, 0, 0.268143, 0.265538, 0, -0.287237, -0.287237, 0.148638, 0.074319)
    assert q.flatten().tolist() == near(*wanted)
    assert (q * Q).sum(1).tolist() == near(0, 0, 0, 0, 0)


def test_the_gradient_with_the_positive_is_that_without_times_what_is_left_of_its_probability() -> None:
    _, without, _ = gradients(Softmax(temperature=0.5))
    _, having, _ = gradients(Softmax(temperature=0.5, positive=True))
    left = torch.tensor([0.255128, 0.144010, 0.857051], dtype=torch.float64)
    torch.testing.assert_close(having, left[:, None] * without, atol=1e-6, rtol=0)


def test_a_corrected_sum_divides_by_the_expected_draws() -> None:
    """Of 4 shared draws, 2 remain for each user: probabilities ½/|I_u⁻| make each term count |I_u⁻|/2 times."""
    of = Softmax(temperature=0.5, positive=True, correction=True)
    for b, size in enumerate((3, 3, 2)):
        log_q = torch.full((1, 1, 4), math.log(0.5 / size), dtype=torch.float64)
        assert each(of, log_q=log_q)[b] == pytest.approx((0.414603, 0.225027, 1.945264)[b], abs=2e-6)


def test_negatives_of_the_batch_itself() -> None:
    """What `bc-loss` does in a batch, with the code it shares."""
    x = torch.tensor([[[cosine(u, i) for i in POSITIVES] for u in range(3)]], dtype=torch.float64)
    own, others = x.diagonal(dim1=1, dim2=2), x.masked_fill(torch.eye(3, dtype=torch.bool), -math.inf)
    assert contrast(own, others, 0.5).item() == pytest.approx(1.265748, abs=1e-6)


@pytest.mark.parametrize(
    ("activation", "values", "mean", "slope"),
    [
        ("tanh", (-1.414215, -2.379500, 1.611514), -0.727400, 0.245988),
        ("atan", (-1.420858, -2.406043, 1.612124), -0.738259, 0.248748),
        ("relu", (-1.576962, -2.765256, 1.640065), -0.900718, 0.301015),
        ("exp", (-1.071446, -1.782378, 1.791005), -0.354273, 0.174838),
    ],
)
def test_psl(activation: Any, values: tuple[float, ...], mean: float, slope: float) -> None:
    of = PSL(temperature=0.5, activation=activation)
    assert each(of) == near(*values)
    value, p, _ = gradients(of)
    assert value == pytest.approx(mean, abs=1e-6)
    assert p[0].tolist() == near(0, slope)


def test_relu_of_opposite_vectors_has_a_finite_gradient() -> None:
    q = Q.clone()
    q[2], q[4], q[1] = torch.tensor([-1.0, -1]), torch.tensor([-2.0, -2]), torch.tensor([-1.0, -1])
    q[0], q[3] = torch.tensor([1.0, 1]), torch.tensor([1.0, 1])
    p = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    loss = running(PSL(temperature=0.1))(batch(p, q.requires_grad_()))
    loss.sum().backward()
    assert p.grad is not None
    assert p.grad.isfinite().all()


def test_slatk() -> None:
    of = SLatK(temperature=0.5, k=2, weight_temperature=1)
    value, _, _ = gradients(of)
    assert value == pytest.approx(-0.375044, abs=1e-6)  # before the first refresh
    loss = running(of)
    assert isinstance(loss, SLatKLoss)
    loss.beta.data.fill_(math.sqrt(0.5))
    p = P.clone().requires_grad_()
    value = loss(batch(p, Q))
    assert value.item() == pytest.approx(-0.321680, abs=1e-6)
    value.sum().backward()
    assert p.grad is not None
    assert p.grad[0].tolist() == near(0, 0.024283)


def test_the_edge_of_the_top_k_is_found_among_own_items_and_drawn_ones() -> None:
    for user, negatives in enumerate(NEGATIVES):
        own = torch.tensor([[cosine(user, i) for i in TRAIN.row(user)]])
        others = torch.tensor([[cosine(user, i) for i in negatives]])
        assert top_k_edge(own, others, 2).item() == pytest.approx(math.sqrt(0.5))
    assert top_k_edge(torch.tensor([[0.5, -math.inf]]), torch.tensor([[0.25]]), 9).item() == 0.25


def test_the_quantiles_of_all_users_are_renewed_on_time() -> None:
    """With every item drawn many times over, the edge is the k-th best of the catalogue."""
    rng = np.random.default_rng(0)
    liked = rng.random((9, 12)) < 0.4
    liked[3] = False
    train = Interactions.from_pairs(*np.nonzero(liked), n_users=9, n_items=12)
    model = MF(dim=3).start(train, [0, 1], "cpu")
    loss = SLatK(k=3, refresh=2, shared=2000).start(train, model, [0, 1])
    assert isinstance(loss, SLatKLoss)
    for epoch in (0, 1):
        loss.refresh(model, epoch)
        assert not loss.beta.any()
    loss.refresh(model, 2)
    for r in range(2):
        users, items = (torch.nn.functional.normalize(side[r], dim=-1) for side in model.raw())
        scores = users @ items.T
        own = scores.masked_fill(~torch.from_numpy(liked), -math.inf)
        # A drawn item counts as often as it was drawn: at 2,000 draws the third best draw is the best item.
        best = scores.masked_fill(torch.from_numpy(liked), -math.inf).max(1, keepdim=True).values.expand(-1, 3)
        torch.testing.assert_close(loss.beta[r], torch.cat([own, best], 1).topk(3).values[:, 2])


def test_bsl() -> None:
    of = BSL(temperature=0.5, negative_weight=1.2)
    assert each(of) == near(-1.002892, -1.738854, 2.149206)
    assert gradients(of)[0] == pytest.approx(-0.197513, abs=1e-6)


# ---- plain loops


def by_hand(of: Softmax, p: Tensor, q: Tensor, train: Interactions, beta: float = 0.0) -> Tensor:
    """The mean loss, term by term."""
    losses = []
    for u, i in enumerate(POSITIVES):

        def score(j: int, u: int = u) -> Tensor:
            inner = p[u] @ q[j]
            return inner / (p[u].norm() * q[j].norm()) if of.similarity == "cosine" else inner

        left = [j for j in SHARED if j not in train.row(u).tolist()]
        total, tau = torch.zeros((), dtype=torch.float64), of.closed().temperature
        for j in left:
            x = score(j) - score(i)
            if isinstance(of, PSL):
                height = {"tanh": x.div(2).tanh() + 1, "atan": x.div(2).atan() + 1, "relu": x / 2 + 1}
                term = height[of.activation] ** (2 / tau)
            else:
                term = (x / tau).exp()
            if isinstance(of, AUCSoftmax):
                rank = (1 + sum(score(k).item() <= score(j).item() for k in left)) / (len(left) + 2)
                share = train.popularity[j] / train.popularity.sum()
                term = term * posterior(torch.tensor(rank), torch.tensor(share**of.beta), of.alpha).double()
            total = total + term
        loss = total.log()
        if isinstance(of, BSL):
            loss = of.negative_weight * loss + (of.negative_weight - 1) * score(i) / tau
        if of.positive:
            loss = torch.log1p(loss.exp())
        if isinstance(of, SLatK):
            loss = loss * torch.sigmoid((score(i) - beta) / of.weight_temperature)
        losses.append(loss)
    return torch.stack(losses).mean()


FAMILY = [
    Softmax(),
    Softmax(positive=True, temperature=0.3),
    Softmax(similarity="inner", temperature=1.0),
    Softmax(similarity="inner", positive=True, temperature=2.0),
    PSL(activation="tanh"),
    PSL(activation="atan", positive=True),
    PSL(activation="relu"),
    BSL(negative_weight=0.7),
    SLatK(weight_temperature=0.5, k=2),
    AUCSoftmax(beta=0.3, alpha=0.9),
    AUCSoftmax(beta=1.0, alpha=0.6, positive=True),
]


@pytest.mark.parametrize("of", FAMILY, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_are_those_of_plain_loops(of: Softmax, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(n, 4, generator=draw, dtype=torch.float64).requires_grad_() for n in (3, 5))
    wanted = by_hand(of, p, q, TRAIN)
    loss = running(of, TRAIN)(batch(p, q)).squeeze()
    torch.testing.assert_close(loss, wanted, atol=1e-6, rtol=1e-6)
    for mine, theirs in zip(torch.autograd.grad(loss, [p, q]), torch.autograd.grad(wanted, [p, q]), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


# ---- limits


@pytest.mark.parametrize(
    "of",
    [
        PSL(temperature=0.2, activation="exp"),
        BSL(temperature=0.2, negative_weight=1.0),
        SLatK(temperature=0.2, k=5),
        AUCSoftmax(temperature=0.2, beta=0.0),
    ],
    ids=str,
)
def test_each_relative_has_the_softmax_as_a_limit(of: Softmax) -> None:
    """φ = exp; a weight of 1; a list of all items; every unobserved item a true negative."""
    for wanted, found in zip(gradients(Softmax(temperature=0.2), TRAIN), gradients(of, TRAIN), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(wanted), atol=1e-9, rtol=1e-9)


def test_a_high_temperature_weighs_all_negatives_alike() -> None:
    q = Q.clone().requires_grad_()
    loss = 1e6 * running(Softmax(similarity="inner", temperature=1e6))(batch(P, q))
    loss.sum().backward()
    assert q.grad is not None
    uniform = torch.zeros_like(Q)
    for u, (i, negatives) in enumerate(zip(POSITIVES, NEGATIVES, strict=True)):
        uniform[i] -= P[u] / 3
        for j in negatives:
            uniform[j] += P[u] / 6
    torch.testing.assert_close(q.grad, uniform, atol=1e-5, rtol=0)


def test_a_positive_without_negatives_is_left_out() -> None:
    """User 1 has every shared item: no loss, no gradient, and no nan."""
    train = Interactions.from_pairs([1] * 4, SHARED, n_users=3, n_items=5)
    for of in FAMILY:
        p = P.clone().requires_grad_()
        loss = running(of, train)(batch(p, Q))
        loss.sum().backward()
        assert loss.isfinite().all()
        assert p.grad is not None
        assert p.grad.isfinite().all()
        assert not p.grad[1].any()


def test_a_zero_vector_has_cosine_0() -> None:
    p = P.clone()
    p[0] = 0
    assert running(Softmax(temperature=0.5))(batch(p.requires_grad_(), Q)).isfinite().all()


def test_an_own_item_has_no_part_in_the_gradient() -> None:
    """Items 1 and 3 are drawn, but user 0 has them: their rows are pushed by the others alone."""
    q = Q.clone().requires_grad_()
    loss = running(Softmax())
    whole = batch(P, q)
    first = {name: getattr(whole, name)[:, :1] for name in ("users", "positives", "user", "positive")}
    loss(replace(whole, **first)).sum().backward()
    assert q.grad is not None
    assert q.grad.abs().sum(1).gt(0).tolist() == [True, False, True, False, True]


def test_ranks_count_what_is_not_masked() -> None:
    x = torch.tensor([[0.3, 0.1, 0.3, 0.9, 0.2]])
    masked = torch.tensor([[False, False, False, True, False]])
    assert ranks(x, masked)[0, [0, 1, 2, 4]].tolist() == pytest.approx([5 / 6, 2 / 6, 5 / 6, 3 / 6])


# ---- finals and parameters


def test_in_the_end_products_are_cosines() -> None:
    draw = torch.Generator().manual_seed(0)
    vectors = Vectors(torch.randn(1, 3, 2, generator=draw), torch.randn(1, 5, 2, generator=draw))
    users, items = running(Softmax()).finals(vectors)[0]
    wanted = torch.nn.functional.cosine_similarity(vectors.users[0, :, None], vectors.items[0, None], dim=-1)
    torch.testing.assert_close(users[0] @ items[0].T, wanted)
    assert running(Softmax(similarity="inner")).finals(vectors)[0] is vectors


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("softmax:temperature=0", "temperature must be a positive number, not 0"),
        ("softmax:temperature=nan", "temperature must be a positive number, not nan"),
        ("softmax:temperature=warm", "temperature=warm is not a number"),
        ("softmax:shared=0", "shared must be a whole number from 1 to 10,000, not 0"),
        ("softmax:similarity=dot", "similarity"),
        ("softmax:positive=2", "positive must be true or false, not 2"),
        ("softmax:correction=maybe", "correction must be true or false, not maybe"),
        ("psl:activation=sigmoid", "activation"),
        ("psl:similarity=inner", "psl is for cosines"),
        ("bsl:negative_weight=-1", "negative_weight must be a positive number, not -1"),
        ("slatk:k=0", "k must be a whole number of at least 1, not 0"),
        ("slatk:refresh=1.5", "refresh must be a whole number of at least 1, not 1.5"),
        ("slatk:weight_temperature=0", "weight_temperature must be a positive number, not 0"),
        ("auc-softmax:alpha=0.2", r"alpha must lie in \[0.5, 1\], not 0.2"),
        ("auc-softmax:beta=-1", "beta must be a number of at least 0, not -1"),
    ],
)
def test_wrong_parameters_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as problem:
        parse(text)
    assert "\n" not in str(problem.value)
