"""Dynamic negative sampling (DNS): of a few random candidates, the one the model now ranks highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.base import Batch, BoundSampler, Sampler, best, check_drawn, products, rows
from evenhand.samplers.unobserved import UnobservedLaw


@dataclass(frozen=True)
class DynamicSampler(Sampler):
    """`argmax_{j in M} s(u, j)` over M uniform candidates; a pool of M has rank density `M·F^(M-1)`."""

    candidates: int = 5
    """Pool size M. The paper describes DNS as linear in rank, which is M = 2; its own sampler uses 5."""

    structural = ("candidates",)

    def __post_init__(self) -> None:
        check_drawn("candidates", self.candidates)

    @classmethod
    def bind_replicas(
        cls, replicas: Sequence[DynamicSampler], train: Interactions, device: torch.device | str
    ) -> DynamicBound:
        return DynamicBound(replicas[0].candidates, train, device, len(replicas))


class DynamicBound(BoundSampler):
    needs_vectors = True

    def __init__(self, candidates: int, train: Interactions, device: torch.device | str, replicas: int) -> None:
        super().__init__(train, device, replicas)
        self.candidates = candidates
        self.law = UnobservedLaw(train, None, device)

    @property
    def eligible(self) -> Tensor:
        return self.law.mass > 0

    def width(self, n: int) -> int:
        return n * self.candidates

    def choose(self, batch: Batch) -> Tensor:
        assert batch.user_vectors is not None
        assert batch.item_vectors is not None
        pool = self.law.draw(batch.users, batch.uniforms)
        users = rows(batch.user_vectors, batch.users)
        return best(pool, products(rows(batch.item_vectors, pool), users), batch.n)
