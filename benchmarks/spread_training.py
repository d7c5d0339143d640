"""Training over several processes on this machine: seconds, CPU seconds, waiting and bytes a positive.

    python benchmarks/spread_training.py                     # the two lines of docs/scale-out.md
    python benchmarks/spread_training.py --method auc-ns:ecdf=64 --batch 32768 --ranks 0,1,2

Ranks 0 is one process without `torchrun` (the numba engine), 1 the sharded engine alone, which gives the bits of any
number. Every process has one thread unless `--threads` says otherwise. All are started once and take turns, so that
they meet the same machine; a turn is an epoch's order and its first steps. Other work makes wall seconds worthless: a
turn waits until the machine is quiet, for at most `--patience` seconds, and one during which others took more than a
twentieth of a core does not count where quieter ones are at hand. Of those that count, the median and the shortest are
printed.
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
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=1, help="Threads of each process.")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.ranks.split(",")]
    for line in ({},) if asked.method else LINES:
        one = argparse.Namespace(**{**vars(asked), **line})
        groups = {size: started(one, size) for size in sizes}
        turns: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
        for epoch in range(1, asked.repeats + 1):
            for size, group in groups.items():
                turns[size].append(summary(one, size, *turn(group, epoch, asked.patience)))
        for work, pipe in (member for group in groups.values() for member in group):
            pipe.send(0)
            work.join()
        best = {size: counted(found) for size, found in turns.items()}
        for size in sizes:
            print(json.dumps(best[size]), flush=True)
        for size in sizes[1:]:
            print(sentence(best[sizes[0]], best[size]), flush=True)
        if 1 in best and max(sizes) > 1:
            print(sentence(best[1], best[max(sizes)]), flush=True)


def started(asked: Any, size: int) -> list[tuple[Any, Any]]:
    """The processes of a world by rank, once they are ready, each with the pipe to it."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    group = []
    for rank in range(max(1, size)):
        near, far = context.Pipe()
        work = context.Process(target=run, args=(rank, size, port, asked, far))
        work.start()
        group.append((work, near))
    for _, pipe in group:
        pipe.recv()
    return group


def turn(group: list[tuple[Any, Any]], epoch: int, patience: float) -> tuple[list[dict[str, Any]], float]:
    """What every process says of some steps, and how many cores others kept busy meanwhile."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        before = busy()
        time.sleep(0.1)
        if busy() - before < 0.015:
            break
    before, began = busy(), time.perf_counter()
    for _, pipe in group:
        pipe.send(epoch)
    found = [pipe.recv() for _, pipe in group]
    others = busy() - before - sum(one["cpu"] for one in found)
    return found, others / (time.perf_counter() - began)


def busy() -> float:
    """CPU seconds that all processes of this machine have used; 0 where that cannot be read."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(number) for number in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def counted(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The turn of median length among the quiet ones, or among all where there is none."""
    quiet = [one for one in turns if one["others"] <= 0.05]
    found = sorted(quiet or turns, key=lambda one: float(one["seconds"]))
    same = {"quiet": len(quiet), "turns": len(turns), "state": turns[-1]["state"]}
    return found[len(found) // 2] | {"shortest": found[0]["seconds"], **same}


def sentence(one: dict[str, Any], other: dict[str, Any]) -> str:
    ratio = one["seconds"] / other["seconds"]
    sent, said = other["bytes_a_positive"], other["estimated"]
    wire = f"; {sent} bytes a positive, estimated {said} ({sent / said - 1:+.0%})" if sent else ""
    names = {0: "one process", 1: "the sharded engine alone"}
    return (
        f"{one['method']}, batch {one['batch']:,}: {other['ranks'] or 1} rank(s) {other['seconds']:.2f} s, "
        f"{names.get(one['ranks'], one['ranks'])} {one['seconds']:.2f} s: {ratio:.2f} times as fast, "
        f"{1 / ratio:.2f} times as long (the shortest turns: {one['shortest'] / other['shortest']:.2f}){wire}; "
        f"{other['quiet']} of {other['turns']} turns were quiet"
    )


def summary(asked: Any, size: int, found: list[dict[str, Any]], others: float) -> dict[str, Any]:
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
        "others": round(others, 2),
        "state": found[0]["state"],
    }


def run(rank: int, size: int, port: int, asked: Any, pipe: Any) -> None:
    if size:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(asked.threads)
    torch.set_num_threads(asked.threads)
    from evenhand.data.simulate import simulate_log
    from evenhand.encoders import MF
    from evenhand.methods import parse
    from evenhand.training.estimates import wire_of
    from evenhand.training.settings import Settings
    from evenhand.training.trainer import Trainer
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
    steps = min(asked.steps or trainer.steps, trainer.steps)
    pipe.send("ready")
    while epoch := pipe.recv():
        world.barrier()
        waited[0], began, cpu = 0.0, time.perf_counter(), time.process_time()
        plan = trainer.engine.plan(epoch)
        sent = world.sent  # the order of an epoch, 16 bytes a pair, is not counted
        trainer.engine.run(plan, 0, steps)
        world.barrier()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        norm = sum(int((t.detach().double() * 2**30).round().long().sum()) for t in trainer.model.parameters())
        pipe.send(
            {
                "rank": rank,
                "seconds": seconds,
                "cpu": cpu,
                "waited": waited[0],
                "sent": world.sent - sent,
                "positives": min(steps * asked.batch, trainer.pairs),
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
