"""Add the runs of another results folder, as one that was measured on another machine, to results/.

    python scripts/merge_results.py OTHER [--into results] [--experiment scoreboard]

A run that both have is taken from OTHER, unless it failed there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evenhand.experiments.results import Results


def merge(other: Path, into: Path, experiment: str) -> int:
    """How many runs were added or replaced."""
    known = Results(into)
    found = {
        name: run
        for name, run in Results(other).runs.items()
        if run.experiment.startswith(experiment) and (run.measured or name not in known.runs)
    }
    changed = sum(known.runs.get(name) is None or vars(known.runs[name]) != vars(run) for name, run in found.items())
    known.runs |= found
    known.write()
    return changed


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("other", type=Path)
    options.add_argument("--into", type=Path, default=Path("results"))
    options.add_argument("--experiment", default="scoreboard")
    asked = options.parse_args()
    print(f"{merge(asked.other, asked.into, asked.experiment)} runs added or replaced in {asked.into}")


if __name__ == "__main__":
    main()
