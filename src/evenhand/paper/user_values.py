"""The values of single users behind each row, for the bootstrap.

They lie beside the results, of which only the intervals are part.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from evenhand.experiments.verdict import paired
from evenhand.metrics.statistics import Interval, compare_metric
from evenhand.metrics.users import UserMetrics
from evenhand.utils.atomic import atomic_file

REFERENCE = "auc-ns"
"""Every other row is compared with this one."""
COMPARED = ("precision", "ndcg", "ohr")
"""Metrics that the paper's claims are about."""

_UNREADABLE = (OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error)
"""What a damaged file may raise: numpy and zipfile raise many kinds of errors."""

Runs = dict[int, list[UserMetrics]]
"""k → one per seed."""


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
