"""Sampled softmax and its relatives: each positive against negatives that the whole batch shares.

With scores c (cosines or inner products) and temperature τ, all of them rest on one number for each positive,

    margin = log Σ_j w_j · exp(z(c_j - c_i)),   z(x) = x / τ,

which is the loss (N) of the literature. `positive` puts the positive into the sum: softplus(margin), form (S). PSL
has another z, BSL weighs the negatives' part, SL@K weighs each positive, and AUC-softmax each negative (w). An own
training item of the user that is among the shared negatives has w = 0. Gradients are in closed form: one product with
the shared negatives, one pass over its rows, two products back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.objectives.base import Loss, Objective, Scored, mine
from evenhand.samplers.auc import posterior, prior
from evenhand.samplers.base import check_drawn, rows
from evenhand.utils import keyed
from evenhand.utils.errors import InputError, unknown

Similarity = Literal["cosine", "inner"]
Activation = Literal["exp", "tanh", "atan", "relu"]
_ALL_MASKED = -1e30
"""Stands for log 0 where a maximum must be finite."""
_BELOW_ALL = -1e6
"""A β that every score is above."""
_REFRESH = 0x51A7
_USERS_AT_ONCE = 2048


@dataclass(frozen=True)
class Softmax(Objective):
    """`log Σ_j exp(c_j/τ) - c_i/τ`, the mean over a batch (SL, SSM)."""

    temperature: float = 0.15
    """τ, on the scale of cosines; dense data wants a larger one. For inner products 1 is usual."""
    shared: int = 1024
    """How many negatives a batch shares, drawn with replacement from the sampler's distribution over all items."""
    similarity: Similarity = "cosine"
    """What is trained and, in the end, recommended by."""
    positive: bool = False
    """Put the positive into the sum as well, so that pairs that are well apart come to rest."""
    correction: bool = False
    """Divide each negative's term by n·q_j, its expected number of draws: the sum over all items, without bias."""

    shares_negatives: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _positive_number("temperature", self.temperature)
        check_drawn("shared", self.shared)
        if self.similarity not in get_args(Similarity):
            raise unknown("similarity", str(self.similarity), get_args(Similarity))
        for name in ("positive", "correction"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)}.")

    @property
    def negatives(self) -> int:
        return self.shared

    @property
    def lengths_matter(self) -> bool:
        return self.similarity == "inner"

    @property
    def init_std(self) -> float | None:
        """A cosine loss sees only lr over the rows' size: with one size for all data, lr means the same on all."""
        return 0.02 if self.similarity == "cosine" else None

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return SoftmaxLoss(self, train, model)


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


