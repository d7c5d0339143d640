"""What re-ranking does to lists of trained models, and how fast it is.

    python benchmarks/rerank.py RATINGS [--methods rns,auc-ns:ecdf=64] [--seeds 3] [--candidates 100] [--k 10]
    python benchmarks/rerank.py RATINGS --defaults
    python benchmarks/rerank.py --speed [--users 100000]

Models are trained on train and stopped on validation; candidates leave out train items alone. The strength
is chosen on validation, test is looked at once. `before` is the same model's list without re-ranking.
`--defaults` prints, for several recommenders on RATINGS and `demo`, the highest strength up to which every
one of the grid costs at most 1 % of NDCG@10 on validation; the lowest of them is a method's default.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np
import pyarrow as pa
import torch

import evenhand as eh
from evenhand.data.splits import Split
from evenhand.models.filters import list_table
from evenhand.models.rerank import METHODS, rerank_lists
from evenhand.models.topk import top_by, top_items

SHOWN = ("ndcg", "ohr", "ocr", "uhr", "ucr")


def candidate_lists(model: eh.Model, split: Split, n: int) -> pa.Table:
    """The n best items that a user does not have in train, for every seed."""
    tables = []
    for seed, users, items in zip(model.seeds, *model.vectors, strict=True):
        everyone = np.arange(split.n_users)
        lists = top_items(users, items, everyone, n, exclude=split.train)
        table = list_table(split.train, everyone, *lists)
        tables.append(table.append_column("seed", pa.array(np.full(len(table), seed))))
    return pa.concat_tables(tables)


def without(recs: pa.Table, part: eh.Interactions) -> pa.Table:
    """The lists without what users have in this part."""
    users, items = (recs[name].to_numpy() for name in ("user", "item"))
    found = part.contains(
        np.searchsorted(part.user_ids.to_numpy(), users), np.searchsorted(part.item_ids.to_numpy(), items)
    )
    return recs.filter(pa.array(~found))


def line(name: str, strength: str, recs: pa.Table, split: Split, k: int) -> str:
    metrics = eh.evaluate(recs, split, k=k).at(k).metrics
    cells = (f"{metrics[m].mean:.4f} ± {metrics[m].std or 0:.4f}" for m in SHOWN)
    return f"| {name} | {strength} | {' | '.join(cells)} |"


def quality(asked: argparse.Namespace) -> None:
    split = eh.Interactions.read(asked.ratings).split(seed=0)
    assert split.validation is not None
    for method in asked.methods.split(","):
        model = eh.fit(split, method, "mf", asked.seeds, progress=False)
        recs = candidate_lists(model, split, asked.candidates)
        print(f"\n{method}, MF, {asked.seeds} seeds, {asked.candidates} candidates a user, top {asked.k}")
        print("| list | λ | " + " | ".join(SHOWN) + " |")
        print(line("before", "–", without(recs, split.validation), split, asked.k), flush=True)
        for name, one in METHODS.items():
            chosen = rerank_lists(recs, split.train, name, None, asked.k, split.validation)
            print(line(name, f"{chosen.strength:g}, chosen", chosen.table, split, asked.k), flush=True)
            fixed = eh.rerank(without(recs, split.validation), split.train, name, k=asked.k)
            print(line(name, f"{one.strength:g}, default", fixed, split, asked.k), flush=True)


def defaults(asked: argparse.Namespace) -> None:
    splits = {"demo": eh.load_split("demo"), "ratings": eh.Interactions.read(asked.ratings).split(seed=0)}
    print("| data | recommender | " + " | ".join(METHODS) + " |")
    for data, split in splits.items():
        everyone = np.arange(split.n_users)
        lists = {"mf rns": candidate_lists(eh.fit(split, "rns", "mf", 1, progress=False), split, 100)}
        for baseline in (eh.EASE(), eh.ItemKNN()):
            scores = baseline.fit_pairs(split.train).scores
            top = top_by(scores, split.n_items, everyone, 100, exclude=split.train)
            lists[type(baseline).__name__] = list_table(split.train, everyone, *top)
        for name, recs in lists.items():
            cells = []
            for method in METHODS:
                trials = rerank_lists(recs, split.train, method, None, 10, split.validation).trials
                costly = next((t.strength for t in trials if t.ndcg < 0.99 * trials[0].ndcg), 1)
                cells.append(f"{max(t.strength for t in trials if t.strength < costly):g}")
            print(f"| {data} | {name} | {' | '.join(cells)} |", flush=True)


def speed(n_users: int, n_candidates: int) -> None:
    rng = np.random.default_rng(0)
    n_items = 20_000
    chance = 1 / (10 + np.arange(n_items))
    pairs = rng.choice(n_items, n_users * 20, p=chance / chance.sum())
    train = eh.Interactions.from_pairs(np.repeat(np.arange(n_users), 20), pairs, n_items=n_items)
    # Steps through the catalogue, prime to its size, so that no list repeats an item.
    items = (rng.integers(0, n_items, (n_users, 1)) + 7 * np.arange(n_candidates)) % n_items
    recs = pa.table(
        {
            "user": np.repeat(np.arange(n_users), n_candidates),
            "item": items.ravel(),
            "score": -np.sort(-rng.random((n_users, n_candidates)), axis=1).ravel(),
        }
    )
    print(f"{n_users:,} users × {n_candidates} candidates, top 20")
    for name in METHODS:
        began, worked = time.perf_counter(), time.process_time()
        eh.rerank(recs, train, name, 0.5)
        seconds, work = time.perf_counter() - began, time.process_time() - worked
        print(f"{name:14}{seconds:6.1f} s, {work:.1f} s of processor time", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ratings", nargs="?")
    parser.add_argument("--methods", default="rns,auc-ns:ecdf=64")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--users", type=int, default=100_000)
    asked = parser.parse_args()
    print(f"{platform.machine()}, numpy {np.__version__}, torch {torch.__version__}, evenhand {eh.__version__}")
    if asked.speed:
        speed(asked.users, asked.candidates)
    elif asked.ratings:
        (defaults if asked.defaults else quality)(asked)
    else:
        parser.error("give a file of ratings or --speed")


if __name__ == "__main__":
    main()
