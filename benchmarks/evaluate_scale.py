"""Seconds of one evaluation on a large catalogue, and of one on a small one, on the CPU or a GPU.

    python benchmarks/evaluate_scale.py [--device cpu] [--users 20000] [--threads 2]

Large: so many of 1,000,000 simulated users are judged on 200,000 items, 20 million pairs left out. Small: 10
replicas of 943 users and 1,682 items. Vectors of length 64, lists of 20; prints the peak memory as well.
"""

import argparse
import resource
import time

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.models.topk import top_items
from evenhand.training.evaluation import Evaluator

DIM, LONGEST = 64, 20


def log(n_users: int, n_items: int, per_user: int, seed: int) -> Interactions:
    """Long-tailed items, one a stratum, so that none repeats within a user."""
    generator = np.random.default_rng(seed)
    place = (np.arange(per_user) + generator.random((n_users, per_user))) / per_user
    items = np.minimum(n_items * place**3, n_items - 1).astype(np.int32)
    return Interactions.from_pairs(
        np.repeat(np.arange(n_users), per_user), items.ravel(), n_users=n_users, n_items=n_items
    )


def vectors(replicas: int, n_users: int, n_items: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(replicas, n, DIM, generator=generator).to(device) for n in (n_users, n_items)]
    return sides[0], sides[1]


def large(asked: argparse.Namespace) -> None:
    n_users, n_items = 1_000_000, 200_000
    known = log(n_users, n_items, 20, seed=0)
    few = log(asked.users, n_items, 2, seed=1)
    truth = Interactions.from_pairs(few.users, few.items, n_users=n_users, n_items=n_items)
    users, items = vectors(1, n_users, n_items, asked.device)
    evaluator = Evaluator(truth, known, np.zeros(n_items, dtype=bool), (5, 10, LONGEST))
    top_items(users[0], items[0], np.arange(8), LONGEST)  # loads and compiles
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    evaluator((users, items))
    seconds = time.perf_counter() - began
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"large: {asked.users:,} of {n_users:,} users × {n_items:,} items, {len(known):,} pairs left out: "
        f"{seconds:.1f} s on {asked.device}, {torch.get_num_threads()} threads, {more:,.0f} MiB more"
    )


def small(asked: argparse.Namespace) -> None:
    import numba  # noqa: F401  as in training

    known, truth = log(943, 1682, 76, seed=0), log(943, 1682, 8, seed=1)
    made = vectors(10, 943, 1682, asked.device)
    evaluator = Evaluator(truth, known, np.arange(1682) < 300, (10,))
    evaluator(made)
    times = []
    for _ in range(5):
        began = time.perf_counter()
        evaluator(made)
        times.append((time.perf_counter() - began) / 10)
    print(f"small: 943 users × 1,682 items: {1000 * min(times):.1f} ms a replica, best of {len(times)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    small(asked)
    large(asked)


if __name__ == "__main__":
    main()