@dataclass(frozen=True)
class BSL(Softmax):
    """`t·log Σ_j exp(c_j/τ) - c_i/τ`: a weight t on the negatives; above 1 it spreads vectors, below it gathers."""

    negative_weight: float = 1.1
    """t; 1 is the softmax."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive_number("negative_weight", self.negative_weight)

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return BSLLoss(self, train, model)


@dataclass(frozen=True)
class SLatK(Softmax):
    """SL@K: each positive weighs `σ((c_i - β_u)/weight_temperature)`, β_u the score at which the user's top k begins.

    The weight has a gradient: a positive far below its negatives is pulled less. β is taken from the user's training
    items and a sample of others, and renewed for all users now and then; until then it is 0.
    """

    k: int = 20
    """Length of the list that counts; with k = all items every weight is 1."""
    weight_temperature: float = 1.0
    """How softly the weight falls around β."""
    refresh: int = 5
    """Epochs after which β is renewed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive_number("weight_temperature", self.weight_temperature)
        for name in ("k", "refresh"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return SLatKLoss(self, train, model, seeds)


@dataclass(frozen=True)
class AUCSoftmax(Softmax):
    """Each shared negative counts with the probability P(TN|x) that it is a true negative, as AUC-NS judges it.

    The rank is that of the score among the shared negatives of the user; the prior is the item's popularity. Weights
    have no gradient. P = 1 is the softmax.
    """

    alpha: float = 0.75
    """Trust in the score rank, in [½, 1]."""
    beta: float = 0.01
    """How strongly popularity speaks for a true negative, ≥ 0; at 0 every weight is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.5 <= self.alpha <= 1:
            raise InputError(f"alpha must lie in [0.5, 1], not {self.alpha}.")
        if not 0 <= self.beta < math.inf:
            raise InputError(f"beta must be a number of at least 0, not {self.beta}.")

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return AUCSoftmaxLoss(self, train, model)


class SoftmaxLoss(Loss):
    decays = False

    def __init__(self, of: Softmax, train: Interactions, model: Tables) -> None:
        super().__init__()
        self.of, self.n_items = of, train.n_items
        self.transforms = of.similarity == "cosine"
        self.keys = torch.from_numpy(train.keys).to(model.items.device)
        """int64 [n_pairs], ascending: user · n_items + item."""
        self.compiled: Callable[..., Tensor | None] = lambda loss, batch, x, own: None
        """A faster way from scores to margins and slopes, where an engine has one."""

    def forward(self, batch: Scored) -> Tensor:
        user, positive, negative = (self.scaled(x) for x in (batch.user, batch.positive, batch.negative.squeeze(1)))
        own = (user * positive).sum(-1)
        margin = _SharedMargin.apply(user, negative, own, self, batch)
        loss = self.of_margin(margin, own, batch)
        return torch.where(margin > _ALL_MASKED, loss, 0.0).mean(1)

    def scaled(self, x: Tensor) -> Tensor:
        return normalize(x, dim=-1) if self.of.similarity == "cosine" else x

    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        """[r, B]: the loss of each positive from its margin and its own score."""
        return softplus(margin) if self.of.positive else margin

    def curve(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """z of the differences c_j - c_i, which it may overwrite, and dz/dx."""
        return x.div_(self.of.temperature), 1 / self.of.temperature

    def log_weights(self, x: Tensor, batch: Scored, masked: Tensor) -> Tensor | None:
        """log w [r, 1, n] or [r, B, n] of the negatives, masks aside."""
        if not self.of.correction:
            return None
        assert batch.log_q is not None
        return -(batch.log_q + math.log(batch.negatives.shape[-1])).to(x.dtype)

    def masked(self, batch: Scored) -> Tensor:
        """bool [r, B, n]: whether a shared negative is a training item of the positive's user."""
        wanted = batch.users.unsqueeze(-1) * self.n_items + batch.negatives
        return self.keys[torch.searchsorted(self.keys, wanted).clamp_max_(len(self.keys) - 1)] == wanted

    def finals(self, vectors: Vectors) -> tuple[Vectors, ...]:
        return (unit_length(vectors) if self.of.similarity == "cosine" else vectors,)


class _SharedMargin(torch.autograd.Function):
    """[r, B]: log Σ_j w_j·exp(z(c_j - c_i)) from users [r, B, d], shared negatives [r, n, d] and own scores [r, B].

    What is kept for the gradient is one [r, B, n] of slopes ∂margin/∂c_j, in the place of the scores.
    """

    @staticmethod
    def forward(ctx: Any, user: Tensor, negative: Tensor, own: Tensor, loss: SoftmaxLoss, batch: Scored) -> Tensor:
        x = user @ negative.mT
        margin = loss.compiled(loss, batch, x, own)
        if margin is None:
            x, margin = _margin_and_slopes(loss, batch, x, own)
        ctx.slopes, ctx.sides = x, (user, negative)
        return margin

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        slopes, (user, negative), g = ctx.slopes, ctx.sides, gradients[0].unsqueeze(-1)
        ctx.slopes = ctx.sides = None
        return (slopes @ negative) * g, slopes.mT @ (user * g), -(slopes.sum(-1) * gradients[0]), None, None


def _margin_and_slopes(loss: SoftmaxLoss, batch: Scored, x: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes [r, B, n] and margins [r, B]; a row whose negatives are all masked has neither."""
    masked = loss.masked(batch)
    weights = loss.log_weights(x, batch, masked)
    z, slope = loss.curve(x.sub_(own.unsqueeze(-1)))
    if weights is not None:
        z = z.add_(weights)
    z.masked_fill_(masked, -math.inf)
    margin = z.logsumexp(-1)
    margin = torch.where(margin.isneginf(), 2 * _ALL_MASKED, margin)
    return z.sub_(margin.unsqueeze(-1)).exp_().mul_(slope), margin


class PSLLoss(SoftmaxLoss):
    def curve(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        assert isinstance(self.of, PSL)
        logarithm, slope = _log_activation(x / 2, self.of.activation)
        return logarithm.mul_(2 / self.of.temperature), slope / self.of.temperature


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


class BSLLoss(SoftmaxLoss):
    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        assert isinstance(self.of, BSL)
        weight = self.of.negative_weight
        return super().of_margin(weight * margin + (weight - 1) * own / self.of.temperature, own, batch)


class SLatKLoss(SoftmaxLoss):
    def __init__(self, of: SLatK, train: Interactions, model: Tables, seeds: Sequence[int]) -> None:
        super().__init__(of, train, model)
        device = model.items.device
        self.k, self.every, self.softness, self.seeds = of.k, of.refresh, of.weight_temperature, tuple(seeds)
        first = _BELOW_ALL if of.k >= train.n_items else 0.0
        self.beta = nn.Parameter(torch.full((len(seeds), train.n_users), first, device=device), requires_grad=False)
        """[R, n_users]: the score at which a user's top k begins; a parameter, so that checkpoints hold it."""
        self.indptr, self.pairs = torch.from_numpy(train.indptr).to(device), torch.from_numpy(train.items).to(device)

    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        beta = mine(self.beta, batch).gather(1, batch.users)
        return torch.sigmoid((own - beta) / self.softness) * super().of_margin(margin, own, batch)

    @torch.no_grad()
    def refresh(self, model: Tables, epoch: int) -> None:
        if epoch == 0 or epoch % self.every or self.k >= self.n_items:
            return
        vectors = model()
        for r, seed in enumerate(self.seeds):
            users, items = (self.scaled(side[r]) for side in vectors)
            key = torch.tensor(keyed.key(seed, epoch, _REFRESH), device=items.device)
            drawn = (keyed.uniforms(key, self.of.shared) * self.n_items).long()
            for first in range(0, len(users), _USERS_AT_ONCE):
                some = torch.arange(first, min(first + _USERS_AT_ONCE, len(users)), device=items.device)
                self.beta[r, some] = self._quantiles(users[some], items, some, drawn)

    def _quantiles(self, vectors: Tensor, items: Tensor, users: Tensor, drawn: Tensor) -> Tensor:
        """[users]: the k-th largest among the scores of a user's own items and of the drawn others."""
        start, end = self.indptr[users[0]], self.indptr[users[-1] + 1]
        length = self.indptr[users + 1] - self.indptr[users]
        owner = torch.repeat_interleave(torch.arange(len(users), device=users.device), length)
        place = torch.arange(int(start), int(end), device=users.device) - self.indptr[users][owner]
        own = vectors.new_full((len(users), max(1, int(length.max()))), -math.inf)
        own[owner, place] = (vectors[owner] * items[self.pairs[start:end].long()]).sum(-1)
        wanted = users.unsqueeze(-1) * self.n_items + drawn
        seen = self.keys[torch.searchsorted(self.keys, wanted).clamp_max_(len(self.keys) - 1)] == wanted
        others = (vectors @ items[drawn].mT).masked_fill_(seen, -math.inf)
        return top_k_edge(own, others, self.k)


def top_k_edge(own: Tensor, others: Tensor, k: int) -> Tensor:
    """[users]: the k-th largest of a user's scores in both tables, or the least where there are fewer; -inf is none.

    >>> top_k_edge(torch.tensor([[1.0, 0.5]]), torch.tensor([[0.7, -torch.inf]]), 2)
    tensor([0.7000])
    """
    scores = torch.cat([own, others], -1)
    best = scores.topk(min(k, scores.shape[-1])).values
    there = (best > -math.inf).sum(-1, keepdim=True).clamp_min(1)
    return best.gather(-1, there - 1).squeeze(-1).clamp_min(_BELOW_ALL)


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


def unit_length(vectors: Vectors) -> Vectors:
    """Vectors whose inner products are cosines, each replica by itself so that none rounds as others make it."""
    return Vectors(*(torch.stack([normalize(one, dim=-1) for one in side]) for side in vectors))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Along the last axis; 0 where a vector is 0. Faster than to make unit vectors of all b first."""
    length = torch.linalg.vector_norm(a, dim=-1) * torch.linalg.vector_norm(b, dim=-1)
    return (a * b).sum(-1) / length.clamp_min(1e-12)


def cosines(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """[r, B, n]: of each user [r, B, d] with the items [r, N, d] that index [r, B, n] names.

    Where a user's items hold more numbers than the table has rows, products with all of them cost less.
    """
    if items.shape[1] > index.shape[2] * items.shape[2]:
        return cosine(users.unsqueeze(2), rows(items, index))
    return unit_products(users, items).gather(-1, index)


def unit_products(a: Tensor, b: Tensor) -> Tensor:
    """[r, A, B]: the cosines of all pairs."""
    return normalize(a, dim=-1) @ normalize(b, dim=-1).mT


def contrast(positive: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """[r]: the mean of form (S) of scores [r, B] against those of their own negatives [r, B, n]."""
    logits = torch.cat([positive.unsqueeze(-1), negatives], -1) / temperature
    return (logits.logsumexp(-1) - logits[..., 0]).mean(1)


def _positive_number(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be a positive number, not {value}.")
