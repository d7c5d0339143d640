"""Time and memory of an audit at scale: a million users with 20 recommendations each, 20 million train rows.

    python benchmarks/audit_scale.py [--users 1000000] [--folder FOLDER]

Simulates the files once (they are kept in FOLDER if one is given), runs `evenhand audit` in a process of its
own, and prints its seconds and its peak memory.
"""

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

LENGTH, WANTED, ITEMS = 20, 4, 100_000


def draws(generator: np.random.Generator, n_users: int, per_user: int, power: float) -> np.ndarray:
    """int32 [n_users, per_user]: long-tailed items, one a stratum, so that few repeat within a user."""
    uniform = (np.arange(per_user) + generator.random((n_users, per_user), dtype=np.float32)) / per_user
    return (ITEMS * uniform**power).astype(np.int32).clip(0, ITEMS - 1)


def write(path: Path, items: np.ndarray, ranked: bool) -> None:
    """One block of users after the other, so that simulating needs little memory."""
    n_users, per_user = items.shape
    columns = {
        "user": np.repeat(np.arange(n_users, dtype=np.int32), per_user),
        "item": items.ravel(),
    }
    if ranked:
        columns["rank"] = np.tile(np.arange(1, per_user + 1, dtype=np.int32), n_users)
    pq.write_table(pa.table(columns), path)


def simulate(folder: Path, n_users: int) -> None:
    generator = np.random.default_rng(0)
    write(folder / "train.parquet", draws(generator, n_users, LENGTH, 3.0), ranked=False)
    write(folder / "test.parquet", draws(generator, n_users, WANTED, 3.0), ranked=False)
    write(folder / "recs.parquet", draws(generator, n_users, LENGTH, 6.0), ranked=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "recs.parquet").exists():
            simulate(folder, asked.users)
        began = time.perf_counter()
        command = [sys.executable, "-m", "evenhand", "audit", "--json"]
        command += [f"--train={folder / 'train.parquet'}", f"--test={folder / 'test.parquet'}"]
        ended = subprocess.run(
            [*command, f"--recs=mine={folder / 'recs.parquet'}"], stdout=subprocess.DEVNULL, check=False
        )
        seconds = time.perf_counter() - began
    rows = asked.users * LENGTH
    size = f"{asked.users:,} users × {LENGTH} recommendations, {rows:,} train rows, {ITEMS:,} items"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
    print(
        f"{size}: {seconds:.1f} s ({busy:.1f} s of work), peak {peak:.2f} GiB, exit {ended.returncode}; "
        f"{os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
