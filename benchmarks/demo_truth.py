"""What perfect knowledge of `demo` would recommend, and how much of it goes to the most popular tenth of the items.

    python benchmarks/demo_truth.py [DATA_DIR] [--methods pns,lightgcn/pns,macr]

The simulator knows how likely a pair is to be in the log (liked and shown) and how likely it is to be liked at all.
Lists by the first are the best that anyone can do at predicting the log. With a folder of data, also what methods that
predict real logs well give that tenth; with methods, what they give it on `demo` where validation is drawn evenly over
items, and how they do on that.
"""

from __future__ import annotations

import argparse

import numpy as np
from defaults import tests_named

from evenhand.data.datasets.load import demo_simulation
from evenhand.data.splits import Split
from evenhand.experiments.benchmark import method_named
from evenhand.metrics.evaluate import score_sheet
from evenhand.metrics.slots import AnswerSheet
from evenhand.training.method import Conditions, Fit

K = 10
REAL = ("gfcf", "als")


def popular_tenth(split: Split) -> np.ndarray:
    """bool [n_items]"""
    popular = np.zeros(split.train.n_items, dtype=bool)
    popular[np.argsort(-split.train.popularity, kind="stable")[: len(popular) // 10]] = True
    return popular


def report(name: str, split: Split, lists: np.ndarray, ndcg: float) -> None:
    popular = popular_tenth(split)
    demand, share = popular[split.test.items].mean(), popular[lists].mean()
    print(
        f"{name:32} NDCG@{K} {ndcg:.4f}; the most popular tenth draws {demand:.3f} of the test pairs and has "
        f"{share:.3f} of the slots, {share / demand:.2f} times as much",
        flush=True,
    )


def the_truth() -> None:
    world = demo_simulation()
    split = world.split
    users, items = np.arange(split.train.n_users)[:, None], np.arange(split.train.n_items)
    active = np.flatnonzero(split.test.activity > 0)
    sheet = AnswerSheet(active, split.test, popular_tenth(split), split.consumed, shown_again=False)
    liked, shown = world.preference(users, items), world.exposure(users, items)
    for name, score in (
        ("in the log", liked * shown),
        ("liked", liked),
        ("popular", np.broadcast_to(split.train.popularity, liked.shape).astype(float)),
    ):
        score = score.copy()
        score[split.consumed.users, split.consumed.items] = -np.inf
        lists = np.argsort(-score, axis=1, kind="stable")[active, :K]
        report(f"demo, {name}", split, lists, score_sheet(lists, sheet, (K,))[K].mean("ndcg"))


def real_logs(data_dir: str) -> None:
    for test in tests_named(None, data_dir):
        if test.test != "iid":
            continue
        conditions = Conditions.of(test.split(data_dir), 1, k=(K,), device="cpu")
        split = conditions.split
        for method in REAL:
            fit = method_named(method).under(conditions).fit_under(conditions)
            report(f"{test.set}, {method}", split, listed(fit, split), fit.at(K)["ndcg"].mean)


def chosen_evenly(methods: list[str]) -> None:
    split = demo_simulation().log.split(test=0.2, validation=0.1, seed=0, validation_how="popularity-shift")
    conditions = Conditions.of(split, 1, k=(K,), device="cpu")
    for method in methods:
        fit = method_named(method).under(conditions).fit_under(conditions)
        value = fit.validation[0] if fit.validation else float("nan")
        report(f"demo, {method} ({value:.4f})", split, listed(fit, split), fit.at(K)["ndcg"].mean)


def listed(fit: Fit, split: Split) -> np.ndarray:
    """The items that were recommended, as indices."""
    return np.searchsorted(split.train.item_ids, fit.lists(K)["item"].to_numpy(zero_copy_only=False))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folders", nargs="*")
    asked.add_argument("--methods", help="instead of all that")
    given = asked.parse_args()
    if given.methods:
        chosen_evenly(given.methods.split(","))
        return
    the_truth()
    for folder in given.folders:
        real_logs(folder)


if __name__ == "__main__":
    main()
