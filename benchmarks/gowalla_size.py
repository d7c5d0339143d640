"""Peak memory of LightGCN with AUC-NS at Gowalla's size: 29,858 users × 40,981 items, about a million pairs.

A users × items matrix of float32 would take 4.9 GB by itself; nothing here allocates one.

    .venv/bin/python benchmarks/gowalla_size.py [exact|64]
"""

import resource
import sys
import time

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.training.run import train

ecdf = sys.argv[1] if len(sys.argv) > 1 else "64"
log = simulate_log(29_858, 40_981, 1_120_000)
split = log.split()
print(split)
began = time.perf_counter()
fitted = train(
    split,
    eh.LightGCN(dim=64, layers=3),
    eh.AUCSampler(ecdf=ecdf if ecdf == "exact" else int(ecdf)),
    1,
    eh.Settings(epochs=1, batch=8192),
    device="cpu",
)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(
    f"one epoch, validation and test of LightGCN (3 layers, d 64) with auc-ns:ecdf={ecdf}: "
    f"{time.perf_counter() - began:.0f} s, peak resident memory {peak:.2f} GB"
)
