"""What has changed since an earlier audit, and by more than its users' chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from evenhand.audit.result import Audit, Change, Estimate, SystemRow
from evenhand.metrics.catalogue import HEADLINE, METRICS


def against(audit: Audit, earlier: Audit) -> Audit:
    """The audit with its changes, and with notes on what the two do not share."""
    before = {(row.name, row.k): row.metrics for row in earlier.rows}
    changes = [
        _change(row, metric, before[row.name, row.k])
        for row in audit.rows
        if (row.name, row.k) in before
        for metric in row.metrics
        if metric in before[row.name, row.k]
    ]
    beyond = sum(change.beyond_uncertainty for change in changes)
    notes = _unlike(audit, earlier)
    if changes:
        notes.append(f"{beyond:,} of {len(changes):,} metrics differ from the baseline beyond the uncertainty.")
    return replace(audit, changes=tuple(changes), notes=(*audit.notes, *notes))


def _change(row: SystemRow, metric: str, earlier: Mapping[str, Estimate]) -> Change:
    before, after = earlier[metric], row.metrics[metric]
    moved = after.value - before.value
    half = math.hypot(_half(before), _half(after))
    beyond = not math.isnan(moved) and not math.isnan(half) and abs(moved) > half
    better = METRICS[metric].higher_is_better if metric in METRICS else None
    worse = None if better is None or not moved or math.isnan(moved) else (moved < 0) == better
    if worse and _asked_for(metric, earlier, row.metrics):
        worse = None
    return Change(row.name, row.k, metric, before, after, beyond, worse)


def _asked_for(metric: str, before: Mapping[str, Estimate], after: Mapping[str, Estimate]) -> bool:
    """Whether a rise is only what showing more of the long tail brings, as a re-ranking is asked to.

    More lists then hold a cold item, and in the paper's average a list without any counted as an OCR of 0: what
    speaks is the pooled rate. And exposure may stray from demand to either side; only towards hits it is worse.
    """

    def rose(name: str) -> bool:
        return name in before and name in after and after[name].value > before[name].value

    if metric in METRICS and METRICS[metric].average == "paper":
        return rose("aplt") and not rose(f"{metric}_pooled")
    return metric in (HEADLINE, "js_distance") and rose("aplt")


def _half(estimate: Estimate) -> float:
    """Half the width of the interval; of one that the metric's range cuts off, the longer side."""
    if estimate.low is None or estimate.high is None:
        return math.nan
    return max(estimate.value - estimate.low, estimate.high - estimate.value)


def _unlike(audit: Audit, earlier: Audit) -> list[str]:
    notes = []
    for what, mine, theirs in (
        ("systems", audit.systems, earlier.systems),
        ("list lengths", audit.ks, earlier.ks),
    ):
        if set(mine) != set(theirs):
            shared = [one for one in mine if one in theirs]
            common = ", ".join(map(str, shared)) if shared else "nothing"
            notes.append(f"The baseline has other {what} ({', '.join(map(str, theirs))}); {common} can be compared.")
    if audit.data.get("hot_rule") != earlier.data.get("hot_rule"):
        notes.append(f"The baseline has another hot rule: {earlier.data.get('hot_rule')}.")
    if (audit.data.get("test_interactions") is None) != (earlier.data.get("test_interactions") is None):
        notes.append("Of this audit and its baseline only one has a test part, so only exposure is compared.")
    return notes
