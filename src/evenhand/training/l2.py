"""L2 on the rows of a batch: `λ/2B · Σ_b (‖p_u‖² + ‖q_i‖² + mean_j ‖q_j‖²)`, on raw rows, before any propagation.

A row is pulled as often as it is drawn, and by as little as the batch is large: the balance between pull and
push does not depend on the batch, on the number of pairs or on how rare a row is. Several negatives of a positive
count together as one; negatives that a batch shares count as if every positive had drawn them. The loss that
training reports leaves this term out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from evenhand.encoders.base import Tables
from evenhand.objectives.base import Loss


def penalty(user: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """[r]: the term for λ = 1, from rows [r, B, d], [r, B, d] and [r, B or 1, n, d]."""
    lengths = user.square().sum(-1) + positive.square().sum(-1) + negative.square().sum(-1).mean(-1)
    return lengths.mean(1) / 2


@torch.no_grad()
def add_gradient(
    model: Tables, loss: Loss, l2: Sequence[float], users: Tensor, positives: Tensor, negatives: Tensor
) -> None:
    """Add the gradient of the term to those that `backward` left: λ times a row's weight times the row."""
    if not any(l2):
        return
    of_users = weights(users, model.users.shape[1])
    of_items = weights(positives, model.items.shape[1])
    of_items += weights(negatives.flatten(1), model.items.shape[1])
    for table, weight in ((model.users, of_users), *((t, of_items) for t in (model.items, *loss.item_tables()))):
        if table.grad is None:
            continue
        for r, strength in enumerate(l2):  # each replica by itself, so that none rounds as others make it
            if strength:
                table.grad[r].addcmul_(weight[r].unsqueeze(-1), table[r], value=strength)


def weights(drawn: Tensor, size: int) -> Tensor:
    """float32 [R, size]: the share of the draws [R, m] that fell on each row."""
    place = drawn + torch.arange(len(drawn), device=drawn.device).unsqueeze(1) * size
    counts = torch.zeros(len(drawn) * size, device=drawn.device)
    counts.index_add_(0, place.flatten(), torch.ones(place.numel(), device=drawn.device))
    return counts.view(-1, size) / drawn.shape[1]
