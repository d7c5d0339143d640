"""What published libraries compute on the small lists of `tests/audit_lists.py`, at k = 3.

    python -m venv reference && reference/bin/pip install rectools lenskit torchmetrics "pyarrow==20.*"
    reference/bin/pip install --no-deps recbole && reference/bin/pip install colorlog tensorboard
    reference/bin/python benchmarks/reference_metrics.py

The tests hold these numbers as expectations. Lists are cut to three items, which every user has, since
libraries differ in what they do with short ones.
"""

import math
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from audit_lists import CATALOGUE, HOT, LISTS, TEST, TRAIN, pairs

K = 3
LISTS = {user: items[:K] for user, items in LISTS.items()}


def show(library: str, values: dict[str, float]) -> None:
    print(f"{library} {version(library)}")
    for name, value in values.items():
        print(f"    {name}: {float(value):.10f}")


def rectools() -> None:
    from rectools import metrics as m

    reco = pd.DataFrame(
        [(user, item, rank) for user, items in LISTS.items() for rank, item in enumerate(items, 1)],
        columns=["user_id", "item_id", "rank"],
    )
    wanted, past = (pd.DataFrame(pairs(rows), columns=["user_id", "item_id"]) for rows in (TEST, TRAIN))
    show(
        "rectools",
        {
            "Precision": m.Precision(K).calc(reco, wanted),
            "Recall": m.Recall(K).calc(reco, wanted),
            "HitRate": m.HitRate(K).calc(reco, wanted),
            "MRR": m.MRR(K).calc(reco, wanted),
            "NDCG(divide_by_achievable=True)": m.NDCG(K, divide_by_achievable=True).calc(reco, wanted),
            "AvgRecPopularity": m.AvgRecPopularity(K).calc(reco, past),
            "CatalogCoverage(normalize=True)": m.CatalogCoverage(K, normalize=True).calc(reco, list(CATALOGUE)),
        },
    )


def lenskit() -> None:
    from lenskit import metrics as m
    from lenskit.data import ItemList

    shown = {user: ItemList(item_ids=list(items), ordered=True) for user, items in LISTS.items()}
    wanted = {user: ItemList(item_ids=list(items)) for user, items in TEST.items()}
    found = {}
    for kind in (m.Precision, m.Recall, m.Hit, m.RecipRank, m.NDCG):
        found[kind.__name__] = np.mean([kind(K).measure_list(shown[user], wanted[user]) for user in LISTS])
    gini = m.ListGini(K, items=len(CATALOGUE))
    found["ListGini"] = gini.global_aggregate([gini.compute_list_data(items, None) for items in shown.values()])
    show("lenskit", found)


def torchmetrics() -> None:
    import torch
    from torchmetrics.functional import retrieval as r

    def scored(user: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Every item of the catalogue: those of the list above all others."""
        scores = [10.0 - LISTS[user].index(item) if item in LISTS[user] else 0.0 for item in CATALOGUE]
        return torch.tensor(scores), torch.tensor([item in TEST[user] for item in CATALOGUE])

    names = ("precision", "recall", "hit_rate", "reciprocal_rank", "normalized_dcg")
    show(
        "torchmetrics",
        {
            f"retrieval_{name}": np.mean(
                [float(getattr(r, f"retrieval_{name}")(*scored(user), top_k=K)) for user in LISTS]
            )
            for name in names
        },
    )


def recbole() -> None:
    from recbole.evaluator import metrics as m

    config = {"topk": [K], "metric_decimal_place": 12, "tail_ratio": 1.5}
    matrix = np.array([[CATALOGUE.index(item) for item in items] for items in LISTS.values()])
    counted = Counter(CATALOGUE.index(item) for _, item in pairs(TRAIN))
    counts = {item: counted[item] for item in range(len(CATALOGUE))}
    assert {item for item, n in counts.items() if n > 1} == {CATALOGUE.index(item) for item in HOT}
    # RecBole divides the entropy, in nats, by the number of different items.
    in_bits = len(np.unique(matrix)) / math.log(2)
    show(
        "recbole",
        {
            "ItemCoverage": m.ItemCoverage(config).get_coverage(matrix, len(CATALOGUE)),
            "GiniIndex": m.GiniIndex(config).get_gini(matrix, len(CATALOGUE)),
            "AveragePopularity": m.AveragePopularity(config).get_pop(matrix, counts).mean(axis=1).mean(),
            "TailPercentage(tail_ratio=1.5)": m.TailPercentage(config).get_tail(matrix, counts).mean(axis=1).mean(),
            "ShannonEntropy × items / ln 2": m.ShannonEntropy(config).get_entropy(matrix) * in_bits,
        },
    )


def scipy() -> None:
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import entropy

    past, wanted = (Counter(item for _, item in pairs(rows)) for rows in (TRAIN, TEST))
    shown = Counter(item for _, item in pairs(LISTS))
    # Ten items: every one is a decile of its own.
    order = sorted(CATALOGUE, key=lambda item: -past[item])
    show(
        "scipy",
        {
            "jensenshannon(base=2)": jensenshannon([shown[i] for i in order], [wanted[i] for i in order], base=2),
            "entropy(base=2)": entropy([shown[i] for i in CATALOGUE], base=2),
        },
    )


if __name__ == "__main__":
    for library in (rectools, lenskit, torchmetrics, recbole, scipy):
        library()
