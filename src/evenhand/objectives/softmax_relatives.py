"""Relatives of the sampled softmax: PSL, BSL, SL@K, and AUC-softmax, which weighs negatives as AUC-NS does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables
from evenhand.objectives.base import Scored, check_positive, mine
from evenhand.objectives.softmax import Softmax, SoftmaxLoss, own_among
from evenhand.samplers.auc import posterior, prior
from evenhand.utils import keyed
from evenhand.utils.errors import InputError, unknown

Activation = Literal["exp", "tanh", "atan", "relu"]
_BSL_TRIED = ((0.12, 0.95), (0.07, 1.1), (0.12, 1.1), (0.07, 1.25), (0.2, 1.25))
"""τ and t that a fit tries: logs as they are want a larger t than tests that ask for rare items (docs/sparse.md)."""
_BELOW_ALL = -1e6
"""A β that every score is above."""
_REFRESH = 0x51A7
USERS_AT_ONCE, PAIRS_AT_ONCE = 2048, 2**17
"""Users whose β is renewed together, and how many training items they may have between them."""
_SCORED_AT_ONCE = 2**14


@dataclass(frozen=True)
class PSL(Softmax):
    """Pairwise softmax loss: `z(x) = 2/τ · log φ(x/2)` with φ = 1 + tanh, 1 + atan or 1 + x, cut at 0 (relu).

    φ = exp is the softmax. The others grow more slowly, so that false negatives weigh less. τ is on the scale of
    cosines: twice the published one.
    """

    activation: Activation = "relu"
    """φ: exp, tanh, atan or relu."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.activation not in get_args(Activation):
            raise unknown("activation", str(self.activation), get_args(Activation))
        if self.similarity != "cosine":
            raise InputError("psl is for cosines; its activations know differences from -2 to 2 only.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return PSLLoss(self, train, model)


class PSLLoss(SoftmaxLoss):
    def curve(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        assert isinstance(self.of, PSL)
        logarithm, slope = _log_activation(x / 2, self.of.activation)
        return logarithm.mul_(2 / self.temperature), slope / self.temperature


def _log_activation(x: Tensor, activation: Activation) -> tuple[Tensor, Tensor]:
    """log φ and its derivative."""
    if activation == "exp":
        return x, torch.ones_like(x)
    if activation == "tanh":
        return math.log(2) - softplus(-2 * x), 1 - x.tanh()
    if activation == "atan":
        height = 1 + x.atan()
        return height.log(), 1 / (height * (1 + x * x))
    height = (1 + x).clamp_min(1e-6)
    return height.log(), torch.where(height > 1e-6, 1 / height, 0.0)


@dataclass(frozen=True)
class BSL(Softmax):
    """`t·log Σ_j exp(c_j/τ) - c_i/τ`: a weight t on the negatives; above 1 it spreads vectors, below it gathers."""

    negative_weight: float | None = None
    """t; 1 is the softmax. None settles it on validation, among .95, 1.1 and 1.25; without one it is 1.1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negative_weight is not None:
            check_positive("negative_weight", self.negative_weight)

    def forms(self) -> tuple[Softmax, ...]:
        if self.negative_weight is not None:
            return super().forms()
        if self.temperature is None and self.similarity == "cosine":
            return tuple(replace(self, temperature=tau, negative_weight=t) for tau, t in _BSL_TRIED)
        return tuple(replace(super(BSL, self).closed(), negative_weight=t) for t in (0.95, 1.1, 1.25))

    def closed(self) -> Self:
        one = super().closed()
        return one if one.negative_weight is not None else replace(one, negative_weight=1.1)

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return BSLLoss(self, train, model)


class BSLLoss(SoftmaxLoss):
    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        assert isinstance(self.of, BSL)
        assert self.of.negative_weight is not None
        weight = self.of.negative_weight
        return super().of_margin(weight * margin + (weight - 1) * own / self.temperature, own, batch)


@dataclass(frozen=True)
class SLatK(Softmax):
    """SL@K: each positive weighs `σ((c_i - β_u)/weight_temperature)`, β_u the score at which the user's top k begins.

    The weight has a gradient: a positive far below its negatives is pulled less. β is taken from the user's training
    items and a sample of others, and renewed for all users now and then; until then it is 0.
    """

    k: int = 20
    """Length of the list that counts; with k = all items every weight is 1."""
    weight_temperature: float = 2.25
    """How softly the weight falls around β; 1 suits Gowalla and little else (docs/sparse.md)."""
    refresh: int = 5
    """Epochs after which β is renewed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("weight_temperature", self.weight_temperature)
        for name in ("k", "refresh"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return SLatKLoss(self, train, model, seeds)


class SLatKLoss(SoftmaxLoss):
    def __init__(self, of: SLatK, train: Interactions, model: Tables, seeds: Sequence[int]) -> None:
        super().__init__(of, train, model)
        device = model.items.device
        self.k, self.every, self.softness, self.seeds = of.k, of.refresh, of.weight_temperature, tuple(seeds)
        first = _BELOW_ALL if of.k >= train.n_items else 0.0
        self.beta = nn.Parameter(torch.full((len(seeds), train.n_users), first, device=device), requires_grad=False)
        """[R, n_users]: the score at which a user's top k begins; a parameter, so that checkpoints hold it."""
        self.fetch: Callable[[Tensor, int, Tensor], tuple[Tensor, Tensor]] = lambda items, r, ids: (items[r], ids)
        """Vectors of items of a replica: a table, and where in it they lie; an engine may have to ask other ranks."""
        self.rounds: Callable[[int], int] = lambda n: n
        """How often to ask for vectors where it takes n times: as often as the rank that asks most often."""

    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        beta = mine(self.beta, batch).gather(1, batch.users)
        return torch.sigmoid((own - beta) / self.softness) * super().of_margin(margin, own, batch)

    @torch.no_grad()
    def refresh(self, model: Tables, epoch: int) -> None:
        if epoch == 0 or epoch % self.every or self.k >= self.n_items:
            return
        vectors = model()
        blocks = self._blocks()
        for r, seed in enumerate(self.seeds):
            key = torch.tensor(keyed.key(seed, epoch, _REFRESH), device=self.beta.device)
            drawn = (keyed.uniforms(key, self.of.shared) * self.n_items).long()
            table, at = self.fetch(vectors.items, r, drawn)
            others = self.scaled(table[at])
            for i in range(self.rounds(len(blocks))):
                first, last = blocks[i] if i < len(blocks) else (0, 0)
                users = torch.arange(first, last, device=drawn.device)
                owner, items = self.rows_of(users)
                table, at = self.fetch(vectors.items, r, items)
                if len(users):
                    mine = self.scaled(vectors.users[r, _filled(first, last, USERS_AT_ONCE, users)])
                    own = self._own(mine, owner, table, at, len(users))
                    rest = (mine @ others.mT)[: len(users)]
                    seen = own_among(owner, items, len(users), drawn)
                    self.beta[r, users] = top_k_edge(own, rest.masked_fill_(seen, -math.inf), self.k)

    def _blocks(self) -> list[tuple[int, int]]:
        """Users in blocks that have a limited number of items between them, or are a single one."""
        indptr, found, first = self.indptr.cpu(), [], 0
        while first < len(indptr) - 1:
            last = int(torch.searchsorted(indptr, indptr[first] + PAIRS_AT_ONCE, right=True)) - 1
            last = min(max(last, first + 1), first + USERS_AT_ONCE)
            found.append((first, last))
            first = last
        return found

    def _own(self, users: Tensor, owner: Tensor, table: Tensor, at: Tensor, n: int) -> Tensor:
        """[n, at most k]: the highest scores of each user's own items, which are rows `at` [pairs] of a table."""
        scores = users.new_empty(len(owner))
        for first in range(0, len(owner), _SCORED_AT_ONCE):
            some = _filled(first, len(owner), _SCORED_AT_ONCE, owner)
            scored = (users[owner[some]] * self.scaled(table[at[some]])).sum(-1)
            scores[first : first + _SCORED_AT_ONCE] = scored[: len(owner) - first]
        order = scores.argsort(descending=True)
        order = order[owner[order].argsort(stable=True)]
        place = torch.arange(len(owner), device=owner.device) - torch.searchsorted(owner, owner)
        best = place < self.k
        own = scores.new_full((n, 1 + int(place[best].max()) if len(owner) else 1), -math.inf)
        own[owner[best], place[best]] = scores[order][best]
        return own


def _filled(first: int, last: int, size: int, like: Tensor) -> Tensor:
    """int64 [size]: first … last-1, the last one repeated: of one shape, so that no row rounds as others make it."""
    return torch.arange(first, first + size, device=like.device).clamp_max_(last - 1)


def top_k_edge(own: Tensor, others: Tensor, k: int) -> Tensor:
    """[users]: the k-th largest of a user's scores in both tables, or the least where there are fewer; -inf is none.

    >>> top_k_edge(torch.tensor([[1.0, 0.5]]), torch.tensor([[0.7, -torch.inf]]), 2)
    tensor([0.7000])
    """
    scores = torch.cat([own, others], -1)
    best = scores.topk(min(k, scores.shape[-1])).values
    there = (best > -math.inf).sum(-1, keepdim=True).clamp_min(1)
    return best.gather(-1, there - 1).squeeze(-1).clamp_min(_BELOW_ALL)


@dataclass(frozen=True)
class AUCSoftmax(Softmax):
    """Each shared negative counts with the probability P(TN|x) that it is a true negative, as AUC-NS estimates it.

    The rank is that of the score among the shared negatives of the user; the prior is the item's popularity. Weights
    have no gradient. P = 1 is the softmax.
    """

    alpha: float = 0.75
    """Trust in the score rank, in [½, 1]."""
    beta: float = 0.1
    """How strongly popularity speaks for a true negative, ≥ 0; at 0 every weight is 1. The paper's .01 is for samplers:
    as a weight, .1 has at least as much on five of six tests, and up to 7 % more (docs/sparse.md)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.alpha <= 1:
            raise InputError(f"alpha must lie in [0.5, 1], not {self.alpha}.")
        if not 0 <= self.beta < math.inf:
            raise InputError(f"beta must be a number of at least 0, not {self.beta}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return AUCSoftmaxLoss(self, train, model)


class AUCSoftmaxLoss(SoftmaxLoss):
    def __init__(self, of: AUCSoftmax, train: Interactions, model: Tables) -> None:
        super().__init__(of, train, model)
        self.alpha = of.alpha
        self.prior = prior(torch.from_numpy(train.popularity).to(model.items.device), of.beta)
        """float32 [n_items]: τ⁻ of every item."""

    def log_weights(self, x: Tensor, batch: Scored, masked: Tensor) -> Tensor:
        true_negative = posterior(ranks(x, masked), self.prior[batch.negatives].to(x.dtype), self.alpha).log()
        others = super().log_weights(x, batch, masked)
        return true_negative if others is None else true_negative + others


def ranks(x: Tensor, masked: Tensor) -> Tensor:
    """[r, B, n]: (1 + #{≤}) / (m + 2) of each score among the m scores of its row that are not masked.

    >>> ranks(torch.tensor([0.1, 0.3, 0.2]), torch.tensor([False, False, True])).tolist()[:2]
    [0.5, 0.75]
    """
    there = x.masked_fill(masked, math.inf).sort(-1).values
    below = torch.searchsorted(there, x, right=True)
    m = (~masked).sum(-1, keepdim=True)
    return (1 + torch.minimum(below, m)) / (m + 2).to(x.dtype)
