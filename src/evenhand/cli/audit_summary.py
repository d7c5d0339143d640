"""The audit as small tables of texts for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from evenhand.audit.result import Audit, Estimate
from evenhand.metrics.catalogue import METRICS, SUMMARY


def headings(audit: Audit) -> list[str]:
    return ["metric", *audit.systems]


def lines(audit: Audit, intervals: bool = True) -> Iterator[list[str]]:
    """One line a metric: which way is better, and each system's value, with its interval or without."""
    rows = [audit.row(name, audit.k) for name in audit.systems]
    for metric in SUMMARY:
        if metric in rows[0].metrics:
            found = [row.metrics[metric] for row in rows]
            cells = [cell(e if intervals else Estimate(e.value), METRICS[metric].digits) for e in found]
            yield [f"{metric} {METRICS[metric].arrow}".rstrip(), *cells]


def tenths(audit: Audit) -> list[list[str]]:
    """By popularity tenth: its share of demand, and of each system's slots, and the share of its demand that is met.

    The first line holds the headings.
    """
    recalls = {
        (row.name, row.part): row.metrics["recall"]
        for row in audit.slices
        if row.by == "item popularity" and "recall" in row.metrics
    }
    parts = list(dict.fromkeys(row.part for row in audit.slices if row.by == "item popularity"))
    demand = {f"demand ({name})": shares for name, shares in audit.demand.items()}
    slots = {f"slots of {one.name}": one.share for one in audit.exposure}
    table = [["items", *demand, *slots, *(f"recall of {name}" for name in audit.systems if recalls)]]
    for part in parts:
        tenth = int(part.split()[1]) - 1
        shares = [f"{100 * column[tenth]:.1f} %" for column in (*demand.values(), *slots.values())]
        met = [cell(Estimate(recalls[name, part].value)) for name in audit.systems if recalls]
        table.append([part.replace("decile", "tenth"), *shares, *met])
    return table


def cell(estimate: Estimate, digits: int = 4) -> str:
    """`.4215 [.4041, .4389]`; an undefined number is a dash.

    >>> cell(Estimate(0.42151, 0.40412, 0.43889))
    '.4215 [.4041, .4389]'
    """

    def short(value: float) -> str:
        text = f"{value:.{digits if abs(value) < 100 else min(digits, 1)}f}"
        return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

    if math.isnan(estimate.value):
        return "–"
    if estimate.low is None or estimate.high is None:
        return short(estimate.value)
    return f"{short(estimate.value)} [{short(estimate.low)}, {short(estimate.high)}]"
