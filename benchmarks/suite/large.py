"""A large simulated log in a process of its own, so that the peak of its memory is its own.

Run by the driver; by hand: `python benchmarks/suite/large.py '{"users": 1000000, "items": 200000, …}'`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suite.report import Section

FULL = {
    "users": 1_000_000, "items": 200_000, "pairs": 20_000_000, "evaluated": 20_000,
    "dim": 64, "batch": 8192, "draws": 64, "rounds": 3,
}  # fmt: skip
QUICK = FULL | {"users": 20_000, "items": 5_000, "pairs": 200_000, "evaluated": 1_000}


def peak_gb() -> float:
    """The most memory that was resident so far.

    Linux's `ru_maxrss` would count the process that started this one too; its own status does not. Elsewhere
    there is only the former, on macOS in bytes.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def work(asked: dict[str, int]) -> dict[str, Any]:
    import numpy as np
    import torch

    import evenhand as eh
    from evenhand.data.popularity import hot_items
    from evenhand.data.simulate import simulate_log
    from evenhand.training.evaluation import Evaluator
    from evenhand.training.trainer import Trainer

    torch.set_num_threads(asked["threads"])
    found: dict[str, Any] = {}
    began = time.perf_counter()
    log = simulate_log(asked["users"], asked["items"], asked["pairs"])
    found["simulation, s"] = time.perf_counter() - began
    # The last pair of some users who have several is what they are judged by.
    evaluated = np.flatnonzero(log.activity > 1)[: asked["evaluated"]]
    held = np.zeros(len(log), dtype=bool)
    held[log.indptr[evaluated + 1] - 1] = True
    train, truth = log.take(~held), log.take(held)
    del log, held
    found["pairs"], found["users judged"] = len(train), len(evaluated)

    began = time.perf_counter()
    settings = eh.Settings(batch=asked["batch"], updates="sparse")
    hot = hot_items(train.popularity)
    sampler, where = eh.AUCSampler(ecdf=asked["draws"]), torch.device("cpu")
    loop = Trainer(train, eh.MF(dim=asked["dim"]), [sampler], [0], settings, where, hot=hot)
    found["preparation, s"] = time.perf_counter() - began
    found["engine"] = loop.engine.name
    epochs = []
    for epoch in range(asked["rounds"]):
        began = time.perf_counter()
        loop.run_epoch(epoch)
        epochs.append(time.perf_counter() - began)
    found["epochs, s"] = epochs
    found["positives/s, best"] = len(train) / min(epochs)

    began = time.perf_counter()
    scored = Evaluator(truth, train, hot, (10,))(loop.finals()[0])
    found["evaluation, s"] = time.perf_counter() - began
    found["ndcg@10"] = scored[0][10].mean("ndcg")
    found["peak memory, GB"] = peak_gb()
    return found


def measure(threads: int, quick: bool) -> Section:
    from suite.report import Section

    asked = (QUICK if quick else FULL) | {"threads": threads}
    done = subprocess.run(
        [sys.executable, Path(__file__), json.dumps(asked)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads)),
    )
    return Section(
        "large",
        "A large log",
        f"{asked['users']:,} users × {asked['items']:,} items, {asked['pairs']:,} simulated long-tailed "
        f"pairs before repeats collapse; MF d {asked['dim']}, batch {asked['batch']:,}, "
        f"auc-ns ecdf={asked['draws']}, sparse updates, one replica",
        facts=json.loads(done.stdout.splitlines()[-1]),
        notes=[
            "the first epoch includes loading compiled code; evaluation is exact, over the whole catalogue",
            "the peak is that of the whole process: simulation, training and evaluation",
        ],
    )


if __name__ == "__main__":
    print(json.dumps(work(FULL | {"threads": os.cpu_count() or 1} | json.loads(sys.argv[1]))))
