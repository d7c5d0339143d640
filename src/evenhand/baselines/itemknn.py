"""Item-based nearest neighbours, of which Turbo-CF's first filter and, in effect, SANSA are special cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from evenhand.baselines.base import Baseline, check_integer, check_number, check_recency
from evenhand.data.interactions import Interactions, check_times
from evenhand.models.item_weights import ItemWeightModel, SparseTable
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.memory import check_memory

NORMS = ("cosine", "gram")


@dataclass(frozen=True)
class ItemKNN(Baseline):
    """`s(u, j) = Σ_{i ∈ N(j) ∩ I_u} sim(i, j)` with `sim(i, j) = (G_ij / (n_i·n_j + shrink))^power`.

    `G_ij = Σ a_u^-user_exponent` over the users u of both items, a_u being how many items u has;
    `n_i = (number of users of i)^item_exponent`, or with `norm=gram` `‖G_i‖^item_exponent`. With a `window`, only
    items that a user had at most so many places apart count together, d places apart by `d^-0.7`.
    """

    neighbours: int | Literal["all"] = 100
    """How many most similar items count for an item, |N(j)|; "all" takes every item that shares a user with it."""
    shrink: float = 10
    """Added to the denominator, so that a similarity that rests on few users counts for less."""
    norm: str = "cosine"
    """What n_i is made of: the item's users (cosine), or the length of its row of G (gram, as in SANSA)."""
    item_exponent: float = 0.5
    """Half makes it a cosine; the smaller, the more popular items are recommended."""
    user_exponent: float = 0
    """The larger, the less a user with many items says about two of them; Turbo-CF's α is half of it."""
    power: float = 1
    """Of the similarity, elementwise: above 1 the nearest count for more."""
    window: int = 0
    """How many places apart, in the order of time, two items of a user may be to count together; 0 for any."""
    recency: float = 0
    """How fast what a user had earlier loses weight in their scores: the item before the last r counts
    `(1 + r)^-recency`. This and `window` need timestamps."""

    def __post_init__(self) -> None:
        if self.neighbours != "all":
            check_integer("neighbours", self.neighbours)
        check_number("shrink", self.shrink, zero=True)
        if self.norm not in NORMS:
            raise unknown("norm", str(self.norm), NORMS)
        for name in ("item_exponent", "user_exponent", "power"):
            check_number(name, getattr(self, name), zero=name != "power")
        check_integer("window", self.window, least=0)
        check_recency(self.recency)
        if max(self.item_exponent, self.user_exponent, self.power) > 10:
            raise InputError("item_exponent, user_exponent and power may be up to 10.")

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        return self.item_model(train, similarities(train, self))

    def work(self, train: Interactions) -> float:
        each = 8e-8 if self.neighbours == "all" else 3.5e-8
        near = train.activity if not self.window else np.minimum(train.activity, 2 * self.window + 1)
        return each * float((near * train.activity.astype(np.float64)).sum())


def similarities(train: Interactions, knn: ItemKNN) -> SparseTable:
    """Row i holds sim(i, j) for the items j that have i among their neighbours."""
    from scipy.sparse import csr_array

    from evenhand.baselines.cooccurrence import Cooccurrence

    n_items = train.n_items
    most = n_items if knn.neighbours == "all" else min(int(knn.neighbours), n_items)
    if knn.window:
        check_times(train, "the window of itemknn")
    together = Cooccurrence(train, np.maximum(train.activity, 1.0) ** -knn.user_exponent, knn.window)
    # An item and its similarity: found, put together, and turned round.
    needed = 3 * 8 * int(np.minimum(together.pairs, most).clip(max=n_items).sum())
    check_memory(needed, torch.device("cpu"), f"itemknn with {most:,} neighbours an item", "lower neighbours")
    lengths = together.norms() if knn.norm == "gram" else train.popularity.astype(np.float64)
    indptr, items, values = together.neighbours(lengths**knn.item_exponent, knn.shrink, knn.power, most)
    turned = csr_array((values, items, indptr), shape=(n_items, n_items)).T.tocsr()
    return SparseTable(turned.indptr.astype(np.int64), turned.indices.astype(np.int32), turned.data)
