"""The AUC sampler against the paper's algorithm written out as a loop, and the limits the paper states."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.samplers import AUCSampler, DynamicSampler, bind
from evenhand.samplers.auc import AVERAGE, AUCBound, dkw_bound, gain, information, posterior, prior
from evenhand.samplers.base import Batch
from evenhand.testing import corner_cases, random_batch
from evenhand.utils.errors import InputError


def bound(sampler: AUCSampler, train: Interactions) -> AUCBound:
    made = sampler.bind(train)
    assert isinstance(made, AUCBound)
    return made


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def trust_of(positive: list[float], negative: list[float]) -> float:
    return sum(1.0 if p > q else 0.5 if p == q else 0.0 for p, q in zip(positive, negative, strict=True))


class Oracle:
    """The choice for one replica, one positive at a time, in double precision."""

    def __init__(self, sampler: AUCSampler, train: Interactions, batch: Batch, replica: int = 0) -> None:
        self.sampler, self.train, self.n = sampler, train, batch.n
        self.users = batch.users[replica].tolist()
        self.uniforms = batch.uniforms[replica].tolist()
        self.drawn = [int(u * train.n_items) for u in batch.shared[replica].tolist()]
        assert batch.user_vectors is not None
        assert batch.item_vectors is not None
        self.scores = batch.user_vectors[replica].double().numpy() @ batch.item_vectors[replica].double().numpy().T

    def draws(self, place: int) -> tuple[list[int], list[int], list[int]]:
        """(candidates, negative probes, positive probes) of one positive."""
        own = self.train.row(self.users[place]).tolist()
        left = [i for i in range(self.train.n_items) if i not in own]
        u, pool = self.uniforms[place], self.n * self.sampler.candidates
        end = pool + self.sampler.probes
        negative = [self.from_pool(x, own, left) if self.sampler.pool else left[int(x * len(left))] for x in u[:end]]
        return negative[:pool], negative[pool:], [own[int(x * len(own))] for x in u[end:]]

    def from_pool(self, number: float, own: list[int], left: list[int]) -> int:
        """From a place of the pool on, the first of eight items that the user does not have; else any such item."""
        place = int(number * len(self.drawn))
        for ahead in range(8):
            item = self.drawn[(place + ahead) % len(self.drawn)]
            if item not in own:
                return item
        return left[int(number * len(left))]

    def rank(self, user: int, item: int) -> float:
        mine = self.scores[user, item]
        if not self.sampler.draws(self.train.n_items):
            return sum(s <= mine for s in self.scores[user]) / (self.train.n_items + 1)
        drawn = self.drawn[: self.sampler.draws(self.train.n_items)]
        return (1 + sum(self.scores[user, k] <= mine for k in drawn)) / (len(drawn) + 2)

    def alpha(self) -> float:
        """Fixed, or where the running average starts; a batch moves it for the next one."""
        return 0.5 if self.sampler.alpha == "auto" else float(self.sampler.alpha)

    def gain(self, user: int, item: int, alpha: float, negative: list[int], positive: list[int]) -> float:
        s = self.scores[user]
        rank = self.rank(user, item)
        tau = (self.train.popularity[item] / self.train.popularity.sum()) ** self.sampler.beta
        # The paper's closed form of the posterior.
        above = alpha * tau + (1 - 2 * alpha) * rank * tau
        below = 1 - alpha + (2 * alpha - 1) * rank + (2 * alpha - 1) * tau * (1 - 2 * rank)
        true_negative = above / below
        info_plus = sum(1 - sigmoid(s[p] - s[item]) for p in positive) / len(positive)
        info_minus = sum(1 - sigmoid(s[item] - s[q]) for q in negative) / len(negative)
        n_positive = len(self.train.row(user))
        rise = n_positive * info_plus
        fall = self.sampler.gamma * (self.train.n_items - n_positive) * info_minus
        return true_negative * rise - (1 - true_negative) * fall

    def choose(self, place: int) -> list[int | None]:
        """The chosen items of one positive; None where two are too close to call in single precision."""
        user, alpha = self.users[place], self.alpha()
        pool, negative, positive = self.draws(place)
        chosen: list[int | None] = []
        for begin in range(0, len(pool), self.sampler.candidates):
            candidates = pool[begin : begin + self.sampler.candidates]
            gains = [self.gain(user, x, alpha, negative, positive) for x in candidates]
            best = int(np.argmax(gains))
            others = [g for x, g in zip(candidates, gains, strict=True) if x != candidates[best]]
            close = others and gains[best] - max(others) < 1e-5 * max(1.0, max(map(abs, gains)))
            chosen.append(None if close else candidates[best])
        return chosen


PARAMETERS = st.builds(
    AUCSampler,
    alpha=st.sampled_from([0.5, 0.6, 0.75, 1.0, "auto"]),
    beta=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
    gamma=st.sampled_from([0.0, 0.006, 0.3, 1.0]),
    candidates=st.integers(1, 6),
    probes=st.integers(1, 6),
    ecdf=st.sampled_from(["exact", 1, 7, 40]),
)
POOLED = st.builds(replace, PARAMETERS, ecdf=st.sampled_from(["auto", 1, 3]), pool=st.sampled_from([3, 20, 100]))


@given(sampler=PARAMETERS | POOLED, seed=st.integers(0, 2**20), n=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_chooses_as_the_loop_does(sampler: AUCSampler, seed: int, n: int) -> None:
    train = corner_cases(seed=seed % 50)
    made = bound(sampler, train)
    users = torch.arange(train.n_users)[made.eligible].repeat(4)
    batch = random_batch(made, users, n=n, seed=seed)
    chosen = made.choose(batch)[0].tolist()
    oracle = Oracle(sampler, train, batch)
    decided = 0
    for place, items in enumerate(chosen):
        for mine, true in zip(items, oracle.choose(place), strict=True):
            decided += true is not None
            assert true is None or mine == true
    assert decided > 0.8 * n * len(users)


@pytest.mark.parametrize("wrong", [{"ecdf": "exact"}, {"ecdf": 21}, {"rule": "exact", "inside": 3}])
def test_a_pool_ranks_among_its_own_draws(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="give ecdf a number up to pool"):
        AUCSampler(pool=20, **wrong)  # type: ignore[arg-type]


def test_replicas_with_their_own_parameters_each_match_their_loop() -> None:
    train = corner_cases(seed=5)
    samplers = [
        AUCSampler(),
        AUCSampler(alpha=1, beta=1, gamma=1),
        AUCSampler(alpha="auto", beta=0.5, gamma=0.1),
    ]
    made = bind(samplers, train)
    users = torch.arange(train.n_users)[made.eligible].repeat(10)
    batch = random_batch(made, users, seed=2)
    chosen = made.choose(batch)
    for r, sampler in enumerate(samplers):
        oracle = Oracle(sampler, train, batch, r)
        expected = [oracle.choose(place)[0] for place in range(len(users))]
        decided = [i for i, item in enumerate(expected) if item is not None]
        assert len(decided) > 0.8 * len(users)
        assert [int(chosen[r, i, 0]) for i in decided] == [expected[i] for i in decided]


# ---- the formula and its limits

UNIT = st.floats(0.01, 0.99)


@given(rank=UNIT, tau=UNIT)
def test_alpha_one_half_leaves_the_prior(rank: float, tau: float) -> None:
    got = posterior(torch.tensor(rank, dtype=torch.float64), torch.tensor(tau, dtype=torch.float64), 0.5)
    assert float(got) == pytest.approx(tau, rel=1e-12)


@given(rank=UNIT, tau=UNIT, alpha=st.floats(0.5, 1))
def test_posterior_is_bayes_rule_and_falls_with_rank(rank: float, tau: float, alpha: float) -> None:
    """P(TN|x) = f⁻τ⁻ / (f⁻τ⁻ + f⁺τ⁺), with the two order-statistic densities of the paper."""

    def of(rank: float) -> float:
        return float(posterior(torch.tensor(rank, dtype=torch.float64), torch.tensor(tau).double(), alpha))

    tau32 = float(torch.tensor(tau))
    negative = 2 * (alpha * (1 - rank) + (1 - alpha) * rank)
    positive = 2 * ((1 - alpha) * (1 - rank) + alpha * rank)
    assert of(rank) == pytest.approx(negative * tau32 / (negative * tau32 + positive * (1 - tau32)), rel=1e-9)
    assert of(rank) <= of(rank * 0.9) + 1e-12
    assert 0 <= of(rank) <= 1


def test_full_trust_takes_the_top_item_for_a_false_negative() -> None:
    ranks = torch.tensor([1 / 1e6, 0.5, 1 - 1 / 1e6], dtype=torch.float64)
    low, middle, high = posterior(ranks, torch.tensor(0.5, dtype=torch.float64), 1.0).tolist()
    assert low == pytest.approx(1, abs=1e-5)
    assert middle == pytest.approx(0.5)
    assert high == pytest.approx(0, abs=1e-5)


def test_prior_by_hand() -> None:
    tau = prior(torch.tensor([0, 1, 3, 4]), torch.tensor([[0.0], [1.0], [0.5]]))
    assert tau[0].tolist() == [1, 1, 1, 1]  # β = 0 spares even an item that nobody has
    assert tau[1].tolist() == [0, 0.125, 0.375, 0.5]
    assert tau[2].tolist() == pytest.approx([0, 0.125**0.5, 0.375**0.5, 0.5**0.5])


def test_information_by_hand() -> None:
    margin = torch.tensor([[0.0, math.log(3)], [1e4, -1e4]], dtype=torch.float64)
    assert information(margin).tolist() == pytest.approx([(0.5 + 0.25) / 2, 0.5])


@given(p=st.floats(0, 1), rise=st.floats(0, 1e4), fall=st.floats(0, 1e4))
def test_gain_weighs_rise_against_fall(p: float, rise: float, fall: float) -> None:
    got = float(gain(*(torch.tensor(x, dtype=torch.float64) for x in (p, rise, fall))))
    assert got == pytest.approx(p * rise - (1 - p) * fall)
    assert -fall <= got <= rise
    assert float(gain(torch.tensor(p), torch.tensor(rise), torch.tensor(0.0))) >= 0  # γ = 0 makes fall 0


def captured_gain(monkeypatch: pytest.MonkeyPatch, sampler: AUCSampler, train: Interactions) -> dict[str, torch.Tensor]:
    """The posterior, gain and pool of a random batch, caught on their way to the choice."""
    import evenhand.samplers.auc as auc

    seen: dict[str, torch.Tensor] = {}
    plain_posterior, plain_best = auc.posterior, auc.best

    def spy_posterior(rank: torch.Tensor, tau: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        seen["posterior"] = plain_posterior(rank, tau, alpha)
        seen["rank"], seen["prior"] = rank, tau
        return seen["posterior"]

    def spy_best(value: torch.Tensor, n: int) -> torch.Tensor:
        seen["gain"] = value
        return plain_best(value, n)

    monkeypatch.setattr(auc, "posterior", spy_posterior)
    monkeypatch.setattr(auc, "best", spy_best)
    made = bound(sampler, train)
    users = torch.arange(train.n_users)[made.eligible].repeat(30)
    batch = random_batch(made, users, seed=4)
    made.choose(batch)
    looked = made.look(batch.users, batch.uniforms, 1, made.look_shared(batch.shared))
    return seen | {"pool": looked[..., : sampler.candidates]}


def with_dead_items() -> Interactions:
    """`corner_cases` with three more items that nobody has."""
    log = corner_cases()
    return Interactions.from_pairs(log.users, log.items, n_users=log.n_users, n_items=log.n_items + 3)


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.0, "auto"])
def test_gamma_zero_makes_no_gain_negative(monkeypatch: pytest.MonkeyPatch, alpha: float) -> None:
    seen = captured_gain(monkeypatch, AUCSampler(alpha=alpha, gamma=0), with_dead_items())
    assert (seen["gain"] >= 0).all()
    assert (seen["gain"] > 0).any()


@pytest.mark.parametrize("beta", [0.001, 1.0])
def test_an_item_without_data_is_taken_for_a_false_negative(monkeypatch: pytest.MonkeyPatch, beta: float) -> None:
    train = with_dead_items()
    seen = captured_gain(monkeypatch, AUCSampler(alpha=1.0, beta=beta, gamma=0.3), train)
    dead = seen["pool"] >= 12
    assert dead.any()
    assert (seen["posterior"][dead] == 0).all()
    assert (seen["gain"][dead] <= 0).all()
    assert (seen["posterior"][~dead] > 0).all()


def test_alpha_one_half_ignores_the_rank_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = captured_gain(monkeypatch, AUCSampler(alpha=0.5, beta=0.5), with_dead_items())
    torch.testing.assert_close(seen["posterior"], seen["prior"])


def test_rank_stays_strictly_between_zero_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for ecdf in ("exact", 1, 16):
        seen = captured_gain(monkeypatch, AUCSampler(ecdf=ecdf), with_dead_items())
        assert seen["rank"].min() > 0
        assert seen["rank"].max() < 1


@pytest.mark.parametrize("parameters", [{}, {"alpha": 1, "gamma": 1}, {"alpha": "auto"}, {"ecdf": 9}])
@pytest.mark.parametrize("n", [1, 3])
def test_beta_zero_is_dns(parameters: dict[str, object], n: int) -> None:
    """The same candidates (the first n·M uniforms are the pool) give the same choice."""
    train = corner_cases()
    made = bound(replace(AUCSampler(beta=0), **parameters), train)  # type: ignore[arg-type]
    dns = DynamicSampler(candidates=made.candidates).bind(train)
    users = torch.arange(train.n_users)[made.eligible].repeat(50)
    batch = random_batch(made, users, n=n, seed=9)
    expected = dns.choose(replace(batch, uniforms=batch.uniforms[..., : dns.width(n)]))
    assert torch.equal(made.choose(batch), expected)


@pytest.mark.parametrize("scale", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("sampler", [AUCSampler(), AUCSampler(alpha=1, beta=0, gamma=1), AUCSampler(ecdf=5)])
def test_extreme_scores_and_ties_give_numbers(
    monkeypatch: pytest.MonkeyPatch, sampler: AUCSampler, scale: float
) -> None:
    import evenhand.samplers.auc as auc

    seen: list[torch.Tensor] = []
    plain = auc.best
    monkeypatch.setattr(auc, "best", lambda value, n: (seen.append(value), plain(value, n))[1])
    train = with_dead_items()
    made = bound(sampler, train)
    users = torch.arange(train.n_users)[made.eligible].repeat(20)
    batch = random_batch(made, users)
    signs = torch.where(torch.arange(train.n_items) % 3 == 0, -1.0, 1.0)
    flat = replace(
        batch,
        user_vectors=torch.full((1, train.n_users, 1), scale),
        item_vectors=signs.view(1, -1, 1),
    )
    items = made.choose(flat)[0]
    assert torch.isfinite(seen[0]).all()
    assert not train.contains(users.numpy()[:, None], items.numpy()).any()


def test_ties_take_the_first_candidate() -> None:
    """All scores equal, all popularities equal: every gain is the same, and the first draw wins."""
    train = Interactions.from_pairs([0, 1, 2, 3], [0, 1, 2, 3])
    made = bound(AUCSampler(), train)
    users = torch.arange(4).repeat(20)
    batch = random_batch(made, users)
    flat = replace(batch, user_vectors=torch.zeros(1, 4, 2), item_vectors=torch.zeros(1, 4, 2))
    first = made.distribution.draw(flat.users, flat.uniforms[..., :1])
    assert torch.equal(made.choose(flat), first)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    import evenhand.samplers.auc as auc

    train = corner_cases()
    made = bound(AUCSampler(), train)
    users = torch.arange(train.n_users)[made.eligible].repeat(30)
    batch = random_batch(made, users, n=2)
    whole = made.choose(batch)
    monkeypatch.setitem(auc.RANKED_AT_ONCE, "cpu", 1)
    assert torch.equal(made.choose(batch), whole)


# ---- rank from draws


@pytest.mark.parametrize("draws", [5, 50])
def test_dkw_bound_covers_as_promised(draws: int) -> None:
    """The largest error of a rank from n uniform draws stays within the bound in 95 % of all trials."""
    rng = np.random.default_rng(0)
    sample = np.sort(rng.random((20_000, draws)), axis=1)
    steps = np.arange(draws + 1) / draws
    worst = np.maximum(np.abs(sample - steps[:-1]), np.abs(sample - steps[1:])).max(axis=1)
    for confidence in (0.5, 0.9, 0.95):
        covered = (worst <= dkw_bound(draws, confidence)).mean()
        assert covered >= confidence - 0.01
        # The bound is Massart's tight one: it must not be vacuous either.
        assert covered <= confidence + (1 - confidence) * 0.6


def test_rank_from_draws_lies_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler's own rank, which is pulled towards ½ by at most 1/(n+2), against the exact one."""
    train = corner_cases(n_users=30, n_items=60)
    exact = captured_gain(monkeypatch, AUCSampler(), train)["rank"] * 61 / 60
    draws = 400
    sampled = captured_gain(monkeypatch, AUCSampler(ecdf=draws), train)["rank"]
    off = (exact - sampled).abs()
    within = off <= dkw_bound(draws) + 1 / (draws + 2)
    assert within.float().mean() > 0.95
    assert off.max() > 0


