"""The audit as a small table of texts for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from evenhand.metrics.catalogue import METRICS
from evenhand.audit.result import Audit, Estimate

SHOWN = (
    "precision",
    "recall",
    "ndcg",
    "hit_rate",
    "mrr",
    "ohr",
    "ocr",
    "uhr",
    "ucr",
    "popreo",
    "popularity_lift",
    "aplt",
    "poprsp",
    "gini",
    "entropy",
    "coverage",
    "js_distance",
)


def headings(audit: Audit) -> list[str]:
    return ["metric", *audit.systems]


def lines(audit: Audit, intervals: bool = True) -> Iterator[list[str]]:
    """One line a metric: which way is better, and each system's value, with its interval or without."""
    rows = [audit.row(name, audit.k) for name in audit.systems]
    for metric in SHOWN:
        if metric in rows[0].metrics:
            better = METRICS[metric].higher_is_better
            arrow = {True: " ↑", False: " ↓", None: ""}[better]
            found = [row.metrics[metric] for row in rows]
            yield [f"{metric}{arrow}", *(cell(e if intervals else Estimate(e.value)) for e in found)]


def cell(estimate: Estimate) -> str:
    """`.4215 [.4041, .4389]`; an undefined number is a dash.

    >>> cell(Estimate(0.42151, 0.40412, 0.43889))
    '.4215 [.4041, .4389]'
    """

    def short(value: float) -> str:
        text = f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"
        return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

    if math.isnan(estimate.value):
        return "–"
    if estimate.low is None or estimate.high is None:
        return short(estimate.value)
    return f"{short(estimate.value)} [{short(estimate.low)}, {short(estimate.high)}]"
