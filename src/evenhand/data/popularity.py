"""How unevenly attention is spread over items.

Two small measures that the simulator, the dataset summaries and the audit all need.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def gini(counts: Any) -> float:
    """The Gini coefficient of non-negative counts: 0 when all are equal, (n - 1) / n when one has everything.

    Items without any count belong in `counts` as zeros; of no counts, or only zeros, it is 0.

    >>> gini([5, 5, 5]), gini([0, 0, 9])
    (0.0, 0.6666666666666666)
    """
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())
    n, total = len(ordered), ordered.sum()
    if total == 0:
        return 0.0
    return float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * total))


def share_of_hottest(counts: Any, share: float = 0.15) -> float:
    """The part of all counts that falls on the hottest `share` of items (at least one item).

    >>> share_of_hottest([1, 1, 1, 7], share=0.25)
    0.7
    """
    ordered = np.sort(np.asarray(counts, dtype=np.float64).ravel())[::-1]
    hottest = max(1, round(share * len(ordered)))
    total = ordered.sum()
    return float(ordered[:hottest].sum() / total) if total else 0.0
