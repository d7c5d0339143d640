"""Item-based nearest neighbours: an item is recommended for its likeness to what the user touched."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.base import Baseline, check_number, check_whole
from evenhand.data.interactions import Interactions
from evenhand.models.item_table import SparseTable
from evenhand.models.item_weights import ItemWeightModel
from evenhand.models.topk import top_by


@dataclass(frozen=True)
class ItemKNN(Baseline):
    """`s(u, j) = Σ_{i ∈ N(j) ∩ I_u} sim(i, j)` with `sim(i, j) = |U_i ∩ U_j| / (√(|U_i|·|U_j|) + shrink)`."""

    neighbours: int = 100
    """How many items most like it count for an item, |N(j)|; fewer where fewer share a user with it."""
    shrink: float = 10
    """Added to the cosine's denominator, so that a likeness that rests on few users counts for less."""

    def __post_init__(self) -> None:
        check_whole("neighbours", self.neighbours)
        check_number("shrink", self.shrink, zero=True)

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        from evenhand.baselines.cooccurrence import cooccurrences

        # In double precision, so that likenesses that are equal on paper are so here, and ties go by index.
        root = torch.from_numpy(train.popularity).double().sqrt()

        def similarity(items: np.ndarray) -> Tensor:
            shared = cooccurrences(train, items)
            likeness = (shared / (root[items, None] * root + self.shrink)).float()
            likeness[shared == 0] = -torch.inf
            likeness[torch.arange(len(items)), torch.from_numpy(items)] = -torch.inf
            return likeness

        everything = np.arange(train.n_items)
        near, likeness = top_by(similarity, train.n_items, everything, min(self.neighbours, train.n_items))
        real = near >= 0
        item, neighbour = np.repeat(everything, real.sum(1)), near[real]
        order = np.argsort(neighbour, kind="stable")
        counts = np.bincount(neighbour, minlength=train.n_items)
        # Row i of the table holds the items j that have i among their neighbours.
        table = SparseTable(
            np.concatenate([[0], np.cumsum(counts)]), item[order].astype(np.int32), likeness[real][order]
        )
        return self.item_model(train, table)
