"""Positives per second of the fused GPU steps, on MovieLens-100K and on simulated data of web size.

    python benchmarks/gpu_engine.py paper_train.csv [--users 10000000] [--items 1000000] [--batch 65536 …]

MovieLens-100K: MF of 32 numbers, batches of 128, AUC-NS with exact ranks, ten replicas, Adam on every row;
beside it the plain engine. Web size: 20 items a user with a long tail, MF of 64 numbers, AUC-NS with 64
shared draws, one replica, Adam on the rows that a batch touches. For the latter the bytes that must move are
counted (see `bytes_a_positive`) and compared with a plain copy on the same device. Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from spread_gpu import long_tail
from torch import Tensor

import evenhand as eh
from evenhand.data.popularity import hot_items
from evenhand.samplers.auc import prior
from evenhand.samplers.base import bind
from evenhand.training.engines.fused_tables import Distribution, Rule, Shape, Table, distribution_and_rule
from evenhand.training.engines.triton_engine import FusedSteps
from evenhand.training.trainer import Trainer
from evenhand.utils import keyed

DEVICE = torch.device("cuda")


def seconds(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def fresh(replicas: int, rows: int, dim: int, lazy: bool) -> Table:
    start = torch.randn(replicas, rows, dim, device=DEVICE).mul_((2 / (rows + dim)) ** 0.5)
    clock = torch.zeros(replicas, rows, dtype=torch.int32, device=DEVICE) if lazy else None
    return Table(start, torch.zeros_like(start), torch.zeros_like(start), clock)


def small(
    train: eh.Interactions, replicas: int, epochs: int, *, exact_sums: bool = True, shape: Shape | None = None
) -> tuple[float, float]:
    """Positives per second over all replicas: whole epochs, with their orders and keys, and steps alone."""
    sampler = bind([eh.AUCSampler(candidates=5, probes=10, ecdf="exact")] * replicas, train, DEVICE)
    pairs = (torch.from_numpy(train.users).to(DEVICE), torch.from_numpy(train.items).to(DEVICE))
    n, batch = len(train), 128
    steps = -(-n // batch)
    fused = FusedSteps(
        fresh(replicas, train.n_users, 32, False), fresh(replicas, train.n_items, 32, False), pairs,
        *distribution_and_rule(sampler, train), batch=batch, steps=steps, decay=[0.0] * replicas, l2=[1e-4] * replicas,
        hot=torch.from_numpy(hot_items(train.popularity)).to(DEVICE), exact_sums=exact_sums, shape=shape,
    )  # fmt: skip

    def epoch(number: int) -> None:
        def keys(purpose: int) -> Tensor:
            return keyed.keys(range(replicas), number, purpose, device=DEVICE)

        own, shared = keyed.hashes(keys(2), steps), keyed.hashes(keys(3), steps)
        fused.begin_epoch(keyed.permutations(keys(1), n), own, shared, [1e-3] * replicas)
        fused.run(0, steps)

    epoch(0)
    whole = seconds(lambda: [epoch(1 + e) for e in range(epochs)])
    alone = seconds(lambda: [fused.run(0, steps) for _ in range(epochs)])
    return replicas * n * epochs / whole, replicas * n * epochs / alone


def plain(train: eh.Interactions, replicas: int) -> float:
    """The same through the plain engine, one epoch after the first hundredth of it."""
    sampler = eh.AUCSampler(candidates=5, probes=10, ecdf="exact")
    settings = eh.Settings(batch=128, engine="torch", updates="dense")
    hot = hot_items(train.popularity)
    loop = Trainer(train, eh.MF(32), [sampler] * replicas, range(replicas), settings, DEVICE, hot=hot)
    loop.run_epoch(0, pause=lambda: loop.step >= 10)
    n = len(train) - loop.step * settings.batch
    return replicas * n / seconds(lambda: loop.run_epoch(0))


class WebSize:
    """The data and model of the large run, made once on the device; `rate` times one way to train it."""

    def __init__(self, n_users: int, n_items: int, dim: int = 64) -> None:
        each = 20
        rows = long_tail(n_users, n_items, each, DEVICE)
        self.indptr = torch.arange(n_users + 1, device=DEVICE) * each
        self.users = torch.arange(n_users, dtype=torch.int32, device=DEVICE).repeat_interleave(each)
        self.items = rows.flatten()
        self.n = len(self.items)
        popularity = torch.bincount(self.items, minlength=n_items)
        self.hot = popularity >= popularity.sort().values[int(0.8 * n_items)]
        self.rule = Rule(
            "auc", 5, 10, 64,
            torch.tensor([0.75], device=DEVICE), torch.tensor([0.006], device=DEVICE),
            prior(popularity.clamp_min(1), 0.01).unsqueeze(0),
        )  # fmt: skip
        self.order = torch.randperm(self.n, dtype=torch.int32 if self.n < 2**31 else torch.int64, device=DEVICE)
        self.tables = fresh(1, n_users, dim, True), fresh(1, n_items, dim, True)
        self.dim = dim

    def rate(
        self, batch: int, positives: int, *, exact_sums: bool = True, shape: Shape | None = None
    ) -> tuple[float, float]:
        """Positives per second, and the bytes that each must move."""
        steps = self.n // batch
        fused = FusedSteps(
            *self.tables, (self.users, self.items), Distribution("uniform", self.indptr, self.items), self.rule,
            batch=batch, steps=steps, decay=[0.0], l2=[1e-4], hot=self.hot, exact_sums=exact_sums, shape=shape,
        )  # fmt: skip
        keys = [keyed.hashes(keyed.keys([0], purpose, device=DEVICE), steps) for purpose in (2, 3)]
        fused.begin_epoch(self.order.unsqueeze(0), *keys, [1e-3])
        fused.run(0, 2)
        most = min(steps - 2, max(1, positives // batch))
        rate = most * batch / seconds(lambda: fused.run(2, 2 + most))
        touched = fused.touched[0]
        moved = len(touched[0].unique()) + len(touched[1:].unique())
        return rate, self.bytes_a_positive(moved / batch, 8 if exact_sums else 4)

    def bytes_a_positive(self, moved_rows: float, sum_bytes: int) -> float:
        """Counted without luck in the caches, except that the 64 shared draws and the negative stay there.

        Small lookups count as the 32 bytes that memory hands out: the pair's place (4) and its user and
        item, the ends of the user's row, the row, five priors, one hot flag; vectors as what they are.
        """
        vector = 4 * self.dim
        looked_at = self.rule.candidates + 2 * self.rule.probes
        drawn = 4 + 32 + 32 + 32 + 96 + 32 * self.rule.candidates + 32
        read = vector * (1 + 1 + looked_at)
        added = 3 * 2 * sum_bytes * self.dim
        row = 2 * sum_bytes * self.dim + 3 * 2 * vector + 2 * 32
        marks = 3 * (4 + 2 * 32)
        return drawn + read + added + moved_rows * row + marks


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a plain copy."""
    source = torch.empty(2**30, device=DEVICE)
    target = torch.empty_like(source)
    target.copy_(source)
    return 10 * 2 * 4 * 2**30 / seconds(lambda: [target.copy_(source) for _ in range(10)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, nargs="+", default=[65_536, 262_144])
    asked = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    train = eh.Interactions.read(asked.train)
    print(f"{train}, MF 32, batch 128, AUC-NS 5 candidates, 10 probes, exact ranks, Adam on every row")
    print(f"{'':36}{'positives/s':>14}{'steps alone':>14}")
    for replicas, exact_sums in ((1, True), (10, True), (10, False)):
        whole, alone = small(train, replicas, 10, exact_sums=exact_sums)
        name = f"fused, {replicas} replicas, {'exact' if exact_sums else 'float'} sums"
        print(f"{name:36}{whole:14,.0f}{alone:14,.0f}", flush=True)
    print(f"{'plain engine, 10 replicas':36}{plain(train, 10):14,.0f}", flush=True)

    copy = copy_bandwidth()
    web = WebSize(asked.users, asked.items)
    print(f"{asked.users:,} users × {asked.items:,} items, {web.n:,} pairs, MF 64, AUC-NS 5 candidates,")
    print(f"10 probes, 64 draws, Adam on touched rows, one replica; a copy moves {copy / 1e12:.2f} TB/s")
    print(f"{'':36}{'positives/s':>14}{'bytes each':>14}{'share of copy':>15}")
    for batch in asked.batch:
        for exact_sums in (True, False):
            rate, size = web.rate(batch, 60_000_000, exact_sums=exact_sums)
            name = f"fused, batch {batch:,}, {'exact' if exact_sums else 'float'} sums"
            print(f"{name:36}{rate:14,.0f}{size:14,.0f}{rate * size / copy:15.0%}", flush=True)


if __name__ == "__main__":
    main()
