"""The sentence at the end of a comparison: who wins, by how much, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evenhand.methods import Contender
from evenhand.metrics.statistics import Comparison, compare_metric
from evenhand.training.run import Fit
from evenhand.training.settings import ProtocolName

BASELINE = "rns"


def verdict(
    contenders: Sequence[Contender], fits: Mapping[str, Fit], protocol: ProtocolName, ks: Sequence[int]
) -> str:
    """Which contender is best, and how it compares with random negatives in accuracy and over-recommendation.

    The best is chosen where the protocol chooses: on validation, or (as in the paper) on test.
    """
    k = 10 if 10 in ks else ks[0]
    best = max(contenders, key=lambda c: _chosen_by(fits[c.label], protocol, k))
    basis = "on validation" if protocol == "honest" else "on test, as in the paper"
    base = next((c for c in contenders if c.method == BASELINE), None)
    opening = f"Best {basis}: {best.label}"
    if base is None:
        return f"{opening}. Add rns to the methods to see how it compares with random negatives."
    if base is best:
        return f"{opening}, random negatives themselves: no other method was more accurate."
    accuracy = _difference(fits, best, base, k, "ndcg")
    bias = _difference(fits, best, base, k, "ohr")
    return f"{opening}, against random negatives: {accuracy}; {bias}."


def _chosen_by(fit: Fit, protocol: ProtocolName, k: int) -> float:
    if protocol == "paper":
        return float(np.mean([result.metrics["ndcg"] for result in fit.results[k]]))
    found = fit.validation
    return -np.inf if found is None else float(np.mean(found))


def _difference(fits: Mapping[str, Fit], best: Contender, base: Contender, k: int, name: str) -> str:
    new, old = (fits[c.label].results[k] for c in (best, base))
    means = [float(np.mean([result.metrics[name] for result in side])) for side in (new, old)]
    test = compare_metric([r.users for r in new], [r.users for r in old], name)
    words = {"ndcg": ("more accurate", "less accurate"), "ohr": ("more", "less")}[name]
    if name == "ndcg":
        share = 100 * (means[0] / means[1] - 1) if means[1] else float("inf")
        claim = (
            f"{abs(share):.1f} % {words[0] if share >= 0 else words[1]} "
            f"(NDCG@{k} {means[0]:.4f}, was {means[1]:.4f})"
        )
    else:
        gap = 100 * (means[0] - means[1])
        claim = (
            f"{abs(gap):.1f} points {words[0] if gap >= 0 else words[1]} over-recommendation of hits "
            f"(OHR@{k} {means[0]:.4f}, was {means[1]:.4f})"
        )
    return f"{claim}, {certainty(test)}"


def certainty(test: Comparison) -> str:
    """Whether a difference exceeds the uncertainty, and what that rests on."""
    word = "beyond" if test.beyond_uncertainty else "within"
    return f"{word} the uncertainty by {test.rests_on}"
