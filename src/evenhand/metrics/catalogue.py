"""Every metric there is, described once: name, meaning, formula, which way is better, range, and how it is computed.

Tables, searches, gates, reports and docs ask here. A metric is one of four things: a value per user that is
averaged, a rate per user with three averages (see `RATES`), a formula of sums over users, or a function of every
item's number of slots. The functions work on `Slots` and never see a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.data.popularity import gini
from evenhand.metrics import formulas
from evenhand.metrics.formulas import NO_ITEM
from evenhand.metrics.slots import PARTS, Slots, by_part
from evenhand.utils.errors import unknown

Get = Callable[[str], Any]
"""From a column's name to its sum over users: a number, one per decile, or one (of these) per bootstrap draw."""
Column = Callable[[Slots, int], np.ndarray]
"""(slots, k) → one number per user, or one per user and decile."""

TAIL_FROM = PARTS // 2
"""The long tail of the exposure metrics: the less popular half of the items."""


@dataclass(frozen=True)
class Metric:
    """One metric, and how its number comes about; exactly one of `of_user`, `rate`, `of_sums`, `of_items` is set."""

    name: str
    title: str
    group: str
    """"accuracy", "bias" or "exposure"; the first two need a test part."""
    higher_is_better: bool | None
    """None where neither is: it depends on what one wants."""
    meaning: str
    """In words, to follow the title."""
    formula: str
    low: float = 0.0
    high: float = 1.0
    average: str = "users"
    """How users become one number: "users" (mean over all), "served" (mean over those with a list), "paper"
    (mean over all, an empty denominator as 0), "defined" (mean over those with a denominator), "pooled" (sum over
    sum, or another formula of sums), "items" (a function of every item's slots)."""
    of_user: Column | None = None
    rate: str | None = None
    of_sums: Callable[[Get], Any] | None = None
    of_items: Callable[[np.ndarray], float] | None = None
    digits: int = 4
    """Decimals in tables."""
    slope: Callable[[np.ndarray], np.ndarray] | None = None
    """With `of_items`: its derivative by each item's slots, for intervals over users."""

    @property
    def needs_test(self) -> bool:
        return self.group != "exposure"

    @property
    def arrow(self) -> str:
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    def to_json(self) -> dict[str, Any]:
        """What `evenhand metrics --json` prints; a range without an end has null there."""
        better = {True: "higher", False: "lower", None: None}[self.higher_is_better]
        ends = [end if math.isfinite(end) else None for end in (self.low, self.high)]
        return {
            "name": self.name,
            "title": self.title,
            "group": self.group,
            "better": better,
            "range": ends,
            "average": self.average,
            "meaning": self.meaning,
            "formula": self.formula,
        }


