"""The scoreboard's best line for the README and the recipe's table, from the recorded cells of `evenhand benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_text import paragraph, short, spread, table

from evenhand.experiments.benchmark import EXPERIMENT, scoreboard
from evenhand.experiments.results import Results
from evenhand.experiments.suite import known_suite

CHOSEN = {
    "test": " (its hyperparameters or epochs were chosen on the test part)",
    "unknown": " (where its hyperparameters were chosen is not said)",
}


def blocks(results: Path) -> dict[str, dict[str, str]]:
    """A page → the name of a block → its text."""
    found = Results(results)
    board = scoreboard(found, known_suite())
    return {"README.md": {"scoreboard": best_line(board)}, "docs/recipe.md": {"recipe": recipes(found, board)}}


def recipes(results: Results, board: dict[str, Any]) -> str:
    """What the recipe measured on each test, beside the best published number."""
    published = {(test["set"], test["test"]): _published(test) for test in board["tests"]}
    rows = []
    for run in results.runs.values():
        if not run.experiment.startswith(EXPERIMENT) or not run.method.startswith("recipe") or not run.measured:
            continue
        on_gpu = run.experiment != EXPERIMENT
        seeds, budget = len(run.measured["ndcg@20"]), run.method.partition("budget=")[2]
        took = f"{run.seconds / seeds:.0f} s" + ("" if on_gpu else f", {run.details['memory_mb'] / 1024:.1f} GiB")
        rows.append(
            [f"{run.dataset}, {run.split}", "one H200" if on_gpu else "two cores", f"{budget} s", took, str(seeds)]
            + [spread(run.summary(key)) for key in ("recall@20", "ndcg@20", "ndcg@5")]
            + [published[run.dataset, run.split]]
        )
    heads = ["data, test", "on", "budget", "a seed took", "seeds", "recall@20", "NDCG@20", "NDCG@5"]
    order = [f"{test['set']}, {test['test']}" for test in board["tests"]]
    return table([*heads, "best published"], sorted(rows, key=lambda row: (order.index(row[0]), row[1])))


def best_line(board: dict[str, Any]) -> str:
    """Where what validation chose leads the best published number by most, and in how many tests it leads."""
    found = []
    for test in board["tests"]:
        ours = next((row for row in test["rows"] if row["name"] == test["choice"]), None)
        theirs = next((row for row in test["published"] if row["method"] == test["best_published"]), None)
        if ours is not None and theirs is not None:
            found.append((ours["metrics"]["ndcg"]["mean"] / theirs["ndcg"] - 1, test, ours, theirs))
    more = "All of it: [docs/scoreboard.md](docs/scoreboard.md)."
    if not found:
        return more
    lead, test, ours, theirs = max(found, key=lambda one: one[0])
    ahead, value = sum(one[0] > 0 for one in found), ours["metrics"]["ndcg"]["mean"]
    sign = "+" if lead >= 0 else "−"
    return paragraph(
        f"**{sign}{abs(100 * lead):.0f} % NDCG@{board['k']}** on {test['set']} ({test['test']}): {short(value)} for "
        f"`{ours['name']}`, which validation chose, against {short(theirs['ndcg'])} for the best published method, "
        f"{theirs['method']}{CHOSEN.get(theirs['chosen_on'], '')}.",
        f"What validation chooses leads in {ahead} of the {len(found)} tests that have a published number.",
        more,
    )


def _published(test: dict[str, Any]) -> str:
    best = next((row for row in test["published"] if row["method"] == test["best_published"]), None)
    return "–" if best is None else f"{short(best['recall'])} / {short(best['ndcg'])}"
