"""Try many inputs on every reader, and print what became of them: `python checks/fuzz/run.py --inputs 100000`.

Each reader has a process of its own with a limit on memory. One that dies, by a fault in native code or
otherwise, is noticed, the input that did it is kept, and the work goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from checks.fuzz.judge import PATIENCE, attempt, limit_memory, peak_bytes

RAM = Path("/dev/shm")
KINDS = ("accepted", "refused", "traceback", "hang", "memory", "outside", "died")


@dataclass
class Tally:
    """What became of the inputs of one target."""

    name: str
    kinds: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    taken: int = 0
    """Bytes of memory beyond what the process had when it began."""
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """(number of the input, kind, what was told), one for each place in the code."""

    @property
    def failed(self) -> int:
        return sum(n for kind, n in self.kinds.items() if kind not in ("accepted", "refused"))

    def line(self) -> str:
        counts = " | ".join(f"{self.kinds[kind]:,}" for kind in KINDS)
        size = f"{self.taken / 2**20:,.0f} MiB"
        return f"| {self.name} | {self.kinds.total():,} | {counts} | {self.slowest:.2f} s | {size} |"


def work(name: str, start: int, stop: int, seed: int, log: Path, seconds: float) -> None:
    """The inner process: inputs start to stop of one target; a line of the log for each that is done."""
    from checks.fuzz.targets import TARGETS

    target = TARGETS[name]
    ram = str(RAM) if RAM.is_dir() else None
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="evenhand-fuzz-", dir=ram) as place, log.open("w") as lines:
        attempt(target.read, target.input(seed, 0), Path(place) / "warm-up")
        (Path(place) / "warm-up").rmdir()
        limit_memory()
        base = peak_bytes()
        for number in range(start, stop):
            if time.monotonic() > ends:
                break
            print(f"@{number}", file=lines, flush=True)
            outcome = attempt(target.read, target.input(seed, number), Path(place))
            told = outcome.told if outcome.failed else ""
            lines.write(json.dumps([outcome.kind, outcome.seconds, peak_bytes() - base, told]) + "\n")


def supervise(name: str, inputs: int, seed: int, keep: Path | None, seconds: float) -> Tally:
    """All inputs of one target, over as many processes as it takes."""
    from checks.fuzz.targets import TARGETS

    tally, start, spots = Tally(name), 0, set()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="evenhand-fuzz-") as folder:
        log = Path(folder) / "log"
        while start < inputs and (left := ends - time.monotonic()) > 0:
            command = [sys.executable, __file__, "--work", name, str(start), str(inputs), str(seed), str(log)]
            process = subprocess.Popen([*command, str(left)], stderr=subprocess.PIPE, text=True)
            error = _watched(process, log)
            lines = log.read_text().splitlines() if log.exists() else []
            if not lines and process.returncode:
                raise RuntimeError(f"{name} could not be started: {error}")
            died = None
            for line in lines:
                if line.startswith("@"):
                    died = start
                    start += 1
                    continue
                kind, took, size, told = json.loads(line)
                tally.kinds[kind] += 1
                tally.slowest, tally.taken = max(tally.slowest, took), max(tally.taken, size)
                # One input for each place in the code is enough to mend it.
                spot = "".join(row for row in told.splitlines() if "evenhand" in row or row == told)[-400:]
                if told and spot not in spots:
                    spots.add(spot)
                    tally.failures.append((start - 1, kind, told))
                died = None
            if died is not None:
                tally.kinds["died"] += 1
                tally.failures.append((died, "died", f"exit {process.returncode}: {error[-1500:]}"))
            elif process.returncode:
                raise RuntimeError(f"{name} ended between inputs: {error}")
            elif not lines:
                break
            log.unlink()
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        for number, kind, told in tally.failures:
            (keep / f"{name}-{seed}-{number}-{kind}.bin").write_bytes(TARGETS[name].input(seed, number))
            (keep / f"{name}-{seed}-{number}-{kind}.txt").write_text(told, encoding="utf-8", errors="replace")
    return tally


def _watched(process: subprocess.Popen[str], log: Path) -> str:
    """Wait for the process; end it where one input keeps native code busy, which no signal interrupts."""
    last, since = 0, time.monotonic()
    while True:
        try:
            return process.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            now = log.stat().st_size if log.exists() else 0
            if now != last:
                last, since = now, time.monotonic()
            elif now and time.monotonic() - since > 2 * PATIENCE:
                process.kill()


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        name, start, stop, seed, log, seconds = sys.argv[2:]
        work(name, int(start), int(stop), int(seed), Path(log), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="for each reader of weight 1")
    parser.add_argument("--only", help="some readers, by name, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, for each reader")
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that failed")
    given = parser.parse_args()
    from checks.fuzz.targets import TARGETS

    names = given.only.split(",") if given.only else list(TARGETS)
    print(f"| reader | inputs | {' | '.join(KINDS)} | slowest | memory taken |")
    print("|---|" + "---:|" * (len(KINDS) + 3))
    tallies = []
    for name in names:
        inputs = max(20, int(given.inputs * TARGETS[name].weight))
        tallies.append(supervise(name, inputs, given.seed, given.keep, given.seconds))
        print(tallies[-1].line(), flush=True)
    total, failed = sum(t.kinds.total() for t in tallies), sum(t.failed for t in tallies)
    print(f"\n{total:,} inputs, {failed:,} failures.")
    for tally in tallies:
        for number, kind, told in tally.failures:
            last = told.strip().splitlines()[-1] if told.strip() else ""
            print(f"{tally.name} {number}: {kind}: {last[:300]}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
