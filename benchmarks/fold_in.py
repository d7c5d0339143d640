"""What folding users in costs against training them in, on the same split with the same settings.

    python benchmarks/fold_in.py RATINGS [--encoders mf,lightgcn] [--methods dns,auc-ns:ecdf=64] [--seeds 2]

A share of the users is held out: one model is trained with their train items, one without. Both recommend to
those users; the second folds them in from the same train items. Printed are NDCG@10 and the bias rates on
their test items, and the ratio of the two NDCGs.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np
import torch

import evenhand as eh
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.metrics.evaluate import score_lists
from evenhand.models.factors import user_vectors
from evenhand.models.topk import top_items

K = 10
SHOWN = ("ndcg", "ohr", "ucr")


def without(split: Split, held: np.ndarray) -> Split:
    """The split as it would be had these users never come."""
    train, validation, test = (part.take(~held[part.users]) for part in (split.train, split.validation, split.test))
    return Split(train, validation, test, f"{split.description}, without {held.sum()} users")


def accuracy(users: torch.Tensor, items: torch.Tensor, split: Split, held: np.ndarray) -> dict[str, float]:
    """Means over seeds and held-out users on test."""
    evaluated = np.flatnonzero(held & (split.test.activity > 0))
    hot = HotRule.parse("honest").mask(split)
    scored = [
        score_lists(top_items(*vectors, evaluated, K, exclude=split.consumed)[0], evaluated, split.test, hot, (K,))[K]
        for vectors in zip(users, items, strict=True)
    ]
    return {name: float(np.mean([one.mean(name) for one in scored])) for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ratings")
    parser.add_argument("--encoders", default="mf,lightgcn")
    parser.add_argument("--methods", default="dns,auc-ns:ecdf=64")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.15)
    asked = parser.parse_args()

    data = eh.Interactions.read(asked.ratings)
    split = data.split(seed=0)
    held = np.random.default_rng(0).random(data.n_users) < asked.share
    print(f"{data}; {held.sum()} users held out; {asked.seeds} seeds")
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, evenhand {eh.__version__}")
    print(f"{'encoder':10}{'method':18}{'users':12}" + "".join(f"{name + '@10':>9}" for name in SHOWN))
    for encoder in asked.encoders.split(","):
        for method in asked.methods.split(","):
            inside = eh.fit(split, method, encoder, asked.seeds, progress=False)
            outside = eh.fit(without(split, held), method, encoder, asked.seeds, progress=False)
            began = time.perf_counter()
            folded = user_vectors(outside.item_vectors, split.train)
            seconds = time.perf_counter() - began
            rows = {
                "trained in": accuracy(*inside.vectors, split, held),
                "folded in": accuracy(folded, outside.item_vectors, split, held),
            }
            for name, row in rows.items():
                print(f"{encoder:10}{method:18}{name:12}" + "".join(f"{row[m]:9.4f}" for m in SHOWN))
            ratio = rows["folded in"]["ndcg"] / rows["trained in"]["ndcg"]
            print(f"{'':28}NDCG ratio {ratio:.3f}; {data.n_users / seconds:,.0f} users/s", flush=True)


if __name__ == "__main__":
    main()
