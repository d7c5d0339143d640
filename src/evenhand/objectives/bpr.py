"""Bayesian personalised ranking: a positive should score higher than its negative."""

from torch import Tensor
from torch.nn.functional import softplus


def bpr(positive: Tensor, negative: Tensor) -> Tensor:
    """[R]: mean of -log σ(s⁺ - s⁻) over a batch; positive is [R, B], negative [R, B, n]."""
    return softplus(negative - positive.unsqueeze(-1)).mean((1, 2))
