"""How many users touched both of two items: the counts that ItemKNN and EASE are made of."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evenhand.data.csr import gather_rows, slices_within
from evenhand.data.interactions import Interactions

_CHUNK_PAIRS = 2**22
"""Item pairs looked at together: about 100 MB of indices."""


def cooccurrences(train: Interactions, items: np.ndarray) -> Tensor:
    """float32 [n, n_items]: rows of XᵀX, with the item's own count on the diagonal.

    The work is the sum of squared activities of the users concerned, not users × items.
    """
    counts = torch.zeros(len(items) * train.n_items)
    indptr, users_of = train.by_item
    position, users = gather_rows(indptr, users_of, items)
    for part in slices_within(train.activity[users], _CHUNK_PAIRS):
        of, item = gather_rows(train.indptr, train.items, users[part])
        cell = torch.from_numpy(position[part][of] * train.n_items + item)
        counts.scatter_add_(0, cell, torch.ones(len(cell)))
    return counts.view(len(items), train.n_items)
