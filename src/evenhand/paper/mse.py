"""The paper's mean squared error of a model's scores, as far as it can be reconstructed.

The paper says only that scores are normalised and put through a sigmoid. This is the reading that came
closest to its table in a search over fifty; docs/results.md says how well it holds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.experiments.compare import CompareResult
from evenhand.metrics.statistics import summarise

_CHUNK_SCORES = 2**22
MOST_CELLS = 2 * 10**9
"""Every cell of users × items is scored; beyond this many, that is not worth the time."""


def mse(user_vectors: Tensor, item_vectors: Tensor, liked: Interactions) -> float:
    """mean over all user × item cells of (σ(z) - y)².

    z is the score, standardised by the mean and the standard deviation of *all* scores; y is 1 for the pairs
    of `liked` (train, validation and test together) and 0 elsewhere. Equal scores everywhere give z = 0.
    """
    users, items = user_vectors.double(), item_vectors.double()
    mean = float(users.mean(0) @ items.mean(0))
    # E[s²] = mean over users of pᵀ (QᵀQ / n) p, so that neither moment needs a pass over all cells.
    square = float(((users @ (items.T @ items / len(items))) * users).sum(1).mean())
    spread = max(square - mean * mean, 0.0) ** 0.5 or 1.0
    total = 0.0
    step = max(1, _CHUNK_SCORES // len(items))
    for begin in range(0, len(users), step):
        total += float(torch.sigmoid((users[begin : begin + step] @ items.T - mean) / spread).square().sum())
    for begin in range(0, len(liked), _CHUNK_SCORES // items.shape[1]):
        end = begin + _CHUNK_SCORES // items.shape[1]
        u, i = (torch.from_numpy(side[begin:end]).long() for side in (liked.users, liked.items))
        total += float((1 - 2 * torch.sigmoid(((users[u] * items[i]).sum(1) - mean) / spread)).sum())
    return total / (len(users) * len(items))


def with_mse(result: CompareResult, split: Split) -> CompareResult:
    """The same comparison with the metric `mse` in every row (of the test part), where it is affordable.

    It is undefined (null) for what has no vectors.
    """
    if split.n_users * split.n_items > MOST_CELLS:
        return result
    found = {label: summarise(mse_per_seed(fit.vectors, split)) for label, fit in result.fits.items()}
    rows = (replace(row, metrics={**row.metrics, "mse": found[row.name]}) for row in result.rows)
    return replace(result, rows=tuple(rows))


def mse_per_seed(vectors: tuple[Tensor, Tensor] | None, split: Split) -> list[float]:
    """One value per seed; undefined for what has no vectors, and where too many cells would have to be scored."""
    if vectors is None or split.n_users * split.n_items > MOST_CELLS:
        return [math.nan]
    liked = split.train.union(split.validation, split.test)
    return [mse(*replica, liked) for replica in zip(*vectors, strict=True)]
