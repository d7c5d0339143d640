"""What a shared pool of draws costs in accuracy: `auc-ns:pool=N` beside ordinary draws.

    python benchmarks/shared_pool.py LOG [LOG ...] [--pools 8192 1024] [--batch 4096] [--seeds 3] [--epochs 100]

LOG is a file of pairs or a folder with train and test. A validation part is drawn from train; it chooses the epoch, and
L2 among three. Printed are NDCG@20 and OHR@20 on test, the mean over seeds and their standard deviation.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.reading.sources import given_parts
from evenhand.data.splits import Split, given_split
from evenhand.encoders import MF
from evenhand.samplers import AUCSampler
from evenhand.training.run import train
from evenhand.training.settings import Settings


def split_of(path: Path) -> Split:
    parts = given_parts(str(path)) if path.is_dir() else {}
    if not parts:
        return Interactions.read(path).split()
    known, test = (Interactions.read(parts[name]) for name in ("train", "test"))
    return given_split(known, test, validation=0.1, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--pools", nargs="*", type=int, default=[8192])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--l2", nargs="+", type=float, default=[0.001, 0.01, 0.03])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for path in asked.logs:
        split = split_of(path)
        print(f"{path.name}: {split.train}", flush=True)
        for pool in (None, *asked.pools):
            began, best = time.process_time(), None
            for l2 in asked.l2:
                settings = Settings(batch=asked.batch, lr=asked.lr, l2=l2, epochs=asked.epochs, updates="sparse")
                sampler = AUCSampler(ecdf=64, pool=pool)
                fit = train(split, MF(dim=64), sampler, asked.seeds, settings, device=asked.device, ks=(20,))
                assert fit.validation is not None
                if best is None or np.mean(fit.validation) > np.mean(best[1].validation):
                    best = (l2, fit)
            assert best is not None
            said = {
                name: np.array([one.metrics[name] for one in best[1].results[20]]) for name in ("ndcg", "recall", "ohr")
            }
            values = ", ".join(
                f"{name}@20 {v.mean():.4f} ± {v.std(ddof=1) if len(v) > 1 else 0:.4f}" for name, v in said.items()
            )
            name = "ordinary draws" if pool is None else f"pool of {pool:,}"
            print(
                f"  {name:18} l2 {best[0]:g}, epochs {best[1].epochs}, "
                f"validation {np.mean(best[1].validation):.4f}: {values}; {time.process_time() - began:.0f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
