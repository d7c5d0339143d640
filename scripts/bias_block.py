"""Tables on AUC-NS and popularity bias (docs/claims.md) and on defaults beside a search (docs/sparse.md).

From the recorded cells of `evenhand benchmark` and runs of `benchmarks/defaults.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_text import short, signed, spread, table

from evenhand.experiments.benchmark import EXPERIMENT
from evenhand.experiments.results import Results, Run
from evenhand.experiments.suite import known_suite
from evenhand.metrics.statistics import Interval, paired_over_seeds

TESTS = {
    ("Coat", "exposure"): "Coat, random exposure",
    ("demo", "exposure"): "`demo`, random exposure",
    ("MovieLens-100K", "shift"): "ML-100K, popularity shift",
    ("MovieLens-1M", "shift"): "ML-1M, popularity shift",
    ("Amazon-Electronic", "shift"): "Amazon-Electronic, popularity shift",
}
SHOWN = ("recall", "ndcg", "exposure_gap", "coverage")
ORDER = (
    *("rns", "pns", "dns", "auc-ns", "softmax", "auc-softmax", "psl", "bsl", "slatk"),
    *("bc-loss", "fairstatic", "samreg", "macr", "cause", "ips-cn", "lightgcn/rns", "lightgcn/dns", "lightgcn/bsl"),
)
KINDS = {"iid": "", "shift": ", popularity shift", "time": ", time", "exposure": ", random exposure"}
FAMILY, RELATIVES = "softmax-family", ("softmax", "psl", "slatk", "bsl", "auc-softmax")
METHODS = ("rns", "pns", "dns", "auc-ns", "ease", "gfcf", "itemknn", "popular")
"""Trained with MF, then those that are not trained."""


def blocks(results: Path) -> dict[str, dict[str, str]]:
    """A page → the name of a block → its text."""
    found = [run for run in Results(results).runs.values() if run.experiment == EXPERIMENT]
    runs = {(run.dataset, run.split, run.method): run for run in found if run.encoder in (None, "mf")}
    rows = [
        [title, f"`{method}`", *_cells(run)]
        for (data, test), title in TESTS.items()
        for method in METHODS
        if (run := runs.get((data, test, method))) is not None and run.measured
    ]
    heads = ["data", "method", "trials", "NDCG@20", "exposure gap@20", "coverage@20"]
    searched = _searched(results)
    shift = [
        [f"{data}, popularity shift", f"`{method}`", *(spread(run.summary(f"{name}@20")) for name in SHOWN)]
        for (data, test, method), (_, run) in searched.items()
        if test == "shift" and method in METHODS and run is not None
    ]
    return {
        "docs/claims.md": {
            "bias": table(heads, rows),
            "shift": table(["data", "method", "recall@20", "NDCG@20", "exposure gap@20", "coverage@20"], shift),
            "pool": _equal_pool(results),
        },
        "docs/sparse.md": {"defaults": _defaults(searched), "family": _family(results)},
    }


Pair = tuple[Run | None, Run | None]
"""A method with its defaults, and with what a search found."""


def _searched(results: Path) -> dict[tuple[str, str, str], Pair]:
    """By data, test and method, in the order of the suite."""
    runs = {
        (
            run.experiment,
            run.dataset,
            run.split,
            run.method if run.encoder == "mf" else f"{run.encoder}/{run.method}",
        ): run
        for run in Results(results).runs.values()
        if run.experiment in ("defaults", "tuned") and run.measured
    }
    tests = [one.key for one in known_suite().tests]
    known = sorted({key[1:] for key in runs}, key=lambda key: (tests.index(key[:2]), ORDER.index(key[2])))
    return {key: (runs.get(("defaults", *key)), runs.get(("tuned", *key))) for key in known}


def _defaults(searched: dict[tuple[str, str, str], Pair]) -> str:
    def lists(run: Run | None) -> str:
        if run is None:
            return "–"
        size = run.details.get("parameters", {}).get("dim")
        return " / ".join(spread(run.summary(f"{name}@20")) for name in SHOWN[:2]) + (f" (d {size})" if size else "")

    def share(default: Run | None, best: Run | None) -> str:
        if default is None or best is None:
            return "–"
        values = [run.summary("validation ndcg@20")["mean"] for run in (default, best)]
        return f"{values[0] / max(values):.2f}"

    rows = [
        [f"{data}, {test}", f"`{method}`", share(*pair), lists(pair[0]), lists(pair[1])]
        for (data, test, method), pair in searched.items()
    ]
    return table(["data, test", "method", "share on validation", "default: recall@20 / NDCG@20", "searched"], rows)


def _tested(gap: Interval) -> str:
    return f"{signed(gap.difference)} (p {'< .0001' if gap.p < 0.0001 else short(gap.p)})"


def _family(results: Path) -> str:
    """Softmax and its relatives, tuned alike: NDCG@20 on test and the point that validation chose."""
    names = {"temperature": "τ", "negative_weight": "t", "weight_temperature": "w", "alpha": "α", "beta": "β"}
    runs = {(*r.id.split("/")[1:2], r.method): r for r in Results(results).runs.values() if r.experiment == FAMILY}

    def cell(run: Run | None) -> str:
        if run is None:
            return "–"
        point = [f"{names[key]} {value:g}" for key, value in run.details["parameters"].items() if key in names]
        return f"{spread(run.summary('ndcg@20'))} ({', '.join(point)})"

    rows = []
    for one in known_suite().tests:
        test = "-".join(one.key)
        found = [runs.get((test, name)) for name in RELATIVES]
        if not any(found):
            continue
        both: list[Any] = [one.measured["ndcg@20"] for one in (found[-1], found[0]) if one]
        gap = paired_over_seeds(*both) if len(both) == 2 else None
        rows.append([f"{one.set}{KINDS[one.test]}", *map(cell, found)])
        rows[-1].append("" if gap is None else _tested(gap))
    heads = [f"`{name}`" for name in RELATIVES]
    return table(["NDCG@20", *heads, "`auc-softmax` less `softmax`"], rows)


def _equal_pool(results: Path) -> str:
    """Rules of AUC-NS beside DNS with as many candidates, with the paired t test over seeds."""
    of: dict[tuple[str, str, str], list[Run]] = {}
    for run in Results(results).runs.values():
        if run.experiment == "equal-pool":
            (pool,) = (part for part in run.method.split(":") if part.startswith("candidates="))
            of.setdefault((run.dataset, run.split, pool), []).append(run)
    tests = [one.key for one in known_suite().tests]
    rows = []
    for (data, test, _), runs in sorted(of.items(), key=lambda one: (len(one[0][2]), tests.index(one[0][:2]))):
        (dns,) = (run for run in runs if run.method.startswith("dns"))
        for run in sorted(runs, key=lambda run: ("auc" in run.method, "rule" in run.method)):
            gap = paired_over_seeds(run.measured["ndcg@20"], dns.measured["ndcg@20"])  # type: ignore[arg-type]
            said = "" if run is dns or gap is None else _tested(gap)
            lists = [spread(run.summary(f"{name}@20")) for name in SHOWN[:2]]
            rows.append([f"{data}, {test}", f"`{run.method}`", *lists, said])
    return table(["data, test", "method", "recall@20", "NDCG@20", "NDCG@20 less that of `dns`"], rows)


def _cells(run: Run) -> list[str]:
    intervals: dict[str, Any] = run.details["intervals"]

    def measured(key: str) -> str:
        low, high = intervals[key]
        return f"{spread(run.summary(key))} [{short(low)}, {short(high)}]"

    trials = str(run.details["asked"]["trials"] or "–")
    return [trials, measured("ndcg@20"), measured("exposure_gap@20"), short(run.summary("coverage@20")["mean"])]
