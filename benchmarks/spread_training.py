"""Training over several processes on this machine: seconds, CPU seconds, waiting and bytes a positive.

    python benchmarks/spread_training.py                     # the two lines of docs/scale-out.md
    python benchmarks/spread_training.py --method auc-ns:ecdf=64 --batch 32768 --ranks 0,1,2

Ranks 0 is one process without `torchrun` (the numba engine), 1 the sharded engine alone, which gives the bits of any
number. Every process has one thread unless `--threads` says otherwise. Of some repeats the shortest counts; they take
turns, so that all meet the same machine. Its load is printed, as other work makes wall seconds worthless.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import time
from typing import Any

import torch

LINES = (
    {"method": "softmax:shared=1024:temperature=0.15", "batch": 8192, "steps": 12},
    {"method": "auc-ns:ecdf=64", "batch": 32_768, "steps": 0},
)
"""What is measured unless a method is given."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--method")
    parser.add_argument("--batch", type=int, default=32_768)
    parser.add_argument("--ranks", default="0,1,2")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--steps", type=int, default=0, help="Steps to time, 0 for an epoch.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="Threads of each process.")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.ranks.split(",")]
    for line in ({},) if asked.method else LINES:
        one = argparse.Namespace(**{**vars(asked), **line})
        best: dict[int, dict[str, Any]] = {}
        for _ in range(asked.repeats):
            for size in sizes:
                found = summary(one, size, started(one, size))
                print(json.dumps(found), flush=True)
                if size not in best or found["seconds"] < best[size]["seconds"]:
                    best[size] = found
        for size in sizes[1:]:
            print(sentence(best[sizes[0]], best[size]), flush=True)
        if 1 in best and max(sizes) > 1:
            print(sentence(best[1], best[max(sizes)]), flush=True)


def started(asked: Any, size: int) -> list[dict[str, Any]]:
    """What every process says, by rank."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    queue: Any = context.Queue()
    work = [context.Process(target=run, args=(rank, size, port, asked, queue)) for rank in range(max(1, size))]
    for one in work:
        one.start()
    found = sorted((queue.get() for _ in work), key=lambda one: one["rank"])
    for one in work:
        one.join()
    return found


def sentence(one: dict[str, Any], other: dict[str, Any]) -> str:
    ratio = one["seconds"] / other["seconds"]
    sent, said = other["bytes_a_positive"], other["estimated"]
    wire = f"; {sent} bytes a positive, estimated {said} ({sent / said - 1:+.0%})" if sent else ""
    names = {0: "one process", 1: "the sharded engine alone"}
    return (
        f"{one['method']}, batch {one['batch']:,}: {other['ranks'] or 1} rank(s) {other['seconds']:.2f} s, "
        f"{names.get(one['ranks'], one['ranks'])} {one['seconds']:.2f} s: {ratio:.2f} times as fast, "
        f"{1 / ratio:.2f} times as long{wire}; load {other['load'][0]}"
    )


def summary(asked: Any, size: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": asked.method,
        "batch": asked.batch,
        "ranks": size,
        "seconds": round(max(one["seconds"] for one in found), 3),
        "cpu_seconds_a_rank": [round(one["cpu"], 2) for one in found],
        "waiting_share": [round(one["waited"] / one["seconds"], 2) for one in found],
        "bytes_a_positive": round(sum(one["sent"] for one in found) / found[0]["positives"]),
        "estimated": round(found[0]["estimated"]),
        "positives": found[0]["positives"],
        "load": [round(x, 1) for x in os.getloadavg()],
        "state": found[0]["state"],
    }


def run(rank: int, size: int, port: int, asked: Any, queue: Any) -> None:
    if size:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(asked.threads)
    torch.set_num_threads(asked.threads)
    from evenhand.data.simulate import simulate_log
    from evenhand.encoders import MF
    from evenhand.methods import parse
    from evenhand.training.settings import Settings
    from evenhand.training.trainer import Trainer
    from evenhand.training.wire_estimate import wire_of
    from evenhand.utils.world import World

    world = World.from_environment()
    waited = [0.0]
    for name in ("swap", "counts", "total"):  # where a process waits for the others
        setattr(World, name, timed(getattr(World, name), waited))
    train = simulate_log(asked.users, asked.items, asked.pairs, seed=0)
    method: Any = parse(asked.method)
    settings = Settings(batch=asked.batch, l2=0.01, weight_decay=0.0, updates="sparse")
    trainer = Trainer(
        train, MF(dim=asked.dim), [method.sampler], (0,), settings, torch.device("cpu"),
        hot=train.popularity > 100, objective=method.objective.closed(),
    )  # fmt: skip
    trainer.engine.run(trainer.engine.plan(0), 0, 1)  # compiles
    world.barrier()
    waited[0], began, cpu = 0.0, time.perf_counter(), time.process_time()
    steps = asked.steps or trainer.steps
    plan = trainer.engine.plan(1)
    sent = world.sent  # the order of an epoch, 16 bytes a pair, is not counted
    trainer.engine.run(plan, 0, min(steps, trainer.steps))
    world.barrier()
    seconds = time.perf_counter() - began
    norm = sum(int((t.detach().double() * 2**30).round().long().sum()) for t in trainer.model.parameters())
    queue.put(
        {
            "rank": rank,
            "seconds": seconds,
            "cpu": time.process_time() - cpu,
            "waited": waited[0],
            "sent": world.sent - sent,
            "positives": min(min(steps, trainer.steps) * asked.batch, trainer.pairs),
            "estimated": wire_of(trainer.work, train.popularity).bytes if size else 0,
            "state": int(world.total(torch.tensor(norm))),
        }
    )


def timed(function: Any, waited: list[float]) -> Any:
    def called(*args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **named)
        finally:
            waited[0] += time.perf_counter() - began

    return called


if __name__ == "__main__":
    main()
