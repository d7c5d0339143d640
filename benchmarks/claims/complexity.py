"""How the cost of choosing negatives grows with the catalogue: exact rank against a rank from 64 draws.

.venv/bin/python benchmarks/claims/complexity.py
"""

from __future__ import annotations

import time

import torch

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.samplers import Sampler, UniformSampler
from evenhand.samplers.base import BoundSampler

SIZES = (1000, 4000, 16_000, 64_000)
USERS, BATCH, DIM, REPEATS = 500, 256, 32, 7


def seconds(bound: BoundSampler, users: torch.Tensor, vectors: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The best of several choices for one batch: what the choice costs when nothing else disturbs."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        bound.sample(users, *vectors)
        took.append(time.perf_counter() - began)
    return min(took)


def measure(samplers: dict[str, Sampler], n_items: int) -> dict[str, float]:
    g = torch.Generator().manual_seed(0)
    train = simulate_log(USERS, n_items, 20_000)
    vectors = torch.randn(USERS, DIM, generator=g), torch.randn(n_items, DIM, generator=g)
    active = torch.from_numpy(train.activity).nonzero().squeeze(1)
    users = active[torch.randint(len(active), (BATCH,), generator=g)]
    return {name: seconds(sampler.bind(train), users, vectors) for name, sampler in samplers.items()}


def main() -> None:
    torch.set_num_threads(1)
    samplers: dict[str, Sampler] = {
        "rns": UniformSampler(),
        "ecdf=64": eh.AUCSampler(ecdf=64),
        "exact": eh.AUCSampler(),
    }
    measure(samplers, SIZES[0])  # warms up
    first: dict[str, float] = {}
    print(f"batch {BATCH}, d {DIM}, one thread, best of {REPEATS}; time over that with {SIZES[0]:,} items")
    print("items     " + "".join(f"{name:>10}" for name in samplers) + "   exact / ecdf=64   exact / rns")
    for n_items in SIZES:
        found = measure(samplers, n_items)
        first = first or found
        print(
            f"{n_items:<10,}"
            + "".join(f"{found[name] / first[name]:10.2f}" for name in samplers)
            + f"{found['exact'] / found['ecdf=64']:18.1f}{found['exact'] / found['rns']:14.1f}"
        )


if __name__ == "__main__":
    main()
