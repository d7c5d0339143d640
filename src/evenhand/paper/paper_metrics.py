"""What the paper's rows need beyond the catalogue of metrics: its mean squared error, and the values of single users.

The paper says only that scores are normalised and put through a sigmoid. `mse` is the reading that came closest to its
table in a search over fifty; docs/results.md says how well it holds. The values of users, for the bootstrap, lie beside
the results, of which only the intervals are part.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.experiments.compare import CompareResult
from evenhand.experiments.verdict import paired
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.statistics import Interval, compare_metric, summarise
from evenhand.utils.atomic import atomic_file

_CHUNK_SCORES = 2**22
MOST_CELLS = 2 * 10**9
"""Every cell of users × items is scored; beyond this many, that is not worth the time."""
REFERENCE = "auc-ns"
"""Every other row is compared with this one."""
COMPARED = ("precision", "ndcg", "ohr")
"""Metrics that the paper's claims are about."""

_UNREADABLE = (OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error)
"""What a damaged file may raise: numpy and zipfile raise many kinds of errors."""

Runs = dict[int, list[UserMetrics]]
"""k → one per seed."""


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


def store(folder: Path, label: str, runs: Runs) -> None:
    """Store what `COMPARED` needs of these users."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        f"{k}/{seed}/{name}": array
        for k, each in runs.items()
        for seed, users in enumerate(each)
        for name, array in _compared_only(users).arrays().items()
    }
    with atomic_file(folder / _file_name(label)) as partial, partial.open("wb") as sink:
        np.savez_compressed(sink, **arrays)


def load(folder: Path, label: str) -> Runs | None:
    """What `store` wrote; None where there is nothing to be read."""
    try:
        with np.load(folder / _file_name(label), allow_pickle=False) as stored:
            found: dict[tuple[int, int], dict[str, np.ndarray]] = {}
            for key in stored.files:
                k, seed, name = key.split("/")
                found.setdefault((int(k), int(seed)), {})[name] = stored[key]
        runs: Runs = {}
        for (k, _), arrays in sorted(found.items()):
            runs.setdefault(k, []).append(UserMetrics.from_arrays(k, arrays))
    except _UNREADABLE:
        return None
    return runs


def differences(folder: Path, labels: Sequence[str]) -> Iterator[tuple[str, str, int, Interval]]:
    """(row, metric, k, the reference minus that row over users); rows without stored users are left out."""
    reference = load(folder, REFERENCE)
    for label in labels:
        other = None if label == REFERENCE else load(folder, label)
        if reference is None or other is None:
            continue
        for k, runs in reference.items():
            for metric in COMPARED:
                mine, theirs = paired(runs, other[k])
                found = compare_metric(mine, theirs, metric).users
                if found is not None:
                    yield label, metric, k, found


def _compared_only(users: UserMetrics) -> UserMetrics:
    values = {name: array for name, array in users.values.items() if name in COMPARED}
    sums = {name: array for name, array in users.sums.items() if name.partition(".")[0] in COMPARED}
    return UserMetrics(users.k, users.users, values, sums)


def _file_name(label: str) -> str:
    """Labels hold characters that file names may not."""
    return f"{hashlib.sha256(label.encode()).hexdigest()[:16]}.npz"