# ---- alpha that follows the model


def test_automatic_alpha_follows_the_probes() -> None:
    train = corner_cases()
    sampler = AUCSampler(alpha="auto")
    made = bound(sampler, train)
    assert made.state()["alpha"].tolist() == [0.5]
    users = torch.arange(train.n_users)[made.eligible].repeat(5)
    expected = 0.5
    for seed in range(8):
        batch = random_batch(made, users, seed=seed)
        oracle = Oracle(sampler, train, batch)
        won = 0.0
        for place, user in enumerate(oracle.users):
            _, negative, positive = oracle.draws(place)
            won += trust_of(list(oracle.scores[user, positive]), list(oracle.scores[user, negative]))
        expected = AVERAGE * expected + (1 - AVERAGE) * won / (len(users) * sampler.probes)
        made.choose(batch)
        assert float(made.state()["alpha"]) == pytest.approx(expected, rel=1e-5)
        assert made.diagnostics()["alpha"].tolist() == made.state()["alpha"].tolist()


def misleading_batch(made: AUCBound, users: torch.Tensor, seed: int, sign: float) -> Batch:
    """Vectors by which every user scores its own items at +sign and all others at -sign."""
    batch = random_batch(made, users, seed=seed)
    own = torch.zeros(made.n_users, made.n_items)
    start = [*made._row_start.tolist(), len(made._items)]
    for user in range(made.n_users):
        own[user, made._items[start[user] : start[user + 1]].long()] = 1
    return replace(batch, user_vectors=sign * (2 * own - 1).unsqueeze(0), item_vectors=torch.eye(made.n_items)[None])


