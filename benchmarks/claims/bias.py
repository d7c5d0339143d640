"""Is the bias of a recommender what the paper says: MSE less a constant, and about FPR + FNR?

.venv/bin/python benchmarks/claims/bias.py

In a simulated world the chance p that a user likes an item is known, so the best prediction is y* = p.
Training sets are drawn anew from the same world (who likes what, and what was shown), a model is trained on
each, and g(x) = 1 for its top k. The label y of a pair is drawn apart from them; its mean is taken exactly.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

import evenhand as eh
from evenhand.data.simulate import Simulation
from evenhand.data.splits import Split
from evenhand.methods import parse
from evenhand.training.run import train

METHODS = ("rns", "pns", "dns", "fairstatic", "auc-ns")
KS = (5, 20)


@dataclass(frozen=True)
class Parts:
    """Means over all pairs and training sets."""

    mse: float
    """E (g - y)²"""
    bias: float
    """E (E_D[g] - y*)²"""
    variance: float
    """E (g - E_D[g])²"""
    noise: float
    """E (y* - y)²"""
    fpr_true: float
    """Recommended, of the pairs that are not liked."""
    fnr: float
    """Not recommended, of the pairs that are liked."""
    fpr_paper: float
    """Not liked, of the pairs that are recommended: 1 - precision."""


def decompose(predictions: np.ndarray, preference: np.ndarray) -> Parts:
    """The parts for predictions g in {0, 1} [training sets, …] where a pair is liked with `preference`.

    E (g - y)² = (g - p)² + p(1 - p), with y drawn apart from the training sets.
    """
    average, n = predictions.mean(0), len(predictions)
    # The average of a few training sets still varies; what that adds to the bias belongs to the variance.
    variance = float(((predictions - average) ** 2).mean()) * n / (n - 1)
    noise = float((preference * (1 - preference)).mean())
    wrongly, missing = predictions * (1 - preference), (1 - predictions) * preference
    return Parts(
        mse=float(((predictions - preference) ** 2).mean()) + noise,
        bias=float(((average - preference) ** 2).mean()) - variance / n,
        variance=variance,
        noise=noise,
        fpr_true=float(wrongly.mean() / (1 - preference).mean()),
        fnr=float(missing.mean() / preference.mean()),
        fpr_paper=float(wrongly.mean() / predictions.mean()),
    )


def training_sets(world: Simulation, n: int) -> Iterator[Split]:
    """Logs of the same users with the same tastes: other likes, other exposure; nothing held out."""
    users, items = np.arange(world.log.n_users)[:, None], np.arange(world.log.n_items)
    for seed in range(n):
        again = replace(world, seed=10_000 + seed)
        row, column = np.nonzero(again.truth(users, items) & again.exposed(users, items))
        log = eh.Interactions.from_pairs(row, column, n_users=len(users), n_items=len(items))
        yield Split(log, None, log.take(np.zeros(len(log), dtype=bool)), "resampled", ())


def recommended(split: Split, method: str, epochs: int) -> dict[int, np.ndarray]:
    """g by k: bool [users, items], the k best of all items; nothing is masked, as in the proposition."""
    settings = eh.Settings(epochs=epochs, batch=256, lr=0.01, weight_decay=1e-4)
    user_vectors, item_vectors = train(split, eh.MF(dim=16), parse(method).sampler, 1, settings, device="cpu").vectors
    order = (user_vectors[0] @ item_vectors[0].T).argsort(dim=1, descending=True)
    found = {}
    for k in KS:
        chosen = torch.zeros(split.n_users, split.n_items)
        found[k] = chosen.scatter(1, order[:, :k], 1.0).bool().numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=15)
    given = parser.parse_args()
    world = eh.simulate(300, 400, 9000, uniform_test=0)
    preference = world.preference(np.arange(300)[:, None], np.arange(400))
    sets = list(training_sets(world, given.sets))
    pairs = np.mean([len(one.train) for one in sets])
    print(f"300 users × 400 items, liked {preference.mean():.3f}; {given.sets} logs of {pairs:.0f} pairs")
    print("k   method      MSE     bias    variance noise   | FPR true  FNR    FPR paper | sum true  sum paper")
    found: dict[tuple[int, str], Parts] = {}
    for method in METHODS:
        lists = [recommended(one, method, given.epochs) for one in sets]
        for k in KS:
            found[k, method] = decompose(np.stack([one[k] for one in lists]).astype(float), preference)
    for (k, method), one in sorted(found.items()):
        print(
            f"{k:<3} {method:10}  {one.mse:.4f}  {one.bias:.4f}  {one.variance:.4f}   {one.noise:.4f}  "
            f"| {one.fpr_true:.4f}    {one.fnr:.4f} {one.fpr_paper:.4f}    "
            f"| {one.fpr_true + one.fnr:.4f}    {one.fpr_paper + one.fnr:.4f}"
        )
    for k in KS:
        rows = [found[k, method] for method in METHODS]
        bias = [one.bias for one in rows]
        print(
            f"k = {k}: correlation of bias over the methods with MSE {_r(bias, [o.mse for o in rows]):.3f}, "
            f"true FPR + FNR {_r(bias, [o.fpr_true + o.fnr for o in rows]):.3f}, "
            f"the paper's {_r(bias, [o.fpr_paper + o.fnr for o in rows]):.3f}"
        )


def _r(a: list[float], b: list[float]) -> float:
    return float(np.corrcoef(a, b)[0, 1])


if __name__ == "__main__":
    main()
