"""Full disks: a small one for every run, a few pages larger each time until the work fits.

The kernel refuses the write, whichever library it comes from. Making such a disk takes the rights of root.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from checks.faults import state
from checks.faults.life import Death, forked
from checks.faults.stories import Stage, Tally

PAGE = 4096
MOST_SIZES = 5


@dataclass
class DiskTally:
    """What is counted over all sizes of disk for a kind of work."""

    full: int = 0
    """Runs that met a full disk."""
    told: int = 0
    """Of these: ended with one sentence and exit code 1 or 2."""
    unharmed: int = 0
    """Of these: what was there before is whole, and once there is room the work goes on to the same end."""
    troubles: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.full == self.told == self.unharmed


def can_mount(folder: Path) -> bool:
    try:
        with small_disk(folder / "trial", 4):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def small_disk(place: Path, pages: int) -> Iterator[Path]:
    place.mkdir(parents=True, exist_ok=True)
    options = f"size={pages * PAGE}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(stage: Stage) -> DiskTally:
    """Every size of disk from one that holds no more than the older output to one that is large enough."""
    tally = DiskTally()
    before = _pages(stage.home / "older")
    most = 4 * _pages(stage.home / "whole") + 32
    sizes = [before + 1, before + 2, *range(before + 4, most, max(1, most // MOST_SIZES))]
    for size in sizes:
        if _met(stage, size, tally) == 0:
            break
    return tally


def _met(stage: Stage, pages: int, tally: DiskTally) -> int:
    out = stage.home / "story"
    shutil.rmtree(out, ignore_errors=True)
    with small_disk(stage.home / "disk", pages) as disk:
        shutil.copytree(stage.home / "older", disk, dirs_exist_ok=True)
        death = forked(stage.work.life(stage.inputs, disk), stage.home)
        shutil.copytree(disk, out)
    if death.code == 0:
        return 0
    tally.full += 1
    told = _is_one_sentence(death)
    tally.told += told
    rest = Tally()
    stage.look(out, rest)
    left = [name for name in state.litter(out) if ".checkpoints" not in name and ".work" not in name]
    again = forked(stage.work.life(stage.inputs, out, again=stage.goes_on(out, 1)), stage.home)
    if again.code == 0:
        stage.judge(out, rest)
    unharmed = again.code == 0 and not rest.broken and not rest.litter and rest.equal == 1 and not left
    tally.unharmed += unharmed
    if not told or not unharmed:
        tally.troubles.append(
            f"{stage.work.name}, {pages} pages: exit {death.code} {death.err.strip()[-300:]!r}; left {left}; "
            f"then {again.code} {again.err.strip()[-200:]!r} {rest.troubles}"
        )
    return death.code


def _is_one_sentence(death: Death) -> bool:
    """Beside what was told on the way."""
    lines = death.err.splitlines()
    last_words = [line for line in lines if line.startswith(("evenhand: ", "Traceback"))]
    return death.code in (1, 2) and last_words == lines[-1:] and last_words[0].startswith("evenhand: ")


def _pages(folder: Path) -> int:
    return sum(-(-path.stat().st_size // PAGE) for path in folder.rglob("*") if path.is_file())
