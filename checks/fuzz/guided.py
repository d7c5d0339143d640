"""One reader under a coverage-guided fuzzer: `python checks/fuzz/guided.py csv -max_total_time=60`.

Needs atheris. What it learns is kept in the folder after the name's options, here .local/corpus/NAME; the
kept seeds are read and never changed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import atheris

with atheris.instrument_imports(include=["evenhand"]):
    from checks.fuzz.judge import attempt
    from checks.fuzz.targets import TARGETS
    from checks.fuzz.targets.target import SEEDS


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    corpus = Path(__file__).parents[2] / ".local" / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    ram = "/dev/shm" if Path("/dev/shm").is_dir() else None
    place = tempfile.TemporaryDirectory(prefix="evenhand-fuzz-", dir=ram)

    def once(data: bytes) -> None:
        outcome = attempt(target.read, data, Path(place.name))
        if outcome.failed:
            raise AssertionError(f"{outcome.kind}: {outcome.told}")

    atheris.Setup([sys.argv[0], *options, "-max_len=4096", str(corpus), str(SEEDS / name)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
