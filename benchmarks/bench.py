"""Everything that is said about speed, measured in one run and printed as ratios.

    make bench                            what fits into some minutes
    make bench LARGE=1                    with a log of 20 million pairs
    python benchmarks/bench.py --quick    tiny sizes, to see that it works; its numbers mean nothing
    python benchmarks/bench.py --only epochs,scaling --ml-100k FOLDER --json found.json

MovieLens-100K is read from --ml-100k or $EVENHAND_ML100K; without it, `demo` takes its place. Other libraries
run in an environment of their own, which `make bench-peers` makes. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

NAMES = ("epochs", "samplers", "objectives", "scaling", "quality")
PEERS = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES), help=f"some of {', '.join(NAMES)}")
    parser.add_argument("--large", action="store_true", help="also the large log (minutes, some GB of memory)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a check, not a measurement")
    parser.add_argument("--ml-100k", metavar="FOLDER", help="with u.data, or paper_train.csv and paper_test.csv")
    parser.add_argument("--peers", type=Path, default=PEERS, help="python of the peers' environment")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    asked.only = [name for name in asked.only.split(",") if name]
    if strange := set(asked.only) - {*NAMES, "large"}:
        parser.error(f"--only knows {', '.join(NAMES)} and large, not {', '.join(sorted(strange))}")
    if asked.large and "large" not in asked.only:
        asked.only.append("large")
    return asked


def main() -> None:
    asked = parsed()
    # Before anything loads OpenMP: every contender gets the same number of threads. When numba's threads
    # start, they overwrite the number that torch was given, so numba must be told the same.
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(asked.threads)
    import torch
    from suite import data, epochs, large, objectives, quality, samplers, scaling
    from suite.report import Section, machine, machine_text

    torch.set_num_threads(asked.threads)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    place = data.folder(asked.ml_100k)
    paper, honest, demo = data.paper_split(place), data.honest_split(place), data.demo()
    if asked.quick:
        paper, honest, demo = paper.shortened(), honest.shortened(), demo.shortened()
    rounds, at_least = (1, 0.0) if asked.quick else (asked.rounds, 0.5)
    effort = epochs.Effort(rounds, at_least, 2 if asked.quick else 30)
    size = (2_000, 20_000) if asked.quick else (100_000, 1_000_000)
    sections: dict[str, Callable[[], Section]] = {
        "epochs": lambda: epochs.measure(paper, asked.peers, asked.threads, effort),
        "samplers": lambda: samplers.measure(demo, rounds, at_least),
        "objectives": lambda: objectives.measure(demo, rounds, at_least),
        "scaling": lambda: scaling.measure(rounds, at_least, *size),
        "quality": lambda: quality.measure(honest, rounds, asked.quick),
        "large": lambda: large.measure(asked.threads, asked.quick),
    }
    found = {"machine": machine(asked.threads), "rounds": rounds, "quick": asked.quick, "sections": []}
    print(machine_text(found["machine"]))
    print(f"contenders take turns; the best of {rounds} rounds after a warm-up counts")
    for name, measure in sections.items():
        if name in asked.only:
            section = measure()
            if torch.get_num_threads() != asked.threads:
                raise SystemExit(f"{name}: {torch.get_num_threads()} threads ran, not {asked.threads}.")
            print(section.text(), flush=True)
            found["sections"].append(section.to_json())
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
