"""The audit in three or four plain sentences, each with its numbers and whether chance could explain it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evenhand.audit.measures import Measures
from evenhand.audit.result import Contrast, Estimate, Finding, SystemRow


def find(
    rows: Sequence[SystemRow],
    contrasts: Sequence[Contrast],
    measures: Measures,
    systems: Sequence[str],
    k: int,
) -> tuple[Finding, ...]:
    """About the first system, and about it against the best of the others."""
    first = systems[0]
    metrics = {row.name: row.metrics for row in rows if row.k == k}
    own = metrics[first]
    found = [_lift(first, own["popularity_lift"], k)]
    if measures.has_test:
        found = [_unwanted(first, own, k), _missed(first, own, measures, k), *found]
    if len(systems) > 1:
        lead, higher = ("ndcg", True) if measures.has_test else ("aplt", True)
        baseline = max(systems[1:], key=lambda name: _order(metrics[name][lead].value, higher))
        between = {c.metric: c for c in contrasts if c.k == k and {c.a, c.b} == {first, baseline}}
        if measures.has_test:
            found = [*found[:2], _against(between["ndcg"], "NDCG", "is {} accurate")]
            found.append(_against(between["ohr"], "OHR", "errs {} often in the hot items it shows"))
        else:
            found.append(_against(between["aplt"], "APLT", "shows {} of the long tail"))
    return tuple(one for one in found if one is not None)


def _order(value: float, higher: bool) -> float:
    if math.isnan(value):
        return -math.inf
    return value if higher else -value


def _unwanted(name: str, own: Mapping[str, Estimate], k: int) -> Finding | None:
    hot, cold = own["ohr_pooled"], own["ocr_pooled"]
    if math.isnan(hot.value):
        return None
    share = f"which make up {100 * own['aplt'].value:.1f} % of its lists"
    tail = "" if math.isnan(cold.value) else f"; of the cold ones, {share}, {percent(cold)}"
    return Finding(f"Of the hot items that {name} shows in its top {k}, {percent(hot)} were not wanted{tail}.", None)


def _missed(name: str, own: Mapping[str, Estimate], measures: Measures, k: int) -> Finding | None:
    hot, cold = own["uhr_pooled"], own["ucr_pooled"]
    if math.isnan(hot.value) or math.isnan(cold.value):
        return None
    gap = measures.swept.draws.measure(
        lambda get: (
            get((name, k, "ucr.above")) / get((name, k, "ucr.below"))
            - get((name, k, "uhr.above")) / get((name, k, "uhr.below"))
        )
    )
    certain = gap.p < 0.05
    worse = "cold" if gap.value > 0 else "hot"
    doubt = f"{worse} ones fare worse, beyond chance" if certain else "the difference is within chance"
    return Finding(
        f"{name} misses {percent(cold)} of the cold items that users wanted "
        f"and {percent(hot)} of the hot ones: {doubt}.",
        certain,
    )


def _lift(name: str, lift: Estimate, k: int) -> Finding | None:
    if math.isnan(lift.value):
        return None
    certain = None
    if lift.low is not None and lift.high is not None:
        certain = lift.low > 0 or lift.high < 0
    way = "more" if lift.value >= 0 else "less"
    size = Estimate(abs(lift.value), *_flipped(lift) if lift.value < 0 else (lift.low, lift.high))
    doubt = {True: ", beyond chance", False: ", within chance", None: ""}[certain]
    return Finding(
        f"The top {k} of {name} is {percent(size)} {way} popular than what its users had before{doubt}.",
        certain,
    )


def _flipped(estimate: Estimate) -> tuple[float | None, float | None]:
    if estimate.low is None or estimate.high is None:
        return None, None
    return -estimate.high, -estimate.low


def _against(contrast: Contrast, title: str, words: str) -> Finding | None:
    """`words` have a place for "more" or "less"."""
    gap, a, b = contrast.difference, contrast.a, contrast.b
    if math.isnan(gap.value):
        return None
    low, high = gap.low, gap.high
    if gap.value < 0:
        low, high = _flipped(gap)
    span = "" if low is None or high is None else f" [{low:.4f}, {high:.4f}]"
    way = words.format("more" if gap.value >= 0 else "less")
    size = f"{abs(gap.value):.4f}{span} {title}@{contrast.k}"
    if contrast.beyond_uncertainty:
        return Finding(f"{a} {way} than {b}, by {size}, beyond chance ({_p(contrast.p)}, corrected).", True)
    if gap.value == 0:
        return Finding(f"{a} and {b} have the same {title}@{contrast.k}.", False)
    doubt = "too few users to tell" if math.isnan(contrast.p) else f"{_p(contrast.p)}, corrected"
    return Finding(f"That {a} {way} than {b}, by {size}, may be chance ({doubt}).", False)


def _p(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def percent(estimate: Estimate) -> str:
    """`58.1 % [57.0, 59.2]`.

    >>> percent(Estimate(0.581, 0.57, 0.592))
    '58.1 % [57.0, 59.2]'
    """
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f} %"
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
