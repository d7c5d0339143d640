"""The search behind docs/methods.md: a small grid a method on a tenth of train, then the paper's protocol.

python benchmarks/method_grid.py paper_train.csv paper_test.csv --methods macr,cause --device cuda
"""

import argparse
import itertools
from dataclasses import replace

import numpy as np

import evenhand as eh
from evenhand.methods import parse
from evenhand.training.run import train

OWN = {
    "ips-cn": ("", ":smoothing=0.5"),
    "macr": ("", ":item_weight=0.01:user_weight=0.01"),
    "cause": (":weight=0.05", ":weight=0.5"),
    "samreg": (":weight=0.05", ":weight=0.2"),
    "bc-loss": ("", ":tau1=0.15", ":final=cosine"),
}
options = argparse.ArgumentParser(description=__doc__)
options.add_argument("train")
options.add_argument("test")
options.add_argument("--methods", default="rns,ips-cn,macr,cause,samreg,bc-loss")
options.add_argument("--lr", default="0.001,0.003,0.01")
options.add_argument("--weight-decay", default="0,1e-5,1e-4")
options.add_argument("--device", default="auto")
given = options.parse_args()

parts = eh.Interactions.read(given.train), eh.Interactions.read(given.test)
encoder = eh.MF(dim=32)
for name in given.methods.split(","):
    tried = []
    for own, lr, decay in itertools.product(OWN.get(name, ("",)), given.lr.split(","), given.weight_decay.split(",")):
        settings = eh.Settings(lr=float(lr), weight_decay=float(decay), epochs=80)
        split = eh.given_split(*parts, validation=0.1)
        fitted = train(
            split,
            encoder,
            (one := parse(name + own)).sampler,
            2,
            settings,
            objective=one.objective,
            device=given.device,
            ks=(5,),
        )
        assert fitted.validation is not None
        tried.append((float(np.mean(fitted.validation)), name + own, settings))
        print(f"{name + own} lr {lr} wd {decay}: validation NDCG@10 {tried[-1][0]:.4f}", flush=True)
    value, method, settings = max(tried, key=lambda one: one[0])
    final = train(
        eh.given_split(*parts),
        encoder,
        parse(method).sampler,
        5,
        replace(settings, epochs=100),
        objective=parse(method).objective,
        protocol="paper",
        device=given.device,
        ks=(5,),
    )
    print(f"BEST of {len(tried)}: {method}, lr {settings.lr}, wd {settings.weight_decay}, {value:.4f}; top 5:")
    for metric in ("precision", "ndcg", "ohr", "ocr", "uhr", "ucr"):
        values = [result.metrics[metric] for result in final.results[5]]
        print(f"  {metric} {np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}", flush=True)