def _comparable(slots: Slots, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(popularity shown, popularity had), 0 for users who lack one of them."""
    shown, habit = formulas.average_popularity(slots.top[:, :k], slots.sheet.popularity), slots.sheet.habit
    both = ~np.isnan(shown) & ~np.isnan(habit)
    return np.where(both, shown, 0.0), np.where(both, habit, 0.0)


def _fresh(slots: Slots, k: int, hot: bool) -> np.ndarray:
    kind = slots.hot if hot else (slots.top >= 0) & ~slots.hot
    return np.count_nonzero((kind & ~slots.repeats)[:, :k], axis=1)


def _room(slots: Slots, k: int, hot: bool) -> np.ndarray:
    """How many items of the kind could be shown: those the user has not had."""
    sheet, n_hot = slots.sheet, int(np.count_nonzero(slots.sheet.hot))
    had = sheet.n_consumed_hot if hot else sheet.n_consumed - sheet.n_consumed_hot
    served = (slots.top[:, :k] != NO_ITEM).any(axis=1)
    return np.where(served, (n_hot if hot else len(sheet.hot) - n_hot) - had, 0)


SUMS: Mapping[str, Column] = {
    "lift.shown": lambda s, k: _comparable(s, k)[0],
    "lift.habit": lambda s, k: _comparable(s, k)[1],
    "fresh.hot": lambda s, k: _fresh(s, k, hot=True),
    "fresh.cold": lambda s, k: _fresh(s, k, hot=False),
    "room.hot": lambda s, k: _room(s, k, hot=True),
    "room.cold": lambda s, k: _room(s, k, hot=False),
    "slots": lambda s, k: by_part(s.top[:, :k], s.top[:, :k] >= 0, s.sheet.decile, PARTS),
    "demand": lambda s, k: s.sheet.demand,
    "even.shown": lambda s, k: (s.hits[:, :k] / s.sheet.propensity[np.maximum(s.top[:, :k], 0)]).sum(axis=1),
    "even.wanted": lambda s, k: s.sheet.wanted_evenly,
    "ohr.above": lambda s, k: formulas.unwanted(s.hits, s.hot, k),
    "ohr.below": lambda s, k: formulas.count(s.hot, k),
    "ocr.above": lambda s, k: formulas.unwanted(s.hits, s.cold, k),
    "ocr.below": lambda s, k: formulas.count(s.cold, k),
    "uhr.above": lambda s, k: formulas.missed(s.hits, s.hot, s.sheet.n_relevant_hot, k),
    "uhr.below": lambda s, k: s.sheet.n_relevant_hot.astype(np.float64),
    "ucr.above": lambda s, k: formulas.missed(s.hits, s.cold, s.sheet.n_relevant_cold, k),
    "ucr.below": lambda s, k: s.sheet.n_relevant_cold.astype(np.float64),
}
"""What formulas add up over users. `slots` and `demand` are [n, 10]: one number per popularity decile."""
RATES = ("ohr", "ocr", "uhr", "ucr")
"""The paper's four rates: fractions per user, of which the two sides are columns, since averages differ in what they
make of an empty denominator."""


def _shown(get: Get, first: int, last: int) -> Any:
    return get("slots")[..., first:last].sum(axis=-1) / get("slots").sum(axis=-1)


def _wanted(get: Get, first: int, last: int) -> Any:
    return get("demand")[..., first:last].sum(axis=-1) / get("demand").sum(axis=-1)


def _pooled(rate: str) -> Callable[[Get], Any]:
    return lambda get: get(f"{rate}.above") / get(f"{rate}.below")


def _of_rate(rate: str, title: str, formula: str, meaning: str) -> list[Metric]:
    """The paper's average, the average over users who have a denominator, and the pooled rate."""

    def form(suffix: str, average: str, words: str) -> Metric:
        shown = f"{title} ({average})" if suffix else title
        how: dict[str, Any] = {"of_sums": _pooled(rate)} if average == "pooled" else {"rate": rate}
        return Metric(rate + suffix, shown, "bias", False, meaning + words, formula, average=average, **how)

    return [
        form("", "paper", "; a user without any counts as 0"),
        form("_defined", "defined", "; over users with a denominator"),
        form("_pooled", "pooled", "; over all users' counts together"),
    ]


# fmt: off
_ACCURACY = (
    Metric("precision", "Precision", "accuracy", True, "share of the k slots that hold a wanted item", "TP / k",
           of_user=lambda s, k: formulas.precision(s.hits, k)),
    Metric("recall", "Recall", "accuracy", True, "share of the wanted items that are shown", "TP / |T|",
           of_user=lambda s, k: formulas.recall(s.hits, s.sheet.n_relevant, k)),
    Metric("recall_even", "Recall, even exposure", "accuracy", True,
           "recall as it would be had all items been exposed alike: an estimate that takes exposure for a power of "
           "popularity",
           "Σ over hits 1/p / Σ over T 1/p, p = (n / largest n)^e",
           average="pooled", of_sums=lambda get: get("even.shown") / get("even.wanted")),
    Metric("f1", "F1", "accuracy", True, "harmonic mean of precision and recall, per user", "2·TP / (k + |T|)",
           of_user=lambda s, k: formulas.f1(s.hits, s.sheet.n_relevant, k)),
    Metric("ndcg", "NDCG", "accuracy", True, "hits, counting more the higher they stand",
           "Σ over hits 1/log2(rank + 1), over that of the best list",
           of_user=lambda s, k: formulas.ndcg(s.hits, s.sheet.n_relevant, k)),
    Metric("hit_rate", "Hit rate", "accuracy", True, "share of users with at least one wanted item",
           "1 if TP > 0 else 0", of_user=lambda s, k: formulas.hit_rate(s.hits, k)),
    Metric("mrr", "MRR", "accuracy", True, "1 / rank of the first wanted item, 0 without one",
           "1 / rank of the first hit", of_user=lambda s, k: formulas.reciprocal_rank(s.hits, k)),
    Metric("fpr", "FPR", "accuracy", False, "1 − precision, the paper's false positive rate", "1 − TP / k",
           of_user=lambda s, k: formulas.fpr(s.hits, k)),
    Metric("fnr", "FNR", "accuracy", False, "1 − recall", "|T \\ Rec| / |T|",
           of_user=lambda s, k: formulas.fnr(s.hits, s.sheet.n_relevant, k)),
    Metric("fpr_true", "true FPR", "accuracy", False, "share of all items that are not wanted which is shown",
           "|Rec ∩ N| / |N|", of_user=lambda s, k: formulas.fpr_true(s.negatives, s.sheet.n_negatives, k)),
)
_BIAS = (
    *_of_rate("ohr", "OHR", "|(Rec \\ T) ∩ Hot| / |Rec ∩ Hot|", "of the hot items shown, the share that is not wanted"),
    *_of_rate("ocr", "OCR", "|(Rec \\ T) ∩ Cold| / |Rec ∩ Cold|",
              "of the cold items shown, the share that is not wanted"),
    *_of_rate("uhr", "UHR", "|(T \\ Rec) ∩ Hot| / |T ∩ Hot|", "of the hot items wanted, the share that is not shown"),
    *_of_rate("ucr", "UCR", "|(T \\ Rec) ∩ Cold| / |T ∩ Cold|",
              "of the cold items wanted, the share that is not shown"),
    Metric("popreo", "PopREO", "bias", False, "how unlike hot and cold are in the chance of a wanted item to be shown",
           "|a − b| / (a + b), a and b = 1 − pooled UHR, UCR",
           average="pooled", of_sums=lambda get: formulas.unevenness(1 - _pooled("uhr")(get), 1 - _pooled("ucr")(get))),
)
_EXPOSURE = (
    Metric("exposure_gap", "Exposure gap", "exposure", False,
           "share of the slots that would have to go to another popularity tenth for exposure to follow demand",
           "½ Σ over tenths |share of slots − share of demand|",
           average="pooled", of_sums=lambda get: formulas.total_variation(get("slots"), get("demand"))),
    Metric("top_tenth_share", "Top tenth", "exposure", None,
           "share of the slots that go to the most popular tenth of the items", "slots of tenth 1 / slots",
           average="pooled", of_sums=lambda get: _shown(get, 0, 1)),
    Metric("top_tenth_ratio", "Top tenth ratio", "exposure", None,
           "that share over the share of demand of the same items; 1 is even",
           "share of slots / share of demand, tenth 1",
           high=math.inf, average="pooled", of_sums=lambda get: _shown(get, 0, 1) / _wanted(get, 0, 1)),
    Metric("tail_share", "Tail", "exposure", None, "share of the slots that go to the less popular half of the items",
           "slots of tenths 6 to 10 / slots", average="pooled", of_sums=lambda get: _shown(get, TAIL_FROM, PARTS)),
    Metric("tail_ratio", "Tail ratio", "exposure", None,
           "that share over the share of demand of the same items; 1 is even",
           "share of slots / share of demand, tenths 6 to 10",
           high=math.inf, average="pooled",
           of_sums=lambda get: _shown(get, TAIL_FROM, PARTS) / _wanted(get, TAIL_FROM, PARTS)),
    Metric("items_for_half", "Items for half", "exposure", True, "number of items that half of the slots go to",
           "least m: the m most shown items hold half of the slots",
           high=math.inf, average="items", of_items=formulas.items_for_half, digits=0,
           slope=formulas.items_for_half_slope),
    Metric("arp", "ARP", "exposure", None, "train popularity of the items shown, averaged over users",
           "mean over the list of an item's interactions",
           high=math.inf, average="served",
           of_user=lambda s, k: formulas.average_popularity(s.top[:, :k], s.sheet.popularity)),
    Metric("popularity_lift", "Popularity lift", "exposure", False,
           "how much more popular lists are than the users' own histories", "Σ popularity shown / Σ popularity had − 1",
           low=-1.0, high=math.inf, average="pooled", of_sums=lambda get: get("lift.shown") / get("lift.habit") - 1.0),
    Metric("aplt", "APLT", "exposure", True, "share of long-tail (cold) items in a list", "|Rec ∩ Cold| / |Rec|",
           average="served", of_user=lambda s, k: formulas.long_tail_share(s.top[:, :k], s.sheet.hot)),
    Metric("aclt", "ACLT", "exposure", True, "number of long-tail (cold) items in a list", "|Rec ∩ Cold|",
           high=math.inf, average="served",
           of_user=lambda s, k: np.where((s.top[:, :k] != NO_ITEM).any(axis=1),
                                         formulas.long_tail_count(s.top[:, :k], s.sheet.hot), np.nan)),
    Metric("poprsp", "PopRSP", "exposure", False, "how unlike hot and cold are in the chance of any item to be shown",
           "|a − b| / (a + b), a and b = shown / could be shown, hot, cold",
           average="pooled",
           of_sums=lambda get: formulas.unevenness(get("fresh.hot") / get("room.hot"),
                                                   get("fresh.cold") / get("room.cold"))),
    Metric("gini", "Gini", "exposure", False, "inequality of exposure over the catalogue",
           "Gini coefficient of the items' slots", average="items", of_items=gini, slope=formulas.gini_slope),
    Metric("entropy", "Entropy", "exposure", True, "Shannon entropy of exposure, in bits",
           "−Σ p·log2 p over the items' shares of slots",
           high=math.inf, average="items", of_items=formulas.shannon_entropy, slope=formulas.entropy_slope),
    Metric("coverage", "Coverage", "exposure", True, "share of the catalogue that is shown to anybody",
           "items in any list / items", average="items", of_items=formulas.coverage, slope=formulas.coverage_slope),
    Metric("js_distance", "JS distance", "exposure", False,
           "Jensen–Shannon distance of exposure and demand over popularity deciles",
           "√JSD₂ of the tenths' shares of slots and of demand",
           average="pooled", of_sums=lambda get: formulas.jensen_shannon(get("slots"), get("demand"))),
)
# fmt: on

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (*_ACCURACY, *_BIAS, *_EXPOSURE)}
"""Every metric by name, in the order in which tables show them."""