def test_alpha_is_clipped_when_used_not_when_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    import evenhand.samplers.auc as auc

    used: list[float] = []
    plain = auc.posterior
    monkeypatch.setattr(auc, "posterior", lambda r, t, a: (used.append(float(a)), plain(r, t, a))[1])
    made = bound(AUCSampler(alpha="auto"), corner_cases())
    users = torch.arange(made.n_users)[made.eligible]
    for seed in range(100):
        made.choose(misleading_batch(made, users, seed, -1))
    assert float(made.alpha) == pytest.approx(0.5 * AVERAGE**100, rel=1e-4)
    assert used == [0.5] * 100
    for seed in range(400):
        made.choose(misleading_batch(made, users, seed, +1))
    assert used[-1] == pytest.approx(1 - (1 - 0.5 * AVERAGE**100) * AVERAGE**399, rel=1e-4)
    assert float(made.alpha) == pytest.approx(1 - (1 - 0.5 * AVERAGE**100) * AVERAGE**400, rel=1e-4)


def test_fixed_alpha_beside_an_automatic_one_does_not_move() -> None:
    made = bind([AUCSampler(alpha=0.8), AUCSampler(alpha="auto")], corner_cases())
    users = torch.arange(made.n_users)[made.eligible]
    for seed in range(5):
        made.choose(random_batch(made, users, seed=seed))
    fixed, moving = made.state()["alpha"].tolist()
    assert fixed == pytest.approx(0.8)
    assert moving != 0.5


def test_loaded_alpha_continues_alike() -> None:
    train = corner_cases()
    first, second = bound(AUCSampler(alpha="auto"), train), bound(AUCSampler(alpha="auto"), train)
    users = torch.arange(train.n_users)[first.eligible].repeat(5)
    for seed in range(4):
        first.choose(random_batch(first, users, seed=seed))
    second.load_state(first.state())
    for seed in range(4, 8):
        batch = random_batch(first, users, seed=seed)
        assert torch.equal(first.choose(batch), second.choose(batch))
        assert torch.equal(first.alpha, second.alpha)
    assert bound(AUCSampler(), train).state() == {}
