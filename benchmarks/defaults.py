"""The grid behind the default settings: validation NDCG@10 on a data set for rates and weight decays.

python benchmarks/defaults.py demo --encoder mf --lr 0.002,0.003 --weight-decay 5e-5,7e-5,1e-4
python benchmarks/defaults.py u.data --encoder lightgcn --layers 2 --lr 0.002 --weight-decay 1e-6,5e-6
"""

import argparse
import itertools

import numpy as np

import evenhand as eh
from evenhand.methods import parse
from evenhand.training.run import train

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("data")
options.add_argument("--encoder", default="mf")
options.add_argument("--layers", type=int, default=2)
options.add_argument("--dim", type=int, default=64)
options.add_argument("--lr", default="0.002,0.003,0.01")
options.add_argument("--weight-decay", default="2e-5,7e-5,1e-4")
options.add_argument("--methods", default="rns,dns,auc-ns:ecdf=64")
options.add_argument("--seeds", type=int, default=2)
options.add_argument("--device", default="auto")
given = options.parse_args()

split = eh.load_split("demo") if given.data == "demo" else eh.Interactions.read(given.data).split()
encoder = eh.MF(given.dim) if given.encoder == "mf" else eh.LightGCN(given.dim, layers=given.layers)
for lr, decay in itertools.product(given.lr.split(","), given.weight_decay.split(",")):
    for method in given.methods.split(","):
        settings = eh.Settings(lr=float(lr), weight_decay=float(decay))
        one = parse(method)
        fitted = train(
            split, encoder, one.sampler, given.seeds, settings, objective=one.objective, ks=(10,), device=given.device
        )
        assert fitted.validation is not None
        print(
            f"{given.data} {given.encoder} lr {lr} wd {decay} {method:15} "
            f"validation NDCG@10 {np.mean(fitted.validation):.4f}  epochs {fitted.epochs}",
            flush=True,
        )
