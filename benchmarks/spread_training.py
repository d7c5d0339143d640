"""Training over several processes on this machine: seconds, CPU seconds, waiting and bytes a positive.

    python benchmarks/spread_training.py --method auc-ns:ecdf=64 --batch 32768 --ranks 1,2

One process of the sharded engine is the reference: it gives the same bits. The load of the machine is printed, as other
work on it makes wall seconds worthless.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", default="auc-ns:ecdf=64")
    parser.add_argument("--batch", type=int, default=32_768)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--steps", type=int, default=0, help="Steps to time, 0 for an epoch.")
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for size in map(int, asked.ranks.split(",")):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        queue: Any = context.Queue()
        work = [context.Process(target=run, args=(rank, size, port, asked, queue)) for rank in range(size)]
        for one in work:
            one.start()
        found = sorted((queue.get() for _ in work), key=lambda one: one["rank"])
        for one in work:
            one.join()
        print(json.dumps(summary(asked, size, found)), flush=True)


def summary(asked: Any, size: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": asked.method,
        "batch": asked.batch,
        "ranks": size,
        "seconds": round(max(one["seconds"] for one in found), 2),
        "cpu_seconds_a_rank": [round(one["cpu"], 2) for one in found],
        "waiting_share": [round(one["waited"] / one["seconds"], 2) for one in found],
        "bytes_a_positive": round(sum(one["sent"] for one in found) / found[0]["positives"]),
        "estimated": round(found[0]["estimated"]),
        "positives": found[0]["positives"],
        "load": [round(x, 1) for x in os.getloadavg()],
        "state": found[0]["state"],
    }


def run(rank: int, size: int, port: int, asked: Any, queue: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
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
    norm = sum(int((t.detach().double() * 2**30).round().long().sum()) for t in trainer.model.parameters())
    queue.put(
        {
            "rank": rank,
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            "waited": waited[0],
            "sent": world.sent - sent,
            "positives": min(min(steps, trainer.steps) * asked.batch, trainer.pairs),
            "estimated": wire_of(trainer.work, train.popularity).bytes,
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
