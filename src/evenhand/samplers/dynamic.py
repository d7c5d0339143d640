"""Dynamic negative sampling (DNS): of a few random candidates, the one the model now ranks highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import Batch, Looked, LookingSampler, Sampler, best, check_drawn, products, rows
from evenhand.samplers.unobserved import UnobservedDistribution
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class DynamicSampler(Sampler):
    """`argmax_{j in M} s(u, j)` over M uniform candidates; a pool of M has rank density `M·F^(M-1)`."""

    candidates: int = 5
    """Pool size M. The paper describes DNS as linear in rank, which is M = 2; its own sampler uses 5."""

    top: int = 1
    """Take one of this number of the highest at random: DNS(M, N) with M = top and N = candidates."""

    structural = ("candidates", "top")

    def __post_init__(self) -> None:
        for name in ("candidates", "top"):
            check_drawn(name, getattr(self, name))
        if self.top > self.candidates:
            raise InputError(f"of {self.candidates} candidates the {self.top} highest cannot be taken; lower top.")

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[DynamicSampler], train: Interactions, device: torch.device | str
    ) -> DynamicBound:
        return DynamicBound(replicas[0], train, device, len(replicas))


class DynamicBound(LookingSampler):
    needs_vectors = True

    def __init__(self, sampler: DynamicSampler, train: Interactions, device: torch.device | str, replicas: int) -> None:
        super().__init__(train, device, replicas)
        self.candidates, self.top = sampler.candidates, sampler.top
        self.distribution = UnobservedDistribution(train, None, device)

    def width(self, n: int) -> int:
        return n * (self.candidates + (self.top > 1))

    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        return self.distribution.draw(users, uniforms[..., : n * self.candidates])

    def pick(self, batch: Batch, looked: Looked) -> Tensor:
        assert batch.user_vectors is not None
        assert batch.item_vectors is not None
        scores = products(rows(batch.item_vectors, looked.rows), rows(batch.user_vectors, batch.users))
        if self.top == 1:
            return best(scores, batch.n)
        place = scores.unflatten(-1, (batch.n, self.candidates)).topk(self.top, dim=-1).indices
        drawn = batch.uniforms[..., batch.n * self.candidates :]
        one = (drawn * self.top).long().clamp_max_(self.top - 1).unsqueeze(-1)
        first = torch.arange(batch.n, device=self.device) * self.candidates
        return first + place.gather(-1, one).squeeze(-1)
