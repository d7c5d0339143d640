"""A scoreboard of made-up cells: two tests of a known set, one failed cell, one log of a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evenhand.experiments.benchmark import KEPT, KS, Cell, scoreboard
from evenhand.experiments.results import Results
from evenhand.experiments.suite import Test, known_suite

STRANGE = "a|b`c<img src=x onerror=alert(1)>"


def made_run(results: Results, test: Test, method: str, ndcg: float, problem: str | None = None) -> None:
    cell = Cell(test, method, 2, 4, "cpu")
    if problem is not None:
        results.add(cell.run(seconds=1.0, details={"problem": problem}))
        return
    values = {"ndcg": ndcg, "recall": ndcg + 0.03, "top_tenth_ratio": 2.5}
    measured: dict[str, Any] = {f"{name}@{k}": [values.get(name, 0.4)] for k in KS for name in KEPT}
    details = {
        "split": "made up",
        "cpu_seconds": 2.0,
        "memory_mb": 512,
        "intervals": {"ndcg@20": [ndcg - 0.01, ndcg + 0.01]},
    }
    measured["validation ndcg@10"] = [ndcg / 2]
    results.add(cell.run(seconds=12.3, hardware="a machine", details=details, measured=measured))


def made_scoreboard(folder: Path) -> dict[str, Any]:
    suite, results = known_suite(), Results(folder)
    iid, shift, _ = suite.named(["amazon-electronic"])
    for method, ndcg in (("popular", 0.02), ("ease", 0.0600), ("lightgcn/dns", 0.055)):
        made_run(results, iid, method, ndcg)
    made_run(results, shift, "ease", 0.0150)
    made_run(results, shift, "als", 0, problem="there is not enough memory for it.")
    own = Test(STRANGE, "iid", "random", "random", files=("log.csv",))
    made_run(results, own, "popular", 0.3)
    return scoreboard(results, suite, {("Yelp2018", "iid"): "yelp2018 was not found."})
