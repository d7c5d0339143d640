"""AUC-optimal negative sampling (AUC-NS), the sampler of the paper.

A candidate is worth what its descent adds to the partial AUC: it frees the user's positives if it is a
true negative, and costs rank against the other negatives if it is a false one. Which of the two it is, is
estimated from the model's own score rank (trusted as far as α) and the item's popularity (weighted by β).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import (
    Batch,
    Looked,
    LookingSampler,
    Sampler,
    best,
    check_drawn,
    is_in,
    products,
    rows,
    stacked,
)
from evenhand.samplers.counting import count_below, counter
from evenhand.samplers.unobserved import UnobservedDistribution, scaled
from evenhand.utils.errors import InputError, unknown

EXACT_UP_TO = 4000
"""The largest catalogue whose ranks are exact unless `ecdf` says otherwise."""
DRAWS = 64
"""Draws that a rank rests on in a larger one."""
POOL_TRIES = 8
"""Items of a shared pool that are looked at for one that the user does not have."""
AVERAGE = 0.99
"""How slowly the running macro-AUC of `alpha="auto"` follows the batches."""
RANKED_AT_ONCE = {"cpu": 2**19, "cuda": 2**24}
"""How many scores the exact rank holds at once: what fits the caches of a CPU, what fills a GPU."""


def posterior(rank: Tensor, prior: Tensor, alpha: Tensor | float) -> Tensor:
    """P(TN | x): the probability that an unobserved item is a true negative.

    `rank` is the score's distribution function Φ(x̂) in (0, 1), `prior` is τ⁻, and `alpha` the probability
    that the model puts a positive above a negative: ½ leaves the prior as it is, 1 trusts the rank fully.
    """
    true_negative = (alpha * (1 - rank) + (1 - alpha) * rank) * prior
    false_negative = ((1 - alpha) * (1 - rank) + alpha * rank) * (1 - prior)
    return true_negative / (true_negative + false_negative)


def information(margin: Tensor) -> Tensor:
    """Info: the mean of 1 - σ(margin) over the probes in the last axis, computed as σ(-margin)."""
    return torch.sigmoid(-margin).mean(-1)


def gain(posterior: Tensor, rise: Tensor, fall: Tensor) -> Tensor:
    """Δ⁺·P(TN|x) - Δ⁻·P(FN|x): how much taking x as the negative raises the partial AUC."""
    return rise * posterior - fall * (1 - posterior)


def exact_gain(x: Tensor, positive: Tensor, posterior: Tensor, observed: Tensor, unobserved: Tensor, m: int) -> Tensor:
    """[…, N]: what taking each x of a pool [..., N] adds to the partial AUC over the pool's m best scores.

    A true negative outside of them frees no positive, since none of its pairs counts. A false one costs rank against
    the m best of the others. `observed` and `unobserved` [...] are |I⁺| and |I⁻| of the user, `positive` [..., K] the
    scores of some of the positives. With posterior 1 the highest score wins (DNS).
    """
    pool = x.shape[-1]
    top = x.topk(min(m + 1, pool), dim=-1)
    inside = torch.zeros_like(x, dtype=torch.bool).scatter_(-1, top.indices[..., :m], True)
    # σ(s_j - s_x) over the m best; for an x among them, over the next one too and without itself, whose σ is ½.
    harm = torch.sigmoid(top.values.unsqueeze(-2) - x.unsqueeze(-1))
    best = harm[..., :m].sum(-1)
    others = torch.where(inside, harm.sum(-1) - 0.5, best) / torch.where(inside, min(m, pool - 1), m).clamp_min(1)
    rise = inside * observed.unsqueeze(-1) * information(positive.unsqueeze(-2) - x.unsqueeze(-1))
    return gain(posterior, rise, m / pool * unobserved.unsqueeze(-1) * others)


def prior(popularity: Tensor, beta: Tensor | float) -> Tensor:
    """τ⁻ = (pop_i / Σ pop)^β, the prior probability that an unobserved item is a true negative.

    Not renormalised: τ⁻ is near 1 for the small β in use and *falls* as β grows, least for popular items.
    β = 0 makes every unobserved item a true negative, and the sampler that of DNS.
    """
    popularity = popularity.to(torch.float32)
    return (popularity / popularity.sum()) ** beta


def dkw_bound(draws: int, confidence: float = 0.95) -> float:
    """How far a rank from `draws` uniform draws may lie from the exact one (Dvoretzky-Kiefer-Wolfowitz).

    With the stated confidence, no rank of a user is off by more than this: sqrt(ln(2 / (1 - c)) / 2n).

    >>> round(dkw_bound(64), 3), round(dkw_bound(1024), 3)
    (0.17, 0.042)
    """
    return math.sqrt(math.log(2 / (1 - confidence)) / (2 * draws))


@dataclass(frozen=True)
class AUCSampler(Sampler):
    """`argmax_x Δ⁺·P(TN|x) - Δ⁻·P(FN|x)` over a few uniform candidates."""

    alpha: float | Literal["auto"] = 0.75
    """Trust in the score rank, in [½, 1]: the model's macro-AUC. "auto" follows it from the probes so far."""
    beta: float = 0.01
    """How strongly popularity speaks for a true negative, ≥ 0; 0 is DNS."""
    gamma: float = 0.006
    """The range of false-positive rates that counts, in [0, 1]: weighs the harm of a false negative."""
    candidates: int = 5
    """Pool size M."""
    probes: int = 10
    """How many positives and how many negatives estimate Δ⁺ and Δ⁻."""
    ecdf: int | Literal["exact", "auto"] = "auto"
    """A score's rank among the whole catalogue ("exact"), or among n uniform draws shared by the batch.

    "auto" is exact up to 4,000 items and takes 64 draws beyond, so that cost does not follow the catalogue.
    """

    pool: int | None = None
    """Draw so many items once for a batch, and candidates, negative probes and rank draws among them alone.

    Another distribution, for training over several processes: a batch asks for fewer rows. None draws among all.
    """
    rule: Literal["paper", "exact"] = "paper"
    """The printed rule, or the one with its missing indicator: of a pool, only the `inside` best free any positive."""
    inside: int = 10
    """How many of the candidates lie inside the range that counts, in the exact rule: γ = inside / candidates.

    It wants a pool of 100 or more. `gamma` has no part in it, and "auto" ranks are those within the pool.
    """

    structural = ("candidates", "probes", "ecdf", "pool", "rule", "inside")

    def __post_init__(self) -> None:
        if self.alpha != "auto" and not (isinstance(self.alpha, (int, float)) and 0.5 <= self.alpha <= 1):
            raise InputError(f"alpha must lie in [0.5, 1] or be 'auto', not {self.alpha}.")
        if not 0 <= self.beta < math.inf:
            raise InputError(f"beta must be a number of at least 0, not {self.beta}.")
        if not 0 <= self.gamma <= 1:
            raise InputError(f"gamma must lie in [0, 1], not {self.gamma}.")
        for name in ("candidates", "probes", "inside"):
            check_drawn(name, getattr(self, name))
        if self.rule not in ("paper", "exact"):
            raise unknown("rule", str(self.rule), ("paper", "exact"))
        if self.rule == "exact" and self.inside > self.candidates:
            raise InputError(f"of {self.candidates} candidates {self.inside} cannot lie inside; raise candidates.")
        if self.ecdf not in ("exact", "auto"):
            check_drawn("ecdf", self.ecdf, "'exact', 'auto' or ")
        if self.pool is not None:
            check_drawn("pool", self.pool)
            if self.ecdf == "exact" or self.rule == "exact" or (isinstance(self.ecdf, int) and self.ecdf > self.pool):
                raise InputError("of a pool, ranks are those among its first draws: give ecdf a number up to pool.")

    def draws(self, n_items: int) -> int:
        """How many draws a rank rests on in a catalogue of this size; 0 for the exact rank, or that in the pool."""
        if isinstance(self.ecdf, int):
            return self.ecdf
        if self.pool_ranks:
            return 0
        if self.pool is not None:
            return min(DRAWS, self.pool)
        return DRAWS if self.ecdf == "auto" and n_items > EXACT_UP_TO else 0

    @property
    def pool_ranks(self) -> bool:
        """Whether a score's rank is that among the candidates themselves."""
        return self.rule == "exact" and self.ecdf == "auto"

    @classmethod
    def bind_replicas(cls, replicas: Sequence[AUCSampler], train: Interactions, device: torch.device | str) -> AUCBound:
        return AUCBound(replicas, train, device)


