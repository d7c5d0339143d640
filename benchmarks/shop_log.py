"""From a shop's raw log to in-stock lists with titles: evenhand's commands beside a script with implicit, timed.

    python benchmarks/shop_log.py [--folder runs/shop] [--recipe fast] [--peer .venv-peers/bin/python] [--json FILE]

The log is made by a seeded generator and as messy as a real one: 200,000 rows, UUID customers, SKUs with leading
zeros, quantities with refunds, time zones, blanks, repeats; the file of items is Latin-1. The lists are checked:
nothing that a customer has (bought and not sent back) is shown to them, all is in stock, all has a title.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROWS, CUSTOMERS, ITEMS, GROUPS = 200_000, 12_000, 4_000, 20
BLANK, REPEATED, REFUNDED = 0.01, 0.2, 0.04
"""Shares of the rows without a customer or an article, of those that repeat an earlier one, and of refunds."""
ZONES = ("Z", "+00:00", "+01:00", "+02:00", "-05:00", "+05:30")
WORDS = ("Hat", "Café set", "Schürze", "Lamp", "Señor tee", "Mug", "Crème", "Rug")
K = 10


def make(folder: Path, rows: int = ROWS, seed: int = 0) -> tuple[Path, Path]:
    """Write log.csv and items.csv; the same bytes for the same seed."""
    generator = np.random.default_rng(seed)
    customers = [str(uuid.UUID(bytes=generator.bytes(16), version=4)) for _ in range(CUSTOMERS)]
    skus = [f"{n:06}" for n in generator.choice(99_999, ITEMS, replace=False)]
    group_of = generator.integers(GROUPS, size=ITEMS)
    popularity = 1 / (1 + generator.permutation(ITEMS)) ** 0.7
    tastes = generator.dirichlet(np.full(GROUPS, 0.15), size=CUSTOMERS)
    who = generator.choice(CUSTOMERS, rows, p=_shares(generator.pareto(1.5, CUSTOMERS) + 0.3))
    what = np.empty(rows, dtype=int)
    wanted = np.array([generator.choice(GROUPS, p=tastes[customer]) for customer in who])
    for group in range(GROUPS):
        own, mine = np.flatnonzero(group_of == group), wanted == group
        what[mine] = generator.choice(own, mine.sum(), p=_shares(popularity[own]))
    quantity = generator.choice([1, 2, 3, 6], rows, p=[0.8, 0.12, 0.05, 0.03])
    for share, sign in ((REPEATED, 1), (REFUNDED, -1)):
        later = np.flatnonzero(generator.random(rows) < share)[1:]
        earlier = (generator.random(len(later)) * later).astype(int)
        who[later], what[later] = who[earlier], what[earlier]
        quantity[later] = sign * quantity[earlier]
    seconds = np.sort(generator.integers(365 * 86_400, size=rows))
    zone = generator.integers(len(ZONES), size=rows)
    blank = generator.random(rows) < BLANK
    side = generator.integers(2, size=rows)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
        log = csv.writer(file)
        log.writerow(["order", "customer_id", "sku", "qty", "ordered_at"])
        for row in range(rows):
            pair = [customers[who[row]], skus[what[row]]]
            if blank[row]:
                pair[side[row]] = ""
            log.writerow([row, *pair, quantity[row], _when(int(seconds[row]), ZONES[zone[row]])])
    with (folder / "items.csv").open("w", newline="", encoding="latin-1") as file:
        items = csv.writer(file)
        items.writerow(["sku", "name", "category", "stock"])
        stock = generator.poisson(2, ITEMS)
        for n, sku in enumerate(skus):
            items.writerow([sku, f"{WORDS[group_of[n] % len(WORDS)]} {n}", f"c{group_of[n]:02}", stock[n]])
    return folder / "log.csv", folder / "items.csv"


def _shares(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _when(second: int, zone: str) -> str:
    at = time.gmtime(1_750_000_000 + second)
    return time.strftime("%Y-%m-%dT%H:%M:%S", at) + zone


def commands(log: Path, items: Path, folder: Path, how: list[str]) -> list[list[str]]:
    """What a person types, once the files are there; `how` says which recipe or method."""
    columns = ["--user", "customer_id", "--item", "sku", "--weight", "qty", "--timestamp", "ordered_at"]
    titles = ["--items-file", str(items), "--title", "name"]
    model, lists = str(folder / "model"), str(folder / "lists.csv")
    stock = ["--filter", str(items), "--where", "stock > 0"]
    return [
        ["data", "describe", str(log), *columns],
        ["train", str(log), *columns, *titles, *how, "--out", model, "--force"],
        ["recommend", model, "-k", str(K), *stock, "--out", lists, "--force"],
    ]


def check(log: Path, items: Path, lists: Path) -> dict[str, Any]:
    """Count what must not be there, from the files alone."""
    net: Counter[tuple[str, str]] = Counter()
    with log.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            net[row["customer_id"], row["sku"]] += int(row["qty"])
    with items.open(newline="", encoding="latin-1") as file:
        there = {row["sku"]: row for row in csv.DictReader(file)}
    found: Counter[str] = Counter()
    customers = set()
    with lists.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            customers.add(row["customer_id"])
            found["rows"] += 1
            found["bought already"] += net[row["customer_id"], row["sku"]] > 0
            found["out of stock"] += int(there[row["sku"]]["stock"]) <= 0
            found["wrong title"] += row["title"] != there[row["sku"]]["name"]
    names = ("rows", "bought already", "out of stock", "wrong title")
    return {"customers": len(customers), **{name: found[name] for name in names}}


def timed(command: list[str], environment: dict[str, str]) -> tuple[dict[str, float], str]:
    """Seconds by the clock and of the processors, which say more on a busy machine; and what was printed."""
    began, used = time.perf_counter(), _processor_seconds()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: {ended.stderr.strip()}")
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": _processor_seconds() - used}
    return took, ended.stdout + ended.stderr


def _processor_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--folder", type=Path, default=Path("runs/shop"))
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--recipe", default="fast", help="fast or best")
    options.add_argument("--peer", default=".venv-peers/bin/python", help="a Python that has implicit and pandas")
    options.add_argument("--threads", type=int, default=os.cpu_count())
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    log, items = make(asked.folder, asked.rows)
    threads = {name: str(asked.threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **threads}
    load = os.getloadavg()[0]
    print(f"{asked.rows:,} rows, {asked.threads} threads, load {load:.1f} at the start")
    steps = []
    for arguments in commands(log, items, asked.folder, ["--recipe", asked.recipe]):
        took, said = timed([sys.executable, "-m", "evenhand", *arguments], environment)
        steps.append({"command": arguments[0], **took})
        print(f"{_times(took)}  evenhand {' '.join(arguments)}")
        print("".join(f"          {line}\n" for line in said.splitlines() if line.startswith("note:")), end="")
    ours: dict[str, Any] = {name: sum(step[name] for step in steps) for name in ("seconds", "cpu_seconds")}
    ours |= {"steps": steps} | check(log, items, asked.folder / "lists.csv")
    print(f"{_times(ours)}  evenhand in all: {_said(ours)}")
    peer: dict[str, Any] | None = None
    if Path(asked.peer).is_file():
        script = Path(__file__).parent / "peers" / "implicit_shop.py"
        out = asked.folder / "implicit.csv"
        # Its own threads and those of BLAS would get in each other's way, as implicit itself warns.
        alone = {**environment, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        took, _ = timed([asked.peer, str(script), str(log), str(items), str(out), str(K)], alone)
        peer = {**took, **check(log, items, out)}
        print(f"{_times(peer)}  implicit: {_said(peer)}")
    else:
        print(f"implicit: not run, there is no {asked.peer}; `make bench-peers` installs it")
    if asked.json:
        document = {"rows": asked.rows, "threads": asked.threads, "load": load, "evenhand": ours, "implicit": peer}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if ours["bought already"] or ours["out of stock"] or ours["wrong title"] else 0)


def _times(took: dict[str, Any]) -> str:
    return f"{took['seconds']:6.1f} s ({took['cpu_seconds']:.1f} s of processors)"


def _said(found: dict[str, Any]) -> str:
    return (
        f"{found['rows']:,} rows for {found['customers']:,} customers; {found['bought already']:,} bought already, "
        f"{found['out of stock']:,} out of stock, {found['wrong title']:,} wrong titles"
    )


if __name__ == "__main__":
    main()
