"""Whether the lines of a published split (`user item item …`) are in an order that its test continues.

    python benchmarks/line_order.py FOLDER

Reads FOLDER/train.txt alone. Prints how popular the items are along the lines, how much items keep to places of their
own (1 is chance), and NDCG@20 of closed forms, with and without regard to order, on two validation parts of a tenth:
pairs at random, and the ends of lines.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from evenhand.baselines import GFCF, ItemKNN
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import held_out_share
from evenhand.training.evaluation import Evaluator

K, LEAST = 20, 30
METHODS = (
    ItemKNN(100, 0, "gram", user_exponent=0.5),
    GFCF(),
    GFCF(recency=0.8),
    ItemKNN(300, 0, "gram", item_exponent=0.3),
    ItemKNN(300, 0, "gram", item_exponent=0.3, recency=0.8),
    ItemKNN(300, 0, "gram", item_exponent=0.3, window=20, recency=0.8),
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    train = read_interactions(asked.parse_args().folder / "train.txt")
    place = train.timestamps
    if place is None:
        print("the lines are sorted, so their order says nothing")
        return
    popularity = train.popularity[train.items]
    tenths = np.minimum((10 * place).astype(int), 9)
    means = [popularity[tenths == tenth].mean() for tenth in range(10)]
    print("popularity by tenth of the line:", " ".join(f"{mean:.1f}" for mean in means))
    often = train.popularity >= LEAST
    sums = np.bincount(train.items, place - 0.5, train.n_items)[often]
    print(f"variance of the items' places over chance: {np.var(sums * np.sqrt(12 / train.popularity[often])):.2f}")
    for how in ("random", "time"):
        rest, held = held_out_share(train, 0.1, how)
        seen = Evaluator(held, rest, np.zeros(train.n_items, dtype=bool), (K,))
        for method in METHODS:
            value = seen.evaluate([method.fit_pairs(rest).scorer(0)])[0][K].mean("ndcg")
            where = "at random" if how == "random" else "at the ends of lines"
            print(f"validation {where:20} {value:.4f}  {method.label}")


if __name__ == "__main__":
    main()