class AUCBound(LookingSampler):
    needs_vectors = True

    def __init__(self, samplers: Sequence[AUCSampler], train: Interactions, device: torch.device | str) -> None:
        super().__init__(train, device, len(samplers))
        first = samplers[0]
        self.candidates, self.probes = first.candidates, first.probes
        self.draws = first.draws(train.n_items)
        """Draws that a rank rests on, 0 for the exact one: the first of those that a batch shares."""
        self.pool = first.pool
        self.shared_width = self.pool or self.draws
        self._keys = None if self.pool is None else torch.from_numpy(train.keys).to(device)
        self.inside = first.inside if first.rule == "exact" else None
        self._pool_ranks = first.pool_ranks
        self.distribution = UnobservedDistribution(train, None, device)
        self._row_start = torch.from_numpy(train.indptr[:-1]).to(self.device)
        self._items = torch.from_numpy(train.items).to(self.device)
        self.auto = torch.tensor([s.alpha == "auto" for s in samplers], device=self.device)
        self.follows = any(s.alpha == "auto" for s in samplers)
        self.won: Callable[[Tensor], None] = self._follow
        """Called with a batch's probes: 1 where the positive one is above, ½ at a tie; engines may gather them."""
        start = [0.5 if s.alpha == "auto" else float(s.alpha) for s in samplers]
        self.alpha = torch.tensor(start, device=self.device)
        """float32 [R]: fixed, or the running macro-AUC where it is automatic."""
        beta = stacked(samplers, "beta", self.device).squeeze(-1)
        self.gamma = stacked(samplers, "gamma", self.device)
        self.prior = prior(torch.from_numpy(train.popularity).to(self.device), beta)
        """float32 [R, n_items]: τ⁻ of every item."""

    @property
    def eligible(self) -> Tensor:
        return (self.distribution.mass > 0) & (self.observed > 0)

    def width(self, n: int) -> int:
        return n * self.candidates + 2 * self.probes

    def state(self) -> dict[str, Tensor]:
        return {"alpha": self.alpha} if self.follows else {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if state:
            self.alpha.copy_(state["alpha"])

    def diagnostics(self) -> dict[str, Tensor]:
        return {"alpha": self.alpha.clone()}

    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        """Candidates, negative probes, positive probes."""
        drawn = self.distribution.draw(users, uniforms[..., : -self.probes])
        if self._keys is not None:
            drawn = self._from_pool(users, uniforms[..., : -self.probes], shared, drawn)
        owner = users.unsqueeze(-1)
        place = self._row_start[owner] + scaled(uniforms[..., -self.probes :], self.observed[owner])
        return torch.cat([drawn, self._items[place].long()], dim=-1)

    def _from_pool(self, users: Tensor, uniforms: Tensor, pool: Tensor, instead: Tensor) -> Tensor:
        """Of a few items of the pool from a random place on the first that is not the user's; `instead` if all are."""
        assert self._keys is not None
        size = pool.shape[-1]
        place = (uniforms * size).long().clamp_max_(size - 1)
        replica = torch.arange(len(pool), device=self.device).view(-1, 1, 1)
        for ahead in range(POOL_TRIES - 1, -1, -1):
            item = pool[replica, (place + ahead) % size]
            instead = torch.where(is_in(self._keys, users.unsqueeze(-1) * self.n_items + item), instead, item)
        return instead

    def pick(self, batch: Batch, looked: Looked) -> Tensor:
        users, pool = batch.users, looked.items[..., : batch.n * self.candidates]
        x, positive, negative, rank = self._scores(batch, looked, pool)

        tau = torch.gather(self.prior, 1, pool.flatten(1)).view(pool.shape)
        true_negative = posterior(rank, tau, self.alpha.clamp(0.5, 1.0).view(-1, 1, 1))
        observed, unobserved = self.observed[users].unsqueeze(-1), self.distribution.mass[users].unsqueeze(-1)
        if self.inside is None:
            rise = observed * information(positive.unsqueeze(2) - x.unsqueeze(3))
            fall = self.gamma * unobserved * information(x.unsqueeze(3) - negative.unsqueeze(2))
            value = gain(true_negative, rise, fall)
        else:
            pools = (*users.shape, batch.n, self.candidates)
            value = exact_gain(
                x.view(pools), positive.unsqueeze(2), true_negative.view(pools), observed, unobserved, self.inside
            )
        if self.follows:
            won = (positive > negative).float() + 0.5 * (positive == negative).float()
            self.won(won)
        return best(value, batch.n)

    def _follow(self, won: Tensor) -> None:
        """Let the running macro-AUC take note of a batch's probes, where α is automatic."""
        followed = AVERAGE * self.alpha + (1 - AVERAGE) * won.mean((1, 2))
        self.alpha.copy_(torch.where(self.auto, followed, self.alpha))

    def _scores(self, batch: Batch, looked: Looked, pool: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores of candidates and probes, and the candidates' rank among all items or the shared draws."""
        assert batch.user_vectors is not None
        assert batch.item_vectors is not None
        users = rows(batch.user_vectors, batch.users)
        sizes = [pool.shape[-1], self.probes, self.probes]
        if self._pool_ranks:
            scores = products(rows(batch.item_vectors, looked.rows), users)
            x = scores[..., : sizes[0]].unflatten(-1, (batch.n, self.candidates)).contiguous()
            below = torch.searchsorted(x.sort(-1).values, x, right=True).flatten(2)
            rank = (1 + below) / (self.candidates + 2)
        elif not self.draws:
            scores, rank = self._among_all(users, batch.item_vectors, looked.rows, sizes[0])
        else:
            scores = products(rows(batch.item_vectors, looked.rows), users)
            sample = users @ rows(batch.item_vectors, looked.shared_rows[:, : self.draws]).transpose(1, 2)
            below = count_below(sample, scores[..., : sizes[0]], looked.shared[:, None, : self.draws], pool)
            rank = (1 + below) / (self.draws + 2)
        x, negative, positive = scores.split(sizes, dim=-1)
        return x, positive, negative, rank

    def _among_all(self, users: Tensor, items: Tensor, looked_at: Tensor, m: int) -> tuple[Tensor, Tensor]:
        step = max(1, RANKED_AT_ONCE.get(users.device.type, 2**24) // (users.shape[0] * self.n_items))
        count = counter(users.device.type)
        scores, ranks = [], []
        for begin in range(0, users.shape[1], step):
            everything = users[:, begin : begin + step] @ items.transpose(1, 2)
            scores.append(everything.gather(-1, looked_at[:, begin : begin + step]))
            ranks.append(count(everything, scores[-1][..., :m]) / (self.n_items + 1))
        return torch.cat(scores, dim=1), torch.cat(ranks, dim=1)
