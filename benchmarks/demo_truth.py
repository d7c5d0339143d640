"""What perfect knowledge of `demo` would recommend, and how much of it goes to the most popular tenth of the items.

    python benchmarks/demo_truth.py

The simulator knows how likely a pair is to be in the log (liked and shown) and how likely it is to be liked at all.
Lists by the first are the best that anyone can do at predicting the log.
"""

from __future__ import annotations

import numpy as np

from evenhand.data.datasets.load import demo_simulation
from evenhand.metrics.evaluate import score_sheet
from evenhand.metrics.slots import AnswerSheet

K = 10


def main() -> None:
    world = demo_simulation()
    split = world.split
    users, items = np.arange(split.train.n_users)[:, None], np.arange(split.train.n_items)
    popular = np.zeros(len(items), dtype=bool)
    popular[np.argsort(-split.train.popularity, kind="stable")[: len(items) // 10]] = True
    demand = popular[split.test.items].mean()
    print(f"the most popular tenth draws {demand:.3f} of the test pairs")
    active = np.flatnonzero(split.test.activity > 0)
    sheet = AnswerSheet(active, split.test, popular, split.consumed, shown_again=False)
    liked, shown = world.preference(users, items), world.exposure(users, items)
    for name, score in (
        ("in the log", liked * shown),
        ("liked", liked),
        ("popular", np.broadcast_to(split.train.popularity, liked.shape).astype(float)),
    ):
        score = score.copy()
        score[split.consumed.users, split.consumed.items] = -np.inf
        lists = np.argsort(-score, axis=1, kind="stable")[active, :K]
        ndcg = score_sheet(lists, sheet, (K,))[K].mean("ndcg")
        share = popular[lists].mean()
        print(f"{name:11} NDCG@{K} {ndcg:.4f}; share of slots {share:.3f}, {share / demand:.2f} times the demand")


if __name__ == "__main__":
    main()
