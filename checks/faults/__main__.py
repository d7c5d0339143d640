"""python -m checks.faults [--kills 200] [--aimed 8] [--only NAME] [--add OPTIONS] [--seed 0]

Kills every kind of work at its file operations, in the middle of its files, and at random moments, a share of
them in processes started afresh; fills disks; then prints what was lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from checks.faults.disk import DiskTally, can_mount, fill  # noqa: E402
from checks.faults.life import forked, fresh  # noqa: E402
from checks.faults.served import served  # noqa: E402
from checks.faults.stories import Run, Stage, Tally  # noqa: E402
from checks.faults.works import WORKS, make_inputs  # noqa: E402

FRESH_SHARE = 0.15
"""Of the random kills, in processes of their own."""
SERVE = "serve, replaced under load"
START_UP = 4.0
"""Seconds that a fresh process takes to import everything, about."""


def main() -> None:
    asked = _arguments()
    draw = random.Random(asked.seed)
    began = time.monotonic()
    tallies: dict[str, Tally] = {}
    disks: dict[str, DiskTally] = {}
    with tempfile.TemporaryDirectory(prefix="torture-", dir=asked.folder) as name:
        home = Path(name)
        make_inputs(home / "inputs", home)
        mounts = can_mount(home)
        works = [replace(work, command=f"{work.command} {asked.add}") for work in WORKS if asked.only in work.name]
        for work in works:
            stage = Stage.of(work, home / "inputs", home / work.name.replace(" ", "-"))
            tally = tallies[work.name] = Tally()
            _say(f"{work.name}: {stage.seconds:.1f} s and {stage.operations} file operations undisturbed")
            for end in _aimed(stage, draw, asked.aimed):
                tally.add(stage.story(forked, _first(end)))
            enough = tally.kills + asked.kills / len(works)
            while tally.kills < enough:
                tally.add(stage.story(*_at_random(stage, draw)))
            _say(f"{work.name}: {tally}")
            if mounts and work.ranks == 1 and not work.script:
                disks[work.name] = fill(stage)
                _say(f"{work.name}: {disks[work.name]}")
        if asked.only in SERVE:
            try:
                import uvicorn  # noqa: F401
            except ImportError:
                _say("serve: left out, as evenhand[serve] is not installed")
            else:
                kills = asked.aimed + asked.kills // (len(works) or 1)
                tallies[SERVE] = served(home / "inputs", home / "serve", kills, draw, _say)
                _say(f"{SERVE}: {tallies[SERVE]}")
    _print(tallies, disks, time.monotonic() - began)
    sys.exit(0 if all(one.clean for each in (tallies, disks) for one in each.values()) else 1)


def _aimed(stage: Stage, draw: random.Random, most: int) -> list[dict[str, Any]]:
    """Ends at file operations, all of them or so many, and in the middle of a file."""
    operations = range(1, stage.operations + 1)
    if not stage.work.every and len(operations) > most:
        operations = sorted(draw.sample(operations, most))
    sizes = [draw.randrange(1, 20_000) for _ in range(3)]
    return [{"at_operation": at} for at in operations] + [{"at_size": size} for size in sizes]


def _at_random(stage: Stage, draw: random.Random) -> tuple[Run, Callable[[int], dict[str, Any]]]:
    """In which kind of process, and after how long each of the first lives ends."""
    afresh = draw.random() < FRESH_SHARE
    longest = stage.seconds + (START_UP if afresh else 0)
    return fresh if afresh else forked, lambda life: {"after": draw.uniform(0, longest)} if life < 4 else {}


def _first(end: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """The first life ends so, the next by itself."""
    return lambda number: end if number == 0 else {}


def _print(tallies: dict[str, Tally], disks: dict[str, DiskTally], seconds: float) -> None:
    import torch

    import evenhand

    headings = ("work", "kills", "runs", "equal to the bit", "lost epochs", "lost trials", "broken", "litter")
    total = Tally()
    rows = []
    for name, tally in tallies.items():
        total.add(tally)
        rows.append((name, tally))
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    for name, t in (*rows, ("**all**", total)):
        cells = (t.kills, t.stories, t.equal, t.lost_epochs, t.lost_trials, t.broken, t.litter)
        print(f"| {name} | {' | '.join(map(str, cells))} |")
    print("\n| work | full disks | one sentence | unharmed |\n|---|---|---|---|")
    for name, met in disks.items():
        print(f"| {name} | {met.full} | {met.told} | {met.unharmed} |")
        total.troubles += met.troubles
    if not disks:
        print("no disks could be mounted, which takes the rights of root")
    print(
        f"\n{seconds / 60:.0f} min; evenhand {evenhand.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    for trouble in total.troubles[:40]:
        print(trouble, file=sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="random kills in all, beside the aimed ones")
    parser.add_argument("--aimed", type=int, default=8, help="file operations of a kind of work to kill at")
    parser.add_argument("--only", default="", help="kinds of work whose name holds this")
    parser.add_argument("--add", default="", help="options to add to their commands, such as '--batch 2048'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to work (default: the system's temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
