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
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.objectives.base import Loss, Objective, Scored, check_flag, check_positive
from evenhand.samplers.base import check_drawn, is_in
from evenhand.utils.errors import unknown

Similarity = Literal["cosine", "inner"]
_USUAL, TEMPERATURES = 0.15, (0.07, 0.12, 0.2)
"""τ for cosines, and what a fit tries: on validation parts of eight tests the best lay between .07 and .2, the lower
the sparser and the more even the data (docs/sparse.md)."""
_ALL_MASKED = -1e30
"""Stands for log 0 where a number must be finite."""


@dataclass(frozen=True)
class Softmax(Objective):
    """`log Σ_j exp(c_j/τ) - c_i/τ`, the mean over a batch (SL, SSM)."""

    temperature: float | None = None
    """τ, on the scale of cosines. None settles it on validation; without one it is .15, and 1 for inner products."""
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
        if self.temperature is not None:
            check_positive("temperature", self.temperature)
        check_drawn("shared", self.shared)
        if self.similarity not in get_args(Similarity):
            raise unknown("similarity", str(self.similarity), get_args(Similarity))
        for name in ("positive", "correction"):
            check_flag(name, getattr(self, name))

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

    def forms(self) -> tuple[Softmax, ...]:
        if self.temperature is not None or self.similarity == "inner":
            return (self.closed(),)
        return tuple(replace(self, temperature=one) for one in TEMPERATURES)

    def closed(self) -> Self:
        usual = 1.0 if self.similarity == "inner" else _USUAL
        return self if self.temperature is not None else replace(self, temperature=usual)

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> SoftmaxLoss:
        return SoftmaxLoss(self, train, model)


