"""The metrics of an audit: what each is called, which way is better, and where it can lie.

Tables, gates and the report ask here, so that a metric is described once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from evenhand.metrics.users import HIGHER_IS_BETTER as KNOWN
from evenhand.metrics.users import POOLED, RATES


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    title: str
    group: str
    """"accuracy", "bias" or "exposure"; the first two need a test part."""
    higher_is_better: bool | None
    """None where neither is: it depends on what one wants."""
    meaning: str
    """In words, to follow the title."""
    low: float = 0.0
    high: float = 1.0

    @property
    def needs_test(self) -> bool:
        return self.group != "exposure"


_MEANINGS = {
    "precision": ("Precision", "share of the k slots that hold a wanted item"),
    "recall": ("Recall", "share of the wanted items that are shown"),
    "f1": ("F1", "harmonic mean of precision and recall, per user"),
    "ndcg": ("NDCG", "hits, counting more the higher they stand"),
    "ohr": ("OHR", "of the hot items shown, the share that is not wanted"),
    "ocr": ("OCR", "of the cold items shown, the share that is not wanted"),
    "uhr": ("UHR", "of the hot items wanted, the share that is not shown"),
    "ucr": ("UCR", "of the cold items wanted, the share that is not shown"),
    "fpr": ("FPR", "1 − precision, the paper's false positive rate"),
    "fnr": ("FNR", "1 − recall"),
    "fpr_true": ("true FPR", "share of all items that are not wanted which is shown"),
}
_AVERAGES = {"defined": "users with a denominator", "pooled": "all users' counts together"}


def _known(name: str) -> Metric:
    group = "accuracy" if name in ("precision", "recall", "f1", "ndcg", "fpr", "fnr", "fpr_true") else "bias"
    rate, _, average = name.partition("_") if name != "fpr_true" else (name, "", "")
    title, meaning = _MEANINGS[rate]
    if name in RATES:
        meaning = f"{meaning}; a user without any counts as 0"
    if average:
        title, meaning = f"{title} ({average})", f"{meaning}; over {_AVERAGES[average]}"
    return Metric(name, title, group, KNOWN[name], meaning)


_NEW = (
    Metric("hit_rate", "Hit rate", "accuracy", True, "share of users with at least one wanted item"),
    Metric("mrr", "MRR", "accuracy", True, "1 / rank of the first wanted item, 0 without one"),
    Metric(
        "popreo",
        "PopREO",
        "bias",
        False,
        "how unlike hot and cold are in the chance of a wanted item to be shown",
    ),
    Metric(
        "arp",
        "ARP",
        "exposure",
        None,
        "train popularity of the items shown, averaged over users",
        0.0,
        math.inf,
    ),
    Metric(
        "popularity_lift",
        "Popularity lift",
        "exposure",
        False,
        "how much more popular lists are than the users' own histories",
        -1.0,
        math.inf,
    ),
    Metric("aplt", "APLT", "exposure", True, "share of long-tail (cold) items in a list"),
    Metric("aclt", "ACLT", "exposure", True, "number of long-tail (cold) items in a list", 0.0, math.inf),
    Metric(
        "poprsp",
        "PopRSP",
        "exposure",
        False,
        "how unlike hot and cold are in the chance of any item to be shown",
    ),
    Metric("gini", "Gini", "exposure", False, "inequality of exposure over the catalogue"),
    Metric("entropy", "Entropy", "exposure", True, "Shannon entropy of exposure, in bits", 0.0, math.inf),
    Metric("coverage", "Coverage", "exposure", True, "share of the catalogue that is shown to anybody"),
    Metric(
        "js_distance",
        "JS distance",
        "exposure",
        False,
        "Jensen–Shannon distance of exposure and demand over popularity deciles",
    ),
)

_ORDER = ("accuracy", "bias", "exposure")
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for group in _ORDER
    for metric in (*(_known(name) for name in KNOWN), *_NEW)
    if metric.group == group
}
"""Every metric by name, in the order in which tables show them."""

CONTRASTED = (
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
"""What systems are compared by: one of each kind, so that the correction for many questions stays mild."""

BOOTSTRAPPED = (*POOLED, "popreo", "poprsp", "popularity_lift", "js_distance")
"""Functions of sums over users: their intervals come from a Poisson bootstrap."""
ITEMWISE = ("gini", "entropy", "coverage")
"""Functions of every item's exposure: their intervals come from each user's influence."""


def available(has_test: bool) -> list[str]:
    return [name for name, metric in METRICS.items() if has_test or not metric.needs_test]
