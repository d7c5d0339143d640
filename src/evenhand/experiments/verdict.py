"""The sentence at the end of a comparison: who wins, by how much, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from evenhand.metrics.catalogue import FRONT, HEADLINE, METRICS
from evenhand.metrics.statistics import Comparison, Estimate, compare_metric, estimate_metric
from evenhand.training.evaluation import Results
from evenhand.training.method import Fit, Method
from evenhand.training.settings import ProtocolName

BASELINE = "rns"


def headline_k(ks: Sequence[int]) -> int:
    """The list length of a summary."""
    return 10 if 10 in ks else min(ks)


def verdict(methods: Sequence[Method], fits: Mapping[str, Fit], protocol: ProtocolName, ks: Sequence[int]) -> str:
    """Which method is best, and how it compares with random negatives in accuracy and exposure.

    The best is chosen where the protocol chooses: on validation, or (as in the paper) on test.
    """
    k = headline_k(ks)
    validated = protocol == "honest" and all(fit.validation is not None for fit in fits.values())
    best = max(methods, key=lambda c: _chosen_by(fits[c.label], validated, k))
    basis = "validation" if validated else "test, as in the paper" if protocol == "paper" else "test"
    base = next((c for c in methods if c.name == BASELINE), None)
    opening = f"Best on {basis}: {best.label}"
    if base is None:
        return f"{opening}. Add rns to the methods to see how it compares with random negatives."
    if base is best:
        return f"{opening}, random negatives themselves: no other method was more accurate."
    accuracy, bias = _accuracy(fits, best, base, k), _bias(fits, best, base, k)
    return f"{opening}, against random negatives: {accuracy}; {bias}."


def _chosen_by(fit: Fit, validated: bool, k: int) -> float:
    if validated and fit.validation is not None:
        return float(np.mean(fit.validation))
    return _mean(fit, k, "ndcg")


def _accuracy(fits: Mapping[str, Fit], best: Method, base: Method, k: int) -> str:
    new, old = (_mean(fits[c.label], k, "ndcg") for c in (best, base))
    more = "more" if new >= old else "less"
    by = f"{100 * abs(new / old - 1):.1f} % " if old else ""
    return f"{by}{more} accurate (NDCG@{k} {new:.4f}, was {old:.4f}), {_certainty(fits, best, base, k, 'ndcg')}"


def _bias(fits: Mapping[str, Fit], best: Method, base: Method, k: int) -> str:
    title = METRICS[HEADLINE].title
    new, old = (_mean(fits[c.label], k, HEADLINE) for c in (best, base))
    if math.isnan(new) or math.isnan(old):
        return f"the {title.lower()}@{k} is undefined, so that exposure cannot be compared"
    more = "farther from" if new >= old else "nearer to"
    return (
        f"{100 * abs(new - old):.1f} points of exposure {more} demand "
        f"({title}@{k} {new:.4f}, was {old:.4f}), {_certainty(fits, best, base, k, HEADLINE)}"
    )


def headline(results: Results) -> str:
    """The two figures that sum a fit up, with their intervals over users; empty without a test part."""
    if not results:
        return ""
    k = headline_k(tuple(results))
    users = [one.users for one in results[k]]
    values = [f"{METRICS[name].title}@{k} {_with_interval(estimate_metric(users, name))}" for name in FRONT]
    meaning = f"{METRICS[HEADLINE].title}: {METRICS[HEADLINE].meaning}"
    return f"{'; '.join(values)}. {meaning}, from 0 to 1."


def _with_interval(one: Estimate) -> str:
    if math.isnan(one.value):
        return "undefined"
    return f"{one.value:.4f}" + ("" if one.low is None else f" [{one.low:.4f}, {one.high:.4f}]")


def _mean(fit: Fit, k: int, name: str) -> float:
    return float(np.mean([result.metrics[name] for result in fit.results[k]]))


def _certainty(fits: Mapping[str, Fit], best: Method, base: Method, k: int, name: str) -> str:
    new, old = ([result.users for result in fits[c.label].results[k]] for c in (best, base))
    # What does not depend on the seed has one result, which stands for every seed.
    seeds = max(len(new), len(old))
    new, old = (side * seeds if len(side) == 1 else side for side in (new, old))
    return certainty(compare_metric(new, old, name))


def certainty(test: Comparison) -> str:
    """Whether a difference exceeds the uncertainty, and what that rests on."""
    word = "beyond" if test.beyond_uncertainty else "within"
    return f"{word} the uncertainty by {test.rests_on}"
