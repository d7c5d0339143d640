"""MACR: beside the match, one head learns how liked an item is anyway, another how easily a user likes.

What the item's head explains is taken out again in the end: the score is `(s - c)·a_i`, in which a
reference value c decides how much an item's own pull counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Tables, Vectors
from evenhand.objectives.base import Loss, Objective, Scored, check_flag, mine, normal
from evenhand.utils.errors import InputError

GRID = (0.5, 0.0, 0.25, 1.0, 2.0)
"""What validation chooses c from, in units of the model's largest score. The first wins ties, and counts
where there is no validation part: at 0 nothing is taken out, from 1 on the least liked items lead."""
_ITEM_HEAD, _USER_HEAD = 0x3AC1, 0x3AC2
_SAMPLE = 1000
"""Users whose scores are looked at for the largest: evenly spread, and all of them where there are fewer."""


@dataclass(frozen=True)
class MACR(Objective):
    """`BCE(σ(s·a_i·b_u)) + item_weight·BCE(a_i) + user_weight·BCE(b_u)`, summed over positive and negative.

    `a_i = σ(w_I·q_i)` and `b_u = σ(w_U·p_u)` read the model's vectors, after propagation where there is one.
    Several negatives count together as much as their positive.
    """

    item_weight: float = 1e-3
    """Weight α of the item head's own loss."""
    user_weight: float = 1e-3
    """Weight β of the user head's own loss."""
    c: float | str = "validation"
    """The reference score: a number, or "validation" to choose 0, ¼, ½, 1 or 2 times the largest score for
    each seed. Where there is no validation part it is ½; the paper protocol, as ever, chooses on test."""
    matrix: bool = False
    """Multiply the score of every pair of a batch with the heads of every other, as the published code does:
    for replications only, B² numbers a step."""

    def __post_init__(self) -> None:
        for name in ("item_weight", "user_weight"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}.")
        if isinstance(self.c, str) and self.c != "validation":
            raise InputError(f"c must be a number or 'validation', not '{self.c}'.")
        if isinstance(self.c, float | int) and not math.isfinite(self.c):
            raise InputError(f"c must be a finite number, not {self.c}.")
        check_flag("matrix", self.matrix)

    def start(self, train: Interactions, model: Tables, seeds: Sequence[int]) -> MACRLoss:
        dim = model.items.shape[-1]
        xavier = (2 / (dim + 1)) ** 0.5
        heads = (normal((dim,), seeds, salt, xavier) for salt in (_ITEM_HEAD, _USER_HEAD))
        return MACRLoss(self, *(head.to(model.items.device) for head in heads))


class MACRLoss(Loss):
    decays = False
    transforms = True

    def __init__(self, of: MACR, item_head: Tensor, user_head: Tensor) -> None:
        super().__init__()
        self.of = of
        self.item_head = nn.Parameter(item_head)
        self.user_head = nn.Parameter(user_head)

    def forward(self, batch: Scored) -> Tensor:
        to_items = mine(self.item_head, batch).unsqueeze(1)
        to_users = mine(self.user_head, batch).unsqueeze(1)
        user = (batch.user * to_users).sum(-1)
        positive = (batch.positive * to_items).sum(-1)
        negative = (batch.negative * to_items.unsqueeze(2)).sum(-1)
        # A label of 1 costs softplus(-logit), a label of 0 softplus(logit).
        match = softplus(-self._match(batch.s_positive.unsqueeze(-1), positive.unsqueeze(-1), user))
        other = softplus(self._match(batch.s_negative, negative, user))
        item = softplus(-positive).mean(1) + softplus(negative).mean((1, 2))
        owner = (softplus(-user) + softplus(user)).mean(1)
        main = match.flatten(1).mean(1) + other.flatten(1).mean(1)
        return main + self.of.item_weight * item + self.of.user_weight * owner

    def _match(self, score: Tensor, item: Tensor, user: Tensor) -> Tensor:
        """s·a·b from the scores [r, B, n] and the logits of items [r, B, n] and users [r, B]."""
        heads = torch.sigmoid(item) * torch.sigmoid(user).unsqueeze(-1)
        if self.of.matrix:
            return score.unsqueeze(1) * heads.unsqueeze(2)
        return score * heads

    def finals(self, vectors: Vectors) -> tuple[Vectors, ...]:
        """Users [p, 1] and items [a·q, -c·a], whose inner product is (s - c)·a."""
        # One replica at a time, so that its last digits do not depend on how many there are.
        each = [self._finals(*one) for one in zip(*vectors, self.item_head, strict=True)]
        return tuple(Vectors(*map(torch.stack, zip(*same, strict=True))) for same in zip(*each, strict=True))

    def _finals(self, users: Tensor, items: Tensor, head: Tensor) -> list[Vectors]:
        pull = torch.sigmoid((items * head).sum(-1, keepdim=True))
        if isinstance(self.of.c, str):
            values = [share * _largest_score(users, items) for share in GRID]
        else:
            values = [torch.tensor(self.of.c, device=users.device)]
        wide = torch.cat([users, torch.ones_like(users[:, :1])], 1)
        return [Vectors(wide, torch.cat([pull * items, -c * pull], 1)) for c in values]


def _largest_score(users: Tensor, items: Tensor) -> Tensor:
    step = -(-len(users) // _SAMPLE)
    return (users[::step] @ items.T).max().clamp_min(0)
