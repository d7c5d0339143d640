"""The audit in a few plain sentences, each with its numbers and whether chance could explain it.

The first are about the winner. Rates are pooled, as in the audit's tables, so that no sentence contradicts a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from evenhand.audit.measures import Measures
from evenhand.audit.result import Contrast, Estimate, Finding, SystemRow
from evenhand.metrics.catalogue import HEADLINE
from evenhand.metrics.statistics import LEAST_USERS


def find(
    rows: Sequence[SystemRow],
    contrasts: Sequence[Contrast],
    measures: Measures,
    systems: Sequence[str],
    k: int,
    demand: Mapping[str, Sequence[float]],
    n_items: int,
) -> tuple[Finding, ...]:
    """About the winner, and about it against the next best; the winner has the best NDCG or, without test, exposure."""
    metrics = {row.name: row.metrics for row in rows if row.k == k}
    order = sorted(systems, key=lambda name: _merit(metrics[name], measures.has_test), reverse=True)
    best, own = order[0], metrics[order[0]]
    exposure = _exposure(best, own, k, demand["test" if measures.has_test else "train"], n_items)
    if not measures.has_test:
        found = [exposure, _lift(best, own["popularity_lift"], k)]
    else:
        found = [exposure, _unwanted(best, own, k), _missed(best, own, measures, k)]
        if len(systems) == 1:
            found.append(_lift(best, own["popularity_lift"], k))
    if len(systems) > 1:
        between = {c.metric: _turned(c, best) for c in contrasts if c.k == k and {c.a, c.b} == {best, order[1]}}
        if measures.has_test:
            found.insert(0, _against(between["ndcg"], "NDCG", "is {} accurate"))
            found.append(_against(between["ohr_pooled"], "pooled OHR", "errs {} often in the hot items it shows"))
        else:
            found.append(_against(between[HEADLINE], "exposure gap", "strays {} from demand"))
    return tuple(one for one in found if one is not None)


def _merit(metrics: Mapping[str, Estimate], has_test: bool) -> float:
    value = metrics["ndcg"].value if has_test else -metrics[HEADLINE].value
    return -math.inf if math.isnan(value) else value


def _turned(contrast: Contrast, first: str) -> Contrast:
    """The contrast as `first` − the other."""
    if contrast.a == first:
        return contrast
    return replace(contrast, a=contrast.b, b=contrast.a, difference=_negated(contrast.difference))


def _exposure(name: str, own: Mapping[str, Estimate], k: int, demand: Sequence[float], n_items: int) -> Finding | None:
    share, gap, half = own["top_tenth_share"], own[HEADLINE], own["items_for_half"]
    if math.isnan(gap.value):
        return None
    return Finding(
        f"The most popular tenth of the items has {100 * demand[0]:.1f} % of the demand and gets {percent(share)} of "
        f"the top {k} of {name}; half of its slots go to {half.value:.0f} of {n_items:,} items. Exposure gap: "
        f"{percent(gap)} of the slots would have to go to other popularity tenths to follow demand.",
        None,
    )


def _unwanted(name: str, own: Mapping[str, Estimate], k: int) -> Finding | None:
    hot, cold = own["ohr_pooled"], own["ocr_pooled"]
    if math.isnan(hot.value):
        return None
    share = f"which make up {100 * own['aplt'].value:.1f} % of its lists"
    tail = "" if math.isnan(cold.value) else f"; of the cold ones, {share}, {percent(cold)}"
    return Finding(
        f"Of the hot items that {name} shows in its top {k}, {percent(hot)} were not wanted{tail} (pooled rates).", None
    )


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
    enough = gap.users >= LEAST_USERS
    certain = enough and gap.p < 0.05
    worse = "cold" if gap.value > 0 else "hot"
    doubt = "the difference is within chance" if enough else "too few users to tell them apart"
    return Finding(
        f"{name} misses {percent(cold)} of the cold items that users wanted and {percent(hot)} of the hot ones: "
        f"{f'{worse} ones fare worse, beyond chance' if certain else doubt}.",
        certain,
    )


def _lift(name: str, lift: Estimate, k: int) -> Finding | None:
    if math.isnan(lift.value):
        return None
    certain = None
    if lift.low is not None and lift.high is not None:
        certain = lift.low > 0 or lift.high < 0
    way = "more" if lift.value >= 0 else "less"
    size = _negated(lift) if lift.value < 0 else lift
    doubt = {True: ", beyond chance", False: ", within chance", None: ""}[certain]
    return Finding(
        f"The top {k} of {name} is {percent(size)} {way} popular than what its users had before{doubt}.",
        certain,
    )


def _negated(estimate: Estimate) -> Estimate:
    low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
    return Estimate(-estimate.value, low, high)


def _against(contrast: Contrast, title: str, words: str) -> Finding | None:
    """`words` have a place for "more" or "less"."""
    gap, a, b = contrast.difference, contrast.a, contrast.b
    if math.isnan(gap.value):
        return None
    found = _negated(gap) if gap.value < 0 else gap
    span = "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"
    way = words.format("more" if gap.value >= 0 else "less")
    size = f"{found.value:.4f}{span} {title}@{contrast.k}"
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
