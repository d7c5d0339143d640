"""Reading one log of many parquet files by 1, 2 and 4 processes: is it the same log, and what memory does each take?

    python benchmarks/spread_reading.py [--rows 20000000] [--files 16] [--ranks 1 2 4] [--folder FOLDER]

Simulates the files once (kept in FOLDER if one is given; text ids, ratings and times, rows in no order), reads them
with the ordinary reader and then over ranks, each run in processes of its own, and prints for each a digest of the log,
the seconds, and the largest peak of any process above what it took before reading.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from read_scale import PER_USER, ROWS_A_PIECE, piece

HERE = Path(__file__)


def simulate(folder: Path, rows: int, files: int) -> None:
    """Row groups of at most a million rows, the files one after the other from one stream of random numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for number in range(files):
        left = rows * (number + 1) // files - rows * number // files
        path = folder / f"part-{number:03d}.parquet"
        writer = None
        while left:
            table = piece(generator, min(left, ROWS_A_PIECE), "strings, ratings", rows // PER_USER)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            left -= len(table)
        if writer is not None:
            writer.close()


def kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def worker(folder: str, reader: str) -> None:
    """One process: reads its part and says how that went; rank 0 prints what all said."""
    import torch

    from evenhand.data.reading.read import read_interactions
    from evenhand.data.reading.spread import owners, read_spread
    from evenhand.data.spread_log import SpreadLog
    from evenhand.utils.spread_arrays import total
    from evenhand.utils.world import World

    torch.set_num_threads(1)
    world = World.from_environment()
    world.barrier()
    before, began, cpu = kilobytes("VmRSS:"), time.perf_counter(), time.process_time()
    log = SpreadLog.of(read_interactions(folder), world) if reader == "ordinary" else read_spread(folder, world)
    seconds, cpu, peak = time.perf_counter() - began, time.process_time() - cpu, kilobytes("VmHWM:") - before
    sent, mine = world.sent, log.mine
    arrays = [mine.indptr, mine.items, mine.ratings, mine.timestamps]
    held = sum(a.nbytes for a in arrays if a is not None) + mine.user_ids.nbytes + mine.item_ids.nbytes
    # Of every pair a hash of all that is known of it, and of every id with its place; their sum knows no order.
    whose = np.repeat(log.user_numbers, mine.activity)
    pairs = mixed(whose, mine.items, mine.ratings.view(np.int32), mine.timestamps.view(np.int64)).sum()
    ids = mixed(log.user_numbers, owners(mine.user_ids, 2**31)).sum()
    digest = total(world, np.array([*np.array([pairs, ids]).view(np.int64), len(mine)]))
    last = mixed(np.arange(log.n_items), owners(mine.item_ids, 2**31)).sum()
    answer = world.gathered({"peak": peak, "held": held, "seconds": seconds, "cpu": cpu, "sent": sent, "own": before})
    if world.rank == 0:
        code = f"{(int(digest[0]) + int(digest[1]) + int(last)) % 2**64:016x}"
        print(json.dumps({"digest": code, "pairs": int(digest[2]), "users": log.n_users, "ranks": answer}))


def mixed(*columns: np.ndarray) -> np.ndarray:
    """uint64: a hash of each row (SplitMix64)."""
    found = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            found = (found + column.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            found = (found ^ (found >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            found ^= found >> np.uint64(32)
    return found


def run(folder: Path, reader: str, ranks: int) -> dict:
    command = [sys.executable, str(HERE)]
    if ranks > 1:
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(HERE),
        ]
    command += ["--worker", str(folder), "--reader", reader]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{reader}, {ranks} ranks: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only-ranks", action="store_true", help="leave out the ordinary reader")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--reader", default="spread", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        worker(asked.worker, asked.reader)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.folder or Path(temporary)) / f"log-{asked.rows}-{asked.files}"
        if not folder.exists():
            simulate(folder, asked.rows, asked.files)
        digests = set()
        runs = [] if asked.only_ranks else [("ordinary", 1)]
        for reader, ranks in [*runs, *(("spread", ranks) for ranks in asked.ranks)]:
            answer = run(folder, reader, ranks)
            digests.add(answer["digest"])
            most = {name: max(rank[name] for rank in answer["ranks"]) for name in answer["ranks"][0]}
            cpu = sum(rank["cpu"] for rank in answer["ranks"])
            sent = sum(rank["sent"] for rank in answer["ranks"])
            print(
                f"{reader} reader, {ranks} rank(s): {asked.rows:,} rows, {answer['pairs']:,} pairs, "
                f"{answer['users']:,} users, digest {answer['digest']}; {most['seconds']:.0f} s, {cpu:.0f} CPU s "
                f"in all; a rank keeps up to {most['held'] / 1e6:.0f} MB, peak {most['peak'] / 1e3:.0f} MB "
                f"above the {most['own'] / 1e3:.0f} MB of its libraries; {sent / asked.rows:.1f} bytes a row sent",
                flush=True,
            )
        print("the same log in all runs" if len(digests) == 1 else "THE LOGS DIFFER")


if __name__ == "__main__":
    main()
