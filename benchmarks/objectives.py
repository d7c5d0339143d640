"""Seconds per step of every objective, as a ratio to BPR with the same encoder and batch in the same run.

python benchmarks/objectives.py
"""

import os
import time

import torch

import evenhand as eh
from evenhand.data.hot import HotRule
from evenhand.encoders import Encoder
from evenhand.objectives import BPR, IPS, MACR, BCLoss, CausE, Objective, Reg
from evenhand.samplers import UniformSampler
from evenhand.training.loop import Loop

REPEATS = 3
OBJECTIVES: dict[str, tuple[Objective, int | None]] = {
    "bpr": (BPR(), None),
    "bpr, 128 negatives": (BPR(), 128),
    "ips": (IPS(), None),
    "reg": (Reg(), None),
    "macr": (MACR(), None),
    "macr, matrix": (MACR(matrix=True), None),
    "cause": (CausE(), None),
    "bc, warm-up": (BCLoss(warm_up=10**6), None),
    "bc": (BCLoss(warm_up=0), None),
    "bc, in-batch": (BCLoss(warm_up=0, in_batch=True), None),
}
split = eh.load_split("demo")
hot = HotRule().mask(split)
print(
    f"demo: {len(split.train):,} pairs, {split.n_items:,} items; d 64, batch 1024, one replica, uniform "
    f"negatives; torch {torch.__version__}, {torch.get_num_threads()} threads of {os.cpu_count()} cores; "
    f"best of {REPEATS} epochs"
)
ENCODERS = (eh.MF(dim=64), eh.LightGCN(dim=64))


def started(objective: Objective, negatives: int | None, encoder: Encoder) -> Loop:
    settings = eh.Settings(negatives=negatives)
    return Loop(
        split.train,
        encoder,
        [UniformSampler()],
        [0],
        settings,
        torch.device("cpu"),
        hot=hot,
        objective=objective,
    )


def step_seconds(loop: Loop, epoch: int) -> float:
    began = time.perf_counter()
    loop.run_epoch(epoch)
    return (time.perf_counter() - began) / loop.steps


loops = {(name, e): started(*how, e) for name, how in OBJECTIVES.items() for e in ENCODERS}
# In turns, so that whatever else the machine does falls on all of them; the first epoch only warms up.
took = [{key: step_seconds(loop, epoch) for key, loop in loops.items()} for epoch in range(1 + REPEATS)]
best = {key: min(one[key] for one in took[1:]) for key in loops}
print("objective             MF ms/step  × bpr    LightGCN ms/step  × bpr")
for name in OBJECTIVES:
    (mf, mf_ratio), (gcn, gcn_ratio) = (
        (1000 * best[name, e], best[name, e] / best["bpr", e]) for e in ENCODERS
    )
    print(f"{name:20}  {mf:10.2f}  {mf_ratio:5.2f}    {gcn:16.2f}  {gcn_ratio:5.2f}")