# ---- selections: which metrics a view shows. No other module lists names of metrics.

HEADLINE = "exposure_gap"
"""The one figure of bias that stands beside NDCG."""
PAPER = ("precision", "recall", "f1", "ndcg", *RATES)
"""The columns of the paper's tables."""
HISTORY = tuple(name for name in PAPER if name != "f1")
"""What is measured after each epoch."""
BEST_EPOCH = ("precision", "recall", "f1", "ndcg", "fpr", "fnr")
"""What the paper's protocol reports from each metric's own best test epoch."""
FRONT = ("ndcg", HEADLINE)
"""What heads every table: accuracy, and the one figure of bias."""
GLANCE = (HEADLINE, "coverage")
"""What stands beside the accuracy of each test where a comparison is summed up."""
CARD = (*FRONT, *(name for name in HISTORY if name not in FRONT))
"""The table of a model card."""
SCREEN: tuple[tuple[tuple[str, ...], int], ...] = (
    ((*FRONT, *(name for name in PAPER if name not in FRONT)), 4),
    ((*FRONT, "precision", *RATES), 4),
    ((*FRONT, "precision", *RATES), 3),
    ((*FRONT, *RATES), 3),
    ((*FRONT, "ohr", "ucr"), 3),
    (FRONT, 3),
)
"""Metrics and digits of a table of results; the first that fits the screen is taken."""
POOLED = tuple(f"{rate}_pooled" for rate in RATES)
"""What an audit says about the rates, in tables and sentences alike: only pooled ones read as shares of items."""
PAGE = (
    ("Accuracy", ("ndcg", "precision")),
    ("Popularity bias", POOLED),
    ("Exposure", (HEADLINE, "popularity_lift", "gini", "coverage")),
)
"""The metrics of a report's first screen."""
CONTRASTED = (
    *("precision", "recall", "ndcg", "hit_rate", "mrr"),
    *(*RATES, *POOLED, "popreo"),
    *(HEADLINE, "popularity_lift", "aplt", "poprsp", "gini", "entropy", "coverage", "js_distance"),
)
"""What systems are compared by: one of each kind, so that the correction for many questions stays mild."""
SUMMARY = (
    *("ndcg", HEADLINE, "precision", "recall", "recall_even", "hit_rate", "mrr"),
    *(*POOLED, "popreo"),
    *("top_tenth_share", "top_tenth_ratio", "tail_share", "tail_ratio", "items_for_half", "coverage", "gini"),
    *("entropy", "popularity_lift", "aplt", "poprsp", "js_distance"),
)
"""What an audit prints, the headline first."""
SCOREBOARD = ("recall", "ndcg", HEADLINE)
"""What a benchmark shows with intervals."""
MEASURED = (*SCOREBOARD, "top_tenth_share", "top_tenth_ratio", "coverage")
"""What it keeps for every cell, beside precision."""
SLICE_CHART = ("ndcg", "recall", "precision", "ohr")
"""What the chart of a slice shows: the first that the slice has."""
SLICED = ("precision", "recall", "ndcg", "hit_rate", *RATES, "arp", "aplt", "popularity_lift")
"""What is measured for each slice of users."""


def available(has_test: bool) -> list[str]:
    """Every metric that can be computed, with or without a test part."""
    return [name for name, metric in METRICS.items() if has_test or not metric.needs_test]


def named(name: str) -> Metric:
    """The metric of that name; an unknown one is an error that names the nearest."""
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]


def share_with_denominator(name: str, means: Mapping[str, float]) -> float:
    """Of a rate in the paper's average: which share of the users has a denominator; 1 for any other metric.

    A system that shows nothing cold has an OCR near 0, which is no merit; the share tells.

    >>> share_with_denominator("ocr", {"ocr": 0.002, "ocr_defined": 1.0})
    0.002
    """
    metric, mean, defined = METRICS.get(name), means.get(name), means.get(f"{name}_defined")
    if metric is None or metric.average != "paper" or mean is None or defined is None:
        return 1.0
    if math.isnan(defined):
        return 0.0
    return 1.0 if defined == 0 else mean / defined
