"""The exact rule of AUC-NS, with its indicator, on a pool; and DNS(M, N)."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from evenhand.samplers import AUCSampler, DynamicSampler
from evenhand.samplers.auc import exact_gain, posterior
from evenhand.samplers.base import rows
from evenhand.testing import check_sampler, corner_cases, random_batch
from evenhand.utils.errors import InputError


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_hand(
    x: list[float], positive: list[float], p: list[float], observed: int, unobserved: int, m: int
) -> list[float]:
    """Every candidate against every other, in loops."""
    order = sorted(range(len(x)), key=lambda j: -x[j])
    gains = []
    for i, score in enumerate(x):
        inside = i in order[:m]
        rise = observed * sum(sigmoid(score - s) for s in positive) / len(positive) if inside else 0.0
        others = [x[j] for j in order if j != i][:m]
        fall = m / len(x) * unobserved * sum(sigmoid(s - score) for s in others) / max(1, len(others))
        gains.append(p[i] * rise - (1 - p[i]) * fall)
    return gains


POOL, POSITIVE, TRUE = [1.5, 0.5, 0.0, -0.5, -1.0], [2.0, 1.0], [0.5, 0.98, 0.99, 0.995, 0.999]


def gains(x: list[float], positive: list[float], p: list[float], observed: int, unobserved: int, m: int) -> list[float]:
    numbers = (torch.tensor(side, dtype=torch.float64) for side in (x, positive, p))
    return exact_gain(*numbers, torch.tensor(observed), torch.tensor(unobserved), m).tolist()


@pytest.mark.parametrize(
    ("m", "wanted"),
    [
        (1, [0.231059, -0.029242, -0.016351, -0.008808, -0.001848]),
        (2, [0.048633, 0.504423, -0.028801, -0.016119, -0.003483]),
        (5, [-0.308035, 0.470769, 0.332100, 0.224344, 0.158724]),
    ],
)
def test_worked_values(m: int, wanted: list[float]) -> None:
    assert gains(POOL, POSITIVE, TRUE, 2, 10, m) == pytest.approx(wanted, abs=1e-6)
    assert by_hand(POOL, POSITIVE, TRUE, 2, 10, m) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("gamma", [1, 0.5, 0.1, 0.02])
@pytest.mark.parametrize("seed", range(5))
def test_gains_over_all_candidates_are_those_of_loops(gamma: float, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    x, positive = (torch.randn(n, generator=draw, dtype=torch.float64) for n in (100, 7))
    p = torch.rand(100, generator=draw, dtype=torch.float64)
    given = (x.tolist(), positive.tolist(), p.tolist(), 7, 100, round(100 * gamma))
    assert gains(*given) == pytest.approx(by_hand(*given), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("m", [1, 3, 8])
def test_where_all_are_true_negatives_the_highest_wins(m: int) -> None:
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    found = exact_gain(x, torch.zeros(50, 2), torch.ones(50, 8), torch.ones(50), torch.ones(50), m)
    assert torch.equal(found.argmax(-1), x.argmax(-1))


@pytest.mark.parametrize("ecdf", ["auto", "exact", 16])
@pytest.mark.parametrize("n", [1, 2])
def test_the_sampler_takes_the_largest_gain_of_each_pool(ecdf: int | str, n: int) -> None:
    train = corner_cases(30, 40)
    sampler = AUCSampler(rule="exact", candidates=12, inside=3, beta=0.5, alpha=0.9, probes=4, ecdf=ecdf)  # type: ignore[arg-type]
    made = sampler.bind(train)
    users = torch.arange(30)[made.eligible]
    batch = random_batch(made, users, n=n)
    chosen = made.choose(batch)
    assert batch.user_vectors is not None
    assert batch.item_vectors is not None
    scores = (rows(batch.user_vectors, batch.users) @ batch.item_vectors.transpose(1, 2))[0].double()
    pool = made.distribution.draw(batch.users, batch.uniforms[..., : 12 * n])[0].view(-1, n, 12)  # type: ignore[attr-defined]
    drawn = (batch.shared[0] * 40).long()
    own = made.look(batch.users, batch.uniforms, n, drawn[None])[0, :, -4:]  # type: ignore[attr-defined]
    agree = 0
    for b, user in enumerate(users.tolist()):
        for k in range(n):
            items = pool[b, k]
            x = scores[b, items]
            among = {"auto": x, "exact": scores[b]}.get(str(ecdf), scores[b, drawn])
            below = (among[None] <= x[:, None] + 1e-9).sum(1)
            rank = below / 41 if ecdf == "exact" else (1 + below) / (len(among) + 2)
            p = posterior(rank, made.prior[0, items].double(), 0.9)  # type: ignore[attr-defined]
            activity = int(train.activity[user])
            value = by_hand(x.tolist(), scores[b, own[b]].tolist(), p.tolist(), activity, 40 - activity, 3)
            best = max(value)
            agree += value[items.tolist().index(int(chosen[0, b, k]))] == pytest.approx(best, rel=1e-4, abs=1e-5)
    assert agree == len(users) * n


def test_what_every_sampler_promises() -> None:
    check_sampler(
        AUCSampler(rule="exact", candidates=9, inside=2),
        beside=[AUCSampler(rule="exact", candidates=9, inside=2, beta=1)],
    )
    check_sampler(AUCSampler(rule="exact", candidates=4, inside=4, alpha="auto"))
    check_sampler(DynamicSampler(candidates=6, top=3))


def test_dns_takes_each_of_the_highest_as_often() -> None:
    """DNS(M, N): averaged over draws, the loss is that of the M best of N, divided by M."""
    train = corner_cases(30, 40)
    made = DynamicSampler(candidates=8, top=3).bind(train)
    users = torch.full((6000,), 5)
    batch = random_batch(made, users)
    pool = made.distribution.draw(batch.users, batch.uniforms[..., :8])[0]  # type: ignore[attr-defined]
    assert batch.user_vectors is not None
    assert batch.item_vectors is not None
    scores = (rows(batch.user_vectors, batch.users) @ batch.item_vectors.transpose(1, 2))[0]
    order = scores.gather(1, pool).argsort(1, descending=True)
    chosen = made.choose(batch)[0, :, 0]
    counted = Counter(
        next(k for k in range(8) if pool[b, order[b, k]] == chosen[b])
        for b in range(len(users))
        if len(set(pool[b].tolist())) == 8
    )
    assert set(counted) == {0, 1, 2}
    assert max(counted.values()) < 1.15 * min(counted.values())


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (AUCSampler, {"rule": "right"}, "rule"),
        (AUCSampler, {"rule": "exact"}, "of 5 candidates 10 cannot lie inside; raise candidates"),
        (AUCSampler, {"inside": 0}, "inside must be a whole number from 1"),
        (DynamicSampler, {"top": 6}, "of 5 candidates the 6 highest cannot be taken; lower top"),
        (DynamicSampler, {"top": 0}, "top must be a whole number from 1"),
    ],
)
def test_wrong_parameters_are_refused(kind: type, given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kind(**given)
