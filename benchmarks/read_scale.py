"""Time and memory of reading a log of 20 million rows: csv and parquet, integers and strings as ids.

    python benchmarks/read_scale.py [--rows 20000000] [--folder FOLDER]

Simulates the files once (they are kept in FOLDER if one is given), reads each in a process of its own, and
prints seconds, the bytes a row that the finished log takes, and those that reading took on top at its peak.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

ITEMS, PER_USER, ROWS_A_PIECE = 200_000, 20, 1_000_000
KINDS = ("csv, integers", "csv, strings", "parquet, integers", "parquet, strings", "csv, ratings and times")

READ = """
import json, sys, time
import pyarrow.csv, pyarrow.parquet, pyarrow.compute
from evenhand.data.reading.read import read_interactions

def kilobytes(name):
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

before, began = kilobytes("VmRSS:"), time.perf_counter()
log = read_interactions(sys.argv[1])
seconds = time.perf_counter() - began
arrays = [log.indptr, log.items, log.ratings, log.timestamps]
held = sum(a.nbytes for a in arrays if a is not None) + log.user_ids.nbytes + log.item_ids.nbytes
peak = (kilobytes("VmHWM:") - before) * 1024
print(json.dumps({"seconds": seconds, "held": held, "peak": peak, "pairs": len(log)}))
"""


def piece(generator: np.random.Generator, rows: int, kind: str, n_users: int) -> pa.Table:
    """Rows in no order, as a log of events has them; items have a long tail."""
    users = generator.integers(0, n_users, rows)
    items = (ITEMS * generator.random(rows) ** 3).astype(np.int64)
    if "strings" in kind:
        columns = {"user": [f"user-{u:08d}" for u in users], "item": [f"sku{i:07d}" for i in items]}
    else:
        columns = {"user": users, "item": items}
    if "ratings" in kind:
        columns["rating"] = generator.integers(1, 11, rows) / 2
        columns["timestamp"] = generator.integers(1_600_000_000, 1_700_000_000, rows)
    return pa.table(columns)


def simulate(path: Path, rows: int, kind: str) -> None:
    generator = np.random.default_rng(0)
    writer = None
    for begin in range(0, rows, ROWS_A_PIECE):
        table = piece(generator, min(ROWS_A_PIECE, rows - begin), kind, rows // PER_USER)
        if writer is None:
            make = arrow_csv.CSVWriter if path.suffix == ".csv" else pq.ParquetWriter
            writer = make(path, table.schema)
        writer.write_table(table)
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in asked.kinds:
            ending = kind.partition(",")[0]
            path = folder / f"{kind.replace(', ', '-').replace(' ', '-')}-{asked.rows}.{ending}"
            if not path.exists():
                simulate(path, asked.rows, kind)
            done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
            answer = json.loads(done.stdout)
            held, peak = (answer[name] / asked.rows for name in ("held", "peak"))
            print(
                f"{kind}: {asked.rows:,} rows, {answer['pairs']:,} pairs in {answer['seconds']:.1f} s; the log "
                f"holds {held:.1f} bytes a row, the peak {peak - held:.1f} above; {os.cpu_count()} cores",
                flush=True,
            )


if __name__ == "__main__":
    main()
