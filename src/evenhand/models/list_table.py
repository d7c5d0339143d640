"""What can recommend: anything that scores the whole catalogue for some users at a time.

Models and baselines share this protocol, so that lists, metrics and tables do not ask where scores come from.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from torch import Tensor

from evenhand.data.interactions import Interactions


@runtime_checkable
class Recommender(Protocol):
    """Scores users by index; a caller asks for as many at a time as fit into memory."""

    def scores(self, users: np.ndarray) -> Tensor:
        """[n, n_items]: a new tensor, which the caller may write to."""
        ...


def list_table(vocabulary: Interactions, users: np.ndarray, items: np.ndarray, scores: np.ndarray) -> pa.Table:
    """Lists by index, as `top_by` makes them, as a table with ids: user, item, score, rank."""
    real = items >= 0
    rank = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    return pa.table(
        {
            "user": vocabulary.user_ids.take(pa.array(np.repeat(users, real.sum(1)))),
            "item": vocabulary.item_ids.take(pa.array(items[real])),
            "score": pa.array(scores[real]),
            "rank": pa.array(rank[real].astype(np.int32)),
        }
    )
