"""How users and items are divided into slices: by popularity, activity, taste, or any attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.audit.reference import Reference
from evenhand.metrics.exposure import PARTS

TASTE_SHARE = 0.2
"""Which part of the users has a niche taste, and which a blockbuster one."""
MOST_PARTS = 12
"""An attribute with more values than this has its rarer ones together."""
OTHERS, MISSING = "all others", "not given"


@dataclass(frozen=True, eq=False)
class Division:
    """Users or items in parts."""

    by: str
    labels: tuple[str, ...]
    part: np.ndarray
    """int16 [n]: which label; −1 for none of them."""

    def sizes(self, among: np.ndarray | None = None) -> np.ndarray:
        """How many are in each part, of those marked."""
        part = self.part if among is None else self.part[among]
        return np.bincount(part[part >= 0], minlength=len(self.labels))


def by_popularity(reference: Reference) -> Division:
    ends = {0: " (most popular)", PARTS - 1: " (least popular)"}
    labels = tuple(f"decile {part + 1}{ends.get(part, '')}" for part in range(PARTS))
    return Division("item popularity", labels, reference.items.decile.astype(np.int16))


def by_activity(reference: Reference, audience: np.ndarray) -> Division:
    """Quarters of the audience by their number of train items; equal numbers stay together."""
    activity = reference.known.activity
    here = activity[audience & (activity > 0)]
    quarters = (0.25, 0.5, 0.75, 1.0)
    ends = np.unique(np.quantile(here, quarters, method="inverted_cdf")) if len(here) else np.zeros(0)
    part = np.searchsorted(ends, activity).astype(np.int16)
    begins = [int(here.min()), *(int(end) + 1 for end in ends[:-1])] if len(here) else []
    labels = [_span(begin, int(end)) for begin, end in zip(begins, ends, strict=True)]
    # Beyond the most active user of the audience nobody is looked at.
    part[part >= len(labels)] = -1
    part[activity == 0] = len(labels)
    return Division("user activity", (*labels, "no train items"), part)


def _span(begin: int, end: int) -> str:
    return f"{begin}–{end} train items" if end > begin else f"{begin} train item{'s' * (begin > 1)}"


def by_taste(reference: Reference, audience: np.ndarray) -> Division:
    """Niche, diverse and blockbuster, by the share of hot items in the history.

    Niche is the fifth of the audience with the smallest shares, blockbuster the fifth with the largest,
    both with whoever ties with its last; where the two would meet in one number, those users are diverse.
    """
    share = reference.taste
    here = np.sort(share[audience & ~np.isnan(share)])
    fifth = int(np.ceil(TASTE_SHARE * len(here)))
    low, high = (here[fifth - 1], here[-fifth]) if len(here) else (0.0, 1.0)
    part = np.ones(len(share), dtype=np.int16)
    part[(share <= low) & (share < high)] = 0
    part[(share >= high) & (share > low)] = 2
    part[np.isnan(share)] = -1
    labels = (
        f"niche (at most {100 * low:.0f} % hot)",
        "diverse",
        f"blockbuster (at least {100 * high:.0f} % hot)",
    )
    return Division("taste", labels, part)


def by_values(by: str, values: list[str | None]) -> Division:
    """One part a value; many numbers are cut into quarters, of many texts the most frequent stand alone."""
    numbers = _numbers(values)
    if numbers is not None and len(np.unique(numbers[~np.isnan(numbers)])) > MOST_PARTS:
        return _quarters(by, numbers)
    texts = np.array([MISSING if value is None else value for value in values], dtype=object)
    found, code, counts = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    if len(found) <= MOST_PARTS:
        return Division(by, tuple(found.tolist()), code.astype(np.int16))
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_PARTS - 1])
    place = np.full(len(found), len(kept), dtype=np.int16)
    place[kept] = np.arange(len(kept))
    return Division(by, (*found[kept].tolist(), OTHERS), place[code])


def _numbers(values: list[str | None]) -> np.ndarray | None:
    """The values as finite numbers, nan where there is none; None if any is something else."""
    try:
        numbers = np.array([np.nan if value is None else float(value) for value in values])
    except ValueError:
        return None
    given = np.array([value is not None for value in values], dtype=bool)
    return numbers if np.isfinite(numbers[given]).all() else None


def _quarters(by: str, numbers: np.ndarray) -> Division:
    """Quarters by size; equal numbers stay together, so that parts may be unequal or fewer."""
    given = ~np.isnan(numbers)
    ends = np.unique(np.quantile(numbers[given], (0.25, 0.5, 0.75, 1.0), method="inverted_cdf"))
    part = np.searchsorted(ends, numbers).astype(np.int16)
    part[~given] = len(ends)
    labels = []
    for which in range(len(ends)):
        low, high = numbers[part == which].min(), numbers[part == which].max()
        labels.append(f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}")
    return Division(by, (*labels, MISSING), part)
