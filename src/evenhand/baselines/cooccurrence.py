"""How many users touched both of two items: the counts that ItemKNN and EASE are made of.

Importing this module loads numba.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.utils.compiled import compiled


def cooccurrences(train: Interactions, items: np.ndarray) -> Tensor:
    """float32 [n, n_items]: rows of XᵀX, with the item's own count on the diagonal.

    The work is the sum of squared activities of the users concerned, not users × items.
    """
    counts = np.zeros((len(items), train.n_items), dtype=np.float32)
    _count(items, *train.by_item, train.indptr, train.items, counts)
    return torch.from_numpy(counts)


@compiled()
def _count(
    items: np.ndarray,
    item_start: np.ndarray,
    users: np.ndarray,
    user_start: np.ndarray,
    touched: np.ndarray,
    counts: np.ndarray,
) -> None:
    for row in range(len(items)):
        mine = counts[row]
        for place in range(item_start[items[row]], item_start[items[row] + 1]):
            user = users[place]
            for other in range(user_start[user], user_start[user + 1]):
                mine[touched[other]] += 1
