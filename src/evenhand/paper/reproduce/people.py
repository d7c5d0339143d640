"""Users behind the rows, for the bootstrap: kept beside the results, of which only the intervals are part."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from evenhand.metrics.statistics import Interval, compare_metric
from evenhand.metrics.users import UserMetrics

REFERENCE = "auc-ns"
"""Every other row is compared with this one."""
JUDGED = ("precision", "ndcg", "ohr")
"""Metrics that the paper's claims are about."""

_UNREADABLE = (OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error)
"""What a damaged file may raise: numpy and zipfile have many words for it."""

Runs = dict[int, list[UserMetrics]]
"""k → one a seed."""


def keep(folder: Path, label: str, runs: Runs) -> None:
    """Store what `JUDGED` needs of these users."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        f"{k}/{seed}/{name}": array
        for k, each in runs.items()
        for seed, users in enumerate(each)
        for name, array in _judged_only(users).arrays().items()
    }
    partial = folder / f"{_file_name(label)}.partial.npz"
    np.savez_compressed(partial, **arrays)
    partial.replace(folder / _file_name(label))


def recall(folder: Path, label: str) -> Runs | None:
    """What `keep` stored; None where there is nothing to be read."""
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


def intervals(folder: Path, labels: Sequence[str], known: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bootstrap over users of the reference minus each other row, for every k and judged metric.

    What is `known` is not computed again, and stays where the users are gone.
    """
    had = {line["name"] for line in known}
    reference = recall(folder, REFERENCE)
    lines = [dict(line) for line in known if line["name"] in labels]
    for label in labels:
        other = None if label in had or label == REFERENCE else recall(folder, label)
        if reference is None or other is None:
            continue
        for k, runs in reference.items():
            for metric in JUDGED:
                found = _over_users(runs, other[k], metric)
                if found is not None:
                    lines.append({"name": label, "k": k, "metric": metric, **_numbers(found)})
    return lines


def _over_users(mine: list[UserMetrics], other: list[UserMetrics], metric: str) -> Interval | None:
    seeds = max(len(mine), len(other))
    # What does not depend on the seed has one result, which stands for every seed.
    a, b = (side * seeds if len(side) == 1 else side for side in (mine, other))
    return compare_metric(a, b, metric).users


def _numbers(found: Interval) -> dict[str, float]:
    return {name: round(getattr(found, name), 6) for name in ("difference", "low", "high", "p")}


def _judged_only(users: UserMetrics) -> UserMetrics:
    values = {name: array for name, array in users.values.items() if name in JUDGED}
    return UserMetrics(users.k, users.users, values, {n: r for n, r in users.rates.items() if n in JUDGED})


def _file_name(label: str) -> str:
    """Labels hold characters that file names may not."""
    return f"{hashlib.sha256(label.encode()).hexdigest()[:16]}.npz"
