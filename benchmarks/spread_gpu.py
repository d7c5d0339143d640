"""Pairs a second of the sharded engine on one GPU beside the fused one, and whether both learn the same.

    python benchmarks/spread_gpu.py --users 10000000 --items 1000000 --pairs 200000000 --batch 65536 \\
                                    [--methods auc-ns:ecdf=64 rns] [--accuracy paper_train.csv]

Four ways over one long-tailed log that is made on the device:

    one process          `evenhand train`: the fused engine
    one rank             `torchrun --nproc-per-node 1`: the sharded layout, all rows on one GPU
    sharded              the steps of several ranks, with nobody to ask (`engine="sharded"`)
    sharded, by NCCL     the same with every message sent, to itself

With `--accuracy`, the ways are trained on that log, and NDCG@10 on its test part is printed for every seed.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import socket
import time
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.encoders import MF
from evenhand.methods import parse
from evenhand.training.run import train
from evenhand.training.settings import Settings
from evenhand.training.trainer import Trainer
from evenhand.utils import world as worlds
from evenhand.utils.world import World

WAYS = ("one process", "one rank", "sharded", "sharded, by NCCL")


def enter(way: str) -> str:
    """Be in the world of a way; the engine to ask for."""
    world = World.alone()
    world.joined = way == "one rank"
    worlds._current = world
    if way == WAYS[3]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        World.sends_to_itself, worlds._current = True, None
        world = World.from_environment()
        print(f"  messages go {'by NCCL' if world.has_gpus else 'by gloo'}", flush=True)
    return "sharded" if way.startswith("sharded") else "auto"


def long_tail(n_users: int, n_items: int, each: int, device: torch.device) -> Tensor:
    """int32 [n_users, each]: distinct items, ascending; the chance of the k-th item falls as 1/(k + 100)."""
    names = torch.randperm(n_items, device=device).int()

    def drawn(n: int) -> Tensor:
        place = 100 * torch.expm1(torch.rand(n, device=device) * math.log1p(n_items / 100))
        return names[place.long().clamp_max(n_items - 1)]

    rows = torch.empty(n_users, each, dtype=torch.int32, device=device)
    for part in rows.split(1_000_000):
        found = drawn(part.numel()).view(part.shape).sort(1).values
        while (repeated := found[:, 1:] == found[:, :-1]).any():
            found[:, 1:][repeated] = drawn(int(repeated.sum()))
            found = found.sort(1).values
        part.copy_(found)
    return rows


def made(n_users: int, n_items: int, pairs: int, device: torch.device) -> Interactions:
    each = max(1, pairs // n_users)
    rows = long_tail(n_users, n_items, each, device).flatten().cpu().numpy()
    ids = [pa.array(np.arange(n, dtype=np.int64)) for n in (n_users, n_items)]
    return Interactions(ids[0], ids[1], np.arange(n_users + 1, dtype=np.int64) * each, rows)


def rate(data: Interactions, method: Any, engine: str, asked: Any, device: torch.device) -> tuple[str, float, float]:
    """The engine, pairs a second of its steps, and seconds to order an epoch."""
    settings = Settings(batch=asked.batch, l2=0.01, weight_decay=0.0, updates="sparse", engine=engine)
    trainer = Trainer(
        data, MF(dim=asked.dim), [method.sampler], (0,), settings, device, hot=hot_items(data.popularity),
        objective=method.objective.closed(),
    )  # fmt: skip
    settle(device)
    began = time.perf_counter()
    plan = trainer.engine.plan(0)
    settle(device)
    ordered = time.perf_counter() - began
    before = min(40, trainer.steps // 2)  # compiled and recorded
    trainer.engine.run(plan, 0, before)
    last = min(trainer.steps - 1, before + max(1, asked.timed // asked.batch))
    settle(device)
    began = time.perf_counter()
    first = before
    while first < last:
        trainer.engine.run(plan, first, min(last, first + trainer.engine.stride))
        first = min(last, first + trainer.engine.stride)
    settle(device)
    seconds = time.perf_counter() - began
    assert all(table.isfinite().all() for table in trainer.model.parameters())
    return type(trainer.engine).__name__, (last - before) * asked.batch / seconds, ordered


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def accuracy(data: Interactions, method: Any, engine: str, device: torch.device, seeds: int) -> list[float]:
    """NDCG@10 on test of every seed, epochs chosen on validation."""
    settings = Settings(batch=1024, lr=0.002, updates="sparse", engine=engine)
    fit = train(
        data.split(test=0.2, validation=0.1, seed=0), MF(dim=64), method.sampler, seeds, settings,
        objective=method.objective.closed(), device=str(device), ks=(10,),
    )  # fmt: skip
    return [float(one.metrics["ndcg"]) for one in fit.results[10]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--timed", type=int, default=60_000_000, help="Pairs that are timed, at most.")
    parser.add_argument("--methods", nargs="*", default=["auc-ns:ecdf=64"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--accuracy", help="A log with columns user and item.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{name}, torch {torch.__version__}")
    began = time.perf_counter()
    data = made(asked.users, asked.items, asked.pairs, device) if asked.methods else None
    log = None if asked.accuracy is None else Interactions.read(asked.accuracy)
    if data is not None:
        seconds = time.perf_counter() - began
        print(f"{data}, MF {asked.dim}, batch {asked.batch:,}, sparse updates; made in {seconds:.0f} s")
    first: dict[str, float] = {}
    for way in asked.ways:  # the last joins torch.distributed, once and for all
        engine = enter(way)
        for text in asked.methods:
            assert data is not None
            began = time.perf_counter()
            found, pairs, ordered = rate(data, parse(text), engine, asked, device)
            share = pairs / first.setdefault(text, pairs)
            print(
                f"{way:18}{text:18}{found:26}{pairs:14,.0f} pairs/s{share:7.2f} of {asked.ways[0]}; "
                f"order {ordered:.2f} s; in all {time.perf_counter() - began:.0f} s", flush=True,
            )  # fmt: skip
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if log is not None:
            for text in ("auc-ns:ecdf=64", "softmax:temperature=0.2"):
                ndcg = accuracy(log, parse(text), engine, device, asked.seeds)
                mean, spread = float(np.mean(ndcg)), float(np.std(ndcg, ddof=1)) if len(ndcg) > 1 else 0.0
                print(f"{way:18}{text:26}NDCG@10 {mean:.4f} ± {spread:.4f}  {np.round(ndcg, 4).tolist()}", flush=True)


if __name__ == "__main__":
    main()
