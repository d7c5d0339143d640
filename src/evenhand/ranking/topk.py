"""Exact top-k over the whole catalogue, in chunks of users, with what they already know left out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from evenhand.data.csr import gather_rows
from evenhand.data.interactions import Interactions
from evenhand.errors import InputError

_CHUNK_SCORES = 2**24
"""Scores held at once: 64 MB, whatever the number of users."""

Score = Callable[[np.ndarray], Tensor]
"""Users by index → a new tensor [n, n_items], which the caller may write to."""


def top_by(
    score: Score,
    n_items: int,
    users: np.ndarray,
    k: int,
    *,
    exclude: Interactions | None = None,
    only: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best items of each user, best first: items int64 [n, k] and scores float32 [n, k].

    `score` is asked for a chunk of users at a time. `exclude` holds pairs that are left out, `only` (bool
    [n_items]) the items that may be recommended. Of items with the same score the one with the lowest index
    comes first. Where fewer than k items remain, the list ends with item -1 and score -inf.
    """
    if not 1 <= k <= n_items:
        raise InputError(f"k must lie between 1 and the catalogue's {n_items:,} items, not {k}.")
    found = np.empty((len(users), k), dtype=np.int64)
    values = np.empty((len(users), k), dtype=np.float32)
    step = max(1, _CHUNK_SCORES // n_items)
    for begin in range(0, len(users), step):
        chunk = users[begin : begin + step]
        scores = score(chunk)
        if exclude is not None:
            row, item = map(torch.from_numpy, gather_rows(exclude.indptr, exclude.items, chunk))
            scores[row.to(scores.device), item.to(scores.device)] = -torch.inf
        if only is not None:
            scores[:, ~only.to(scores.device)] = -torch.inf
        items, best = _top(scores, k)
        values[begin : begin + step] = best.cpu().numpy()
        found[begin : begin + step] = items.cpu().numpy()
    found[np.isneginf(values)] = -1
    return found, values


def top_items(
    user_vectors: Tensor,
    item_vectors: Tensor,
    users: np.ndarray,
    k: int,
    *,
    exclude: Interactions | None = None,
    only: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`top_by` inner products."""
    score = by_product(user_vectors, item_vectors)
    return top_by(score, len(item_vectors), users, k, exclude=exclude, only=only)


def by_product(user_vectors: Tensor, item_vectors: Tensor) -> Score:
    """Scores as inner products of the vectors [n_users, d] and [n_items, d]."""

    def score(users: np.ndarray) -> Tensor:
        return user_vectors[torch.from_numpy(users).to(user_vectors.device)] @ item_vectors.T

    return score


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Like `topk`, which leaves the order of equal scores open; only rows that have such are done anew."""
    # One more than asked for shows whether a tie crosses the end of the list.
    wide = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    equal = (wide.values[:, 1:] == wide.values[:, :-1]) & wide.values[:, 1:].isfinite()
    items, values = wide.indices[:, :k], wide.values[:, :k]
    tied = equal.any(1).nonzero().squeeze(1)
    if len(tied):
        items[tied], values[tied] = _lowest_first(scores[tied], k, values[tied, -1:])
    return items, values


def _lowest_first(scores: Tensor, k: int, last: Tensor) -> tuple[Tensor, Tensor]:
    """The k items above or at the score `last`; of those just at it, the lowest indices that still fit."""
    above, level = scores > last, scores == last
    room = k - above.sum(1, keepdim=True)
    chosen = above | (level & (level.cumsum(1) <= room))
    items = chosen.nonzero()[:, 1].view(-1, k)
    values, order = scores.gather(1, items).sort(dim=1, descending=True, stable=True)
    return items.gather(1, order), values
