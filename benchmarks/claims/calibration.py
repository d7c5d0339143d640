"""Is P(TN|x), the sampler's confidence that an unobserved item is a true negative, calibrated?

.venv/bin/python benchmarks/claims/calibration.py

In a simulated world the truth is known: MF is trained on the biased log, and every pair outside the training
log is asked whether the user likes it. Confidence is binned; a calibrated one meets its own frequency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import Simulation
from evenhand.samplers.auc import posterior, prior
from evenhand.training.run import train

EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
ALPHAS: tuple[float | str, ...] = (0.5, 0.75, 0.9, "auto")
BETAS = (0.0, 0.001, 0.01, 0.025, 0.1, 0.5)


@dataclass(frozen=True)
class Bin:
    low: float
    high: float
    share: float
    """Of all pairs."""
    predicted: float
    observed: float


def reliability(predicted: np.ndarray, true: np.ndarray, edges: tuple[float, ...] = EDGES) -> list[Bin]:
    """The non-empty bins, the last one closed: mean confidence and how often it was right."""
    place = np.clip(np.searchsorted(edges, predicted, "right") - 1, 0, len(edges) - 2)
    return [
        Bin(edges[b], edges[b + 1], float(of.mean()), float(predicted[of].mean()), float(true[of].mean()))
        for b in range(len(edges) - 1)
        if (of := place == b).any()
    ]


def calibration_error(predicted: np.ndarray, true: np.ndarray, bins: int = 20) -> float:
    """ECE: mean distance of confidence and frequency over bins of equally many pairs."""
    order = np.argsort(predicted, kind="stable")
    return float(
        sum(abs(predicted[of].mean() - true[of].mean()) * len(of) for of in np.array_split(order, bins)) / len(order)
    )


def brier(predicted: np.ndarray, true: np.ndarray) -> float:
    """Mean squared distance of confidence and truth: it also rewards telling pairs apart."""
    return float(((predicted - true) ** 2).mean())


def auc(positive: np.ndarray, negative: np.ndarray) -> float:
    """The probability that a positive score is above a negative one, ties half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / (2 * len(negative)))


@dataclass(frozen=True)
class Asked:
    """Every pair outside the training log."""

    rank: np.ndarray
    """The exact rank #{≤} / (n_items + 1) of its score."""
    popularity: np.ndarray
    true_negative: np.ndarray
    ideal: np.ndarray
    """P(not liked | not observed), by the world itself."""
    train_auc: float
    """Mean over users: training items above the others. What α = "auto" follows."""
    truth_auc: float
    """Mean over users: among the others, liked above not liked. What α is said to be."""


def ask(world: Simulation, log: Interactions, scores: np.ndarray) -> Asked:
    n_users, n_items = scores.shape
    users, items = np.arange(n_users)[:, None], np.arange(n_items)
    seen = np.zeros(scores.shape, dtype=bool)
    seen[log.users, log.items] = True
    liked = world.truth(users, items)
    ordered = np.sort(scores, axis=1)
    rank = np.stack([np.searchsorted(o, s, "right") for o, s in zip(ordered, scores, strict=True)])
    ours, theirs = [], []
    for u in range(n_users):
        others = scores[u, ~seen[u]]
        hidden = liked[u, ~seen[u]]
        if seen[u].any():
            ours.append(auc(scores[u, seen[u]], others))
        if hidden.any() and not hidden.all():
            theirs.append(auc(others[hidden], others[~hidden]))
    popularity = np.broadcast_to(log.popularity, scores.shape)
    return Asked(
        rank=rank[~seen] / (n_items + 1),
        popularity=popularity[~seen],
        true_negative=~liked[~seen],
        ideal=world.true_negative_probability(users, items)[~seen],
        train_auc=float(np.mean(ours)),
        truth_auc=float(np.mean(theirs)),
    )


def confidence(asked: Asked, log: Interactions, alpha: float, beta: float) -> np.ndarray:
    """The sampler's own posterior for these pairs."""
    tau = prior(torch.from_numpy(log.popularity), beta).double().numpy()
    by_popularity = dict(zip(log.popularity.tolist(), tau.tolist(), strict=True))
    levels, where = np.unique(asked.popularity, return_inverse=True)
    spread = np.array([by_popularity[int(level)] for level in levels])[where]
    return posterior(torch.from_numpy(asked.rank), torch.from_numpy(spread), alpha).numpy()


def main() -> None:
    world = eh.simulate(500, 600, 20_000, uniform_test=0)
    split = world.split
    settings = eh.Settings(epochs=40, batch=512, lr=0.005, weight_decay=7e-5)
    fitted = train(split, eh.MF(dim=32), eh.AUCSampler(ecdf=64), 1, settings, device="cpu")
    user_vectors, item_vectors = (v[0].double().numpy() for v in fitted.vectors)
    log = split.train
    asked = ask(world, log, user_vectors @ item_vectors.T)
    true = asked.true_negative
    print(
        f"500 users × 600 items, {len(log):,} training pairs, {len(true):,} others, of which "
        f"{true.mean():.4f} are true negatives; epoch {fitted.epochs[0]}, "
        f"AUC of training items {asked.train_auc:.3f}, of hidden likes {asked.truth_auc:.3f}"
    )
    for name, guess in (("the world's own", asked.ideal), ("the base rate", np.full(len(true), true.mean()))):
        print(f"{name}: ECE {calibration_error(guess, true):.4f}, Brier {brier(guess, true):.4f}")
    print("ECE / Brier  " + "".join(f"β {beta:<16g}" for beta in BETAS))
    for alpha in ALPHAS:
        number = asked.train_auc if alpha == "auto" else float(alpha)
        shown = []
        for beta in BETAS:
            guess = confidence(asked, log, number, beta)
            shown.append(f"{calibration_error(guess, true):.4f} / {brier(guess, true):.4f}")
        print(f"α {alpha!s:10} " + "".join(f"{text:18}" for text in shown))
    for beta in (0.01, 0.025, 0.1):
        print(f"α 0.75, β {beta}: confidence, share of pairs, mean confidence, true negatives")
        for one in reliability(confidence(asked, log, 0.75, beta), true):
            print(f"  {one.low:.2f}–{one.high:.2f}  {one.share:.4f}  {one.predicted:.4f}  {one.observed:.4f}")
    print(f"true negatives by fifths of rank: {in_fifths(true, asked.rank)}")
    for exposure_bias in (0.0, 1.0, 2.0):
        other = eh.simulate(500, 600, 20_000, uniform_test=0, exposure_bias=exposure_bias)
        pairs = ask(other, other.log, np.zeros((500, 600)))
        print(
            f"exposure ∝ attractiveness^{exposure_bias:g}: true negatives by fifths of popularity "
            f"{in_fifths(pairs.true_negative, pairs.popularity)}"
        )


def in_fifths(true: np.ndarray, value: np.ndarray) -> str:
    """The frequency of true negatives, from the fifth with the smallest values to that with the largest."""
    fifths = np.array_split(np.argsort(value, kind="stable"), 5)
    return " ".join(f"{true[of].mean():.4f}" for of in fifths)


if __name__ == "__main__":
    main()
