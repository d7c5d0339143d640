"""A log larger than one process may hold: refused in one, trained for an epoch by several under the same limit each.

    python benchmarks/spread_limit.py [--pairs 50000000] [--users 2000000] [--items 200000] [--limit 4] [--ranks 4]

Makes parquet files of integer ids (kept in --folder if given). Every process may take --limit GB of memory of its
own (`ulimit -d`, which the system enforces, and which counts what allocators reserve; they are told to be frugal).
Prints what each run said, its seconds, and the largest process of all.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 16
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def simulate(folder: Path, users: int, items: int, pairs: int) -> None:
    """Users in no order, all alike; items with a long tail."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    names = draw.permutation(items)
    for number in range(FILES):
        path, n = folder / f"part-{number:03d}.parquet", pairs // FILES
        if not path.exists():
            place = (100 * np.expm1(draw.random(n) * np.log1p(items / 100))).astype(np.int64)
            columns = {"user": draw.integers(0, users, n), "item": names[np.minimum(place, items - 1)]}
            pq.write_table(pa.table(columns), path, row_group_size=2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50_000_000)
    parser.add_argument("--users", type=int, default=2_000_000)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--limit", type=float, default=4.0, help="GB for each process.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--method", default="rns")
    parser.add_argument("--batch", type=int, default=131_072)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    limit = int(asked.limit * 1e9)
    with tempfile.TemporaryDirectory() as made:
        folder = asked.folder or Path(made) / "log"
        simulate(folder, asked.users, asked.items, asked.pairs)
        for ranks in (1, asked.ranks):
            launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"] if ranks > 1 else []
            command = [
                *(sys.executable, *launcher, "-m", "evenhand", "train", str(folder), "--method", asked.method),
                *(
                    "--epochs",
                    "1",
                    "--batch",
                    str(asked.batch),
                    "--dim",
                    str(asked.dim),
                    "--seeds",
                    "1",
                    "--device",
                    "cpu",
                ),
                *("--l2", "0.01", "--no-refit", "--explain", "--out", f"{made}/model-{ranks}"),
            ]
            began = time.perf_counter()
            done = subprocess.run(
                command,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
                env=os.environ | FRUGAL,
                capture_output=True,
                text=True,
            )
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"{ranks} process(es), {asked.limit:g} GB each: exit code {done.returncode} after "
                  f"{time.perf_counter() - began:.0f} s; largest process so far {peak:.2f} GiB")  # fmt: skip
            said = [line for line in done.stderr.splitlines() if line.startswith("evenhand:")]
            print("\n".join(f"    {line}" for line in [*done.stdout.splitlines(), *said]), flush=True)


if __name__ == "__main__":
    main()
