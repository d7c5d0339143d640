"""The scoreboard's best line for the README, from the recorded cells of `evenhand benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from page_text import paragraph, short

from evenhand.experiments.results import Results
from evenhand.experiments.scoreboard import scoreboard
from evenhand.experiments.suite import known_suite

CHOSEN = {
    "test": " (its hyperparameters or epochs were chosen on the test part)",
    "unknown": " (where its hyperparameters were chosen is not said)",
}


def blocks(results: Path) -> dict[str, dict[str, str]]:
    """A page → the name of a block → its text."""
    return {"README.md": {"scoreboard": best_line(scoreboard(Results(results), known_suite()))}}


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