class SoftmaxLoss(Loss):
    decays = False

    def __init__(self, of: Softmax, train: Interactions, model: Tables) -> None:
        super().__init__()
        self.of, self.n_items = of.closed(), train.n_items
        assert self.of.temperature is not None
        self.temperature = self.of.temperature
        self.transforms = of.similarity == "cosine"
        self.keys = torch.from_numpy(train.keys).to(model.items.device)
        """int64 [n_pairs], ascending: user · n_items + item."""
        self.indptr = torch.from_numpy(train.indptr).to(model.items.device)
        self.pairs = torch.from_numpy(train.items).to(model.items.device)
        self.compiled: Callable[..., Tensor | None] = lambda loss, batch, x, own: None
        """A faster way from scores to margins and slopes, where an engine has one."""
        self.add_up: Callable[[Tensor, Tensor], Tensor | None] = lambda slopes, user: slopes.mT @ user
        """The gradient of the shared negatives [r, n, d] from slopes [r, B, n] and users [r, B, d]; an engine that adds
        it up elsewhere gives None."""

    def forward(self, batch: Scored) -> Tensor:
        return self.each(batch).mean(1)

    def each(self, batch: Scored) -> Tensor:
        """[r, B]: the loss of each positive."""
        user, positive, negative = (self.scaled(x) for x in (batch.user, batch.positive, batch.negative.squeeze(1)))
        own = (user * positive).sum(-1)
        return self.of_margins(_SharedMargin.apply(user, negative, own, self, batch), own, batch)

    def of_margins(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        """The same from margins [r, B] and own scores: nothing where all negatives are masked."""
        return torch.where(margin > _ALL_MASKED, self.of_margin(margin, own, batch), 0.0)

    def sloped(self, margin: Tensor, own: Tensor, batch: Scored) -> tuple[Tensor, Tensor, Tensor]:
        """Three [r, B]: the loss of each positive, and its slopes ∂loss/∂margin and ∂loss/∂own."""
        if type(self).of_margin is SoftmaxLoss.of_margin and not self.of.positive:
            there = margin > _ALL_MASKED
            return torch.where(there, margin, 0.0), there.to(margin.dtype), torch.zeros_like(own)
        with torch.enable_grad():
            both = margin.detach().requires_grad_(), own.detach().requires_grad_()
            loss = self.of_margins(*both, batch)
        of_margin, of_own = torch.autograd.grad(loss.sum(), both, materialize_grads=True)
        return loss.detach(), of_margin, of_own

    def margins(self, batch: Scored, x: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes ∂margin/∂c_j [r, B, n], which may take the place of the scores x, and margins [r, B]."""
        margin = self.compiled(self, batch, x, own)
        return _margin_and_slopes(self, batch, x, own) if margin is None else (x, margin)

    def scaled(self, x: Tensor) -> Tensor:
        return normalize(x, dim=-1) if self.of.similarity == "cosine" else x

    def of_margin(self, margin: Tensor, own: Tensor, batch: Scored) -> Tensor:
        """[r, B]: the loss of each positive from its margin and its own score."""
        return softplus(margin) if self.of.positive else margin

    def curve(self, x: Tensor) -> tuple[Tensor, Tensor | float]:
        """z of the differences c_j - c_i, which it may overwrite, and dz/dx."""
        return x.div_(self.temperature), 1 / self.temperature

    def log_weights(self, x: Tensor, batch: Scored, masked: Tensor) -> Tensor | None:
        """log w [r, 1, n] or [r, B, n] of the negatives, masks aside."""
        if not self.of.correction:
            return None
        assert batch.log_q is not None
        return -(batch.log_q + math.log(batch.negatives.shape[-1])).to(x.dtype)

    def masked(self, batch: Scored) -> Tensor:
        """bool [r, B, n]: whether a shared negative is a training item of the positive's user."""
        if batch.users.is_cuda:
            return self.has(batch.users.unsqueeze(-1), batch.negatives)
        return torch.stack([self._masked(*one) for one in zip(batch.users, batch.negatives[:, 0], strict=True)])

    def has(self, users: Tensor, items: Tensor) -> Tensor:
        """Whether users have items, by binary search."""
        return is_in(self.keys, users * self.n_items + items)

    def _masked(self, users: Tensor, negatives: Tensor) -> Tensor:
        """bool [B, n]: the users' items are looked up among the negatives, which without a GPU is faster."""
        return own_among(*self.rows_of(users), len(users), negatives)

    def rows_of(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """int64: the training items of users [B], one after the other, and whose they are, as a place in users."""
        start = self.indptr[users]
        length = self.indptr[users + 1] - start
        owner = torch.repeat_interleave(torch.arange(len(users), device=users.device), length)
        first = length.cumsum(0) - length
        return owner, self.pairs[start[owner] + torch.arange(len(owner), device=users.device) - first[owner]].long()

    def finals(self, vectors: Vectors) -> tuple[Vectors, ...]:
        return (unit_length(vectors) if self.of.similarity == "cosine" else vectors,)


class _SharedMargin(torch.autograd.Function):
    """[r, B]: log Σ_j w_j·exp(z(c_j - c_i)) from users [r, B, d], shared negatives [r, n, d] and own scores [r, B].

    What is kept for the gradient is one [r, B, n] of slopes ∂margin/∂c_j, in the place of the scores.
    """

    @staticmethod
    def forward(ctx: Any, user: Tensor, negative: Tensor, own: Tensor, loss: SoftmaxLoss, batch: Scored) -> Tensor:
        ctx.slopes, margin = loss.margins(batch, user @ negative.mT, own)
        ctx.sides, ctx.add_up = (user, negative), loss.add_up
        return margin

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        slopes, (user, negative), g = ctx.slopes, ctx.sides, gradients[0].unsqueeze(-1)
        ctx.slopes = ctx.sides = None
        return (slopes @ negative) * g, ctx.add_up(slopes, user * g), -(slopes.sum(-1) * gradients[0]), None, None


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


def own_among(owner: Tensor, items: Tensor, n: int, drawn: Tensor) -> Tensor:
    """bool [n, drawn]: which of the drawn items are among those that each of n users has (`owner`, `items` [pairs]).

    >>> own_among(torch.tensor([0, 1, 1]), torch.tensor([5, 3, 4]), 2, torch.tensor([4, 5, 4])).tolist()
    [[False, True, False], [True, False, True]]
    """
    distinct, place = drawn.unique(return_inverse=True)
    column = torch.searchsorted(distinct, items).clamp_max_(len(distinct) - 1)
    found = distinct[column] == items
    masked = torch.zeros(n, len(distinct), dtype=torch.bool, device=drawn.device)
    masked[owner[found], column[found]] = True
    return masked[:, place]


def unit_length(vectors: Vectors) -> Vectors:
    """Vectors whose inner products are cosines, each replica by itself so that none rounds as others make it."""
    return Vectors(*(torch.stack([normalize(one, dim=-1) for one in side]) for side in vectors))
