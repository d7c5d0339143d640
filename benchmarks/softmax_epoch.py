"""How long an epoch of the softmax family takes on a named dataset, and what L2 on a batch's rows adds to BPR.

python benchmarks/softmax_epoch.py gowalla --data-dir DIR --device cuda --batch 4096
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import evenhand as eh
from evenhand.data.datasets.load import load_split
from evenhand.methods import parse
from evenhand.training.trainer import Trainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data")
parser.add_argument("--data-dir")
parser.add_argument("--device", default="cpu")
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--methods", default="softmax,psl,slatk,bsl,auc-softmax,rns,rns+l2")
given = parser.parse_args()

train = load_split(given.data, given.data_dir).train
print(f"{len(train):,} pairs, {train.n_users:,} users, {train.n_items:,} items; {given.device}")
for name in given.methods.split(","):
    text, _, l2 = name.partition("+")
    method = parse(text)
    how = eh.Settings(batch=given.batch, weight_decay=0.0, l2=1e-4 if l2 else 0.0)
    trainer = Trainer(
        train,
        eh.MF(dim=64),
        [method.sampler] * given.seeds,
        range(given.seeds),
        how,
        torch.device(given.device),
        hot=np.zeros(train.n_items, dtype=bool),
        objective=method.objective,
    )
    trainer.run_epoch(0)
    began = time.perf_counter()
    for epoch in range(given.epochs):
        trainer.run_epoch(1 + epoch)
    seconds = (time.perf_counter() - began) / given.epochs
    print(f"{name:12} {trainer.engine.name:7} {seconds:8.3f} s an epoch", flush=True)
