"""Seconds per epoch of every sampler, as a ratio to random negatives in the same run.

make bench
"""

import os
import time

import numpy as np
import torch

import evenhand as eh
from evenhand.data.hot import HotRule
from evenhand.methods import contender
from evenhand.training.loop import Loop

REPEATS = 3
split = eh.load_split("demo")
hot = HotRule().mask(split)
print(
    f"demo: {len(split.train):,} pairs, {split.n_items:,} items; MF d 64, batch 1024; "
    f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} cores; best of {REPEATS}"
)
print("method            R = 1 s/epoch  × rns    R = 3 s/epoch  × rns")
base: dict[int, float] = {}
for name in ("rns", "pns", "fairstatic", "dns", "auc-ns:ecdf=64", "auc-ns"):
    cells = []
    for replicas in (1, 3):
        samplers = [contender(name).sampler] * replicas
        loop = Loop(
            split.train, eh.MF(dim=64), samplers, range(replicas), eh.Settings(), torch.device("cpu"), hot=hot
        )
        loop.run_epoch(0)
        took = []
        for epoch in range(1, 1 + REPEATS):
            began = time.perf_counter()
            loop.run_epoch(epoch)
            took.append(time.perf_counter() - began)
        best = float(np.min(took))
        base.setdefault(replicas, best)
        cells.append(f"{best:13.3f}  {best / base[replicas]:5.2f}")
    print(f"{name:16}  {'    '.join(cells)}")
