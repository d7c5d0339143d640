"""Does the sampling rule pick the candidate whose descent most raises the expected partial AUC?

.venv/bin/python benchmarks/claims/theorem.py

One user with observed positives and unobserved items, random scores, and a posterior that is right by
construction: labels *are* drawn with it. The rise of the surrogate (mean of ln σ of positive minus negative)
is taken by lowering one score by a small ε, so that no derivative of the paper is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand.samplers.auc import gain, information, posterior, prior

EPSILON = 1e-5
GAMMAS = (1.0, 0.5, 0.1, 0.02)
WORLDS, CANDIDATES, DRAWS = 1000, 5, 40


@dataclass(frozen=True)
class World:
    """Scores of one user, and how probably each unobserved item is a true negative."""

    positives: Tensor
    """float64 [n⁺]: scores of the observed items."""
    unobserved: Tensor
    """float64 [n⁻]: scores of all others, false negatives among them."""
    true_negative: Tensor
    """float64 [n⁻]: P(TN|x)."""


def make_world(
    seed: int, n_positives: int = 20, n_unobserved: int = 200, alpha: float = 0.75, beta: float = 0.025
) -> World:
    """Normal scores, popularity by Zipf's law, and the posterior of these by the paper's formula."""
    g = torch.Generator().manual_seed(seed)
    unobserved = torch.randn(n_unobserved, generator=g, dtype=torch.float64)
    positives = torch.randn(n_positives, generator=g, dtype=torch.float64) + 1
    popularity = 1 / (1 + torch.randperm(n_unobserved, generator=g))
    rank = (unobserved <= unobserved.unsqueeze(1)).sum(1) / (n_unobserved + 1)
    return World(positives, unobserved, posterior(rank.double(), prior(popularity, beta).double(), alpha))


def top(scores: Tensor, gamma: float) -> Tensor:
    """𝒩: the ⌊γ·n⌋ highest scores, at least one."""
    return scores.sort(descending=True).values[: max(1, int(gamma * len(scores) + 1e-9))]


def surrogate(positives: Tensor, negatives: Tensor, gamma: float, mean: bool) -> float:
    """Σ over positives and the top-γ negatives of ln σ(difference), or the mean, as pAUC is defined."""
    among = top(negatives, gamma)
    total = torch.nn.functional.logsigmoid(positives.unsqueeze(1) - among).sum()
    return float(total / (len(positives) * len(among)) if mean else total)


def rise(world: World, x: int, gamma: float, mean: bool = False, false: Tensor | None = None) -> float:
    """E[surrogate after g(x) fell by ε] - E[before], per ε, over the label of x.

    As in the proof, the other unobserved items count as negatives; with `false` (bool [n⁻]) those marked
    there join the positives. If x itself is a false negative, it joins them too.
    """
    hidden = torch.zeros(len(world.unobserved), dtype=torch.bool) if false is None else false.clone()
    hidden[x] = False
    positives = torch.cat([world.positives, world.unobserved[hidden]])
    rest = ~hidden
    rest[x] = False
    negatives = world.unobserved[rest]

    def expected(score: Tensor) -> float:
        p = float(world.true_negative[x])
        if_true = surrogate(positives, torch.cat([negatives, score]), gamma, mean)
        if_false = surrogate(torch.cat([positives, score]), negatives, gamma, mean)
        return p * if_true + (1 - p) * if_false

    score = world.unobserved[x : x + 1]
    return (expected(score - EPSILON) - expected(score)) / EPSILON


def rises(world: World, candidates: Tensor, gamma: float, mean: bool = False) -> Tensor:
    return torch.tensor([rise(world, x, gamma, mean) for x in candidates.tolist()], dtype=torch.float64)


def rises_with_all_labels(world: World, candidates: Tensor, gamma: float, draws: int, seed: int) -> Tensor:
    """The rise of the mean when the labels of *all* unobserved items are drawn, averaged over the draws."""
    g = torch.Generator().manual_seed(seed)
    uniform = torch.rand(draws, len(world.unobserved), generator=g, dtype=torch.float64)
    false = uniform > world.true_negative
    found = [[rise(world, x, gamma, True, one) for x in candidates.tolist()] for one in false]
    return torch.tensor(found, dtype=torch.float64).mean(0)


Rule = Callable[[World, Tensor, float], Tensor]
Truth = Callable[[World, Tensor, float, int], Tensor]


def by_theorem(world: World, candidates: Tensor, gamma: float) -> Tensor:
    """The gain with Δ⁻ summed over the top-γ negatives, as the theorem says."""
    return _gain(world, candidates, top(world.unobserved, gamma), 1.0)


def by_release(world: World, candidates: Tensor, gamma: float) -> Tensor:
    """The gain with Δ⁻ summed over all negatives, times γ: the shortcut of the released code."""
    return _gain(world, candidates, world.unobserved, gamma)


def with_indicator(world: World, candidates: Tensor, gamma: float) -> Tensor:
    """The gain as the derivative has it: Δ⁺ counts only for a candidate that is itself among the top γ.

    Nor is the candidate one of the negatives that it is compared with.
    """
    gains = []
    for x in candidates.tolist():
        others = torch.cat([world.unobserved[:x], world.unobserved[x + 1 :]])
        inside = float(world.unobserved[x] >= top(world.unobserved, gamma)[-1])
        gains.append(_gain(world, torch.tensor([x]), top(others, gamma), 1.0, inside))
    return torch.cat(gains)


def _gain(world: World, candidates: Tensor, negatives: Tensor, factor: float, inside: float = 1.0) -> Tensor:
    x = world.unobserved[candidates].unsqueeze(1)
    up = len(world.positives) * information(world.positives - x) * inside
    down = factor * len(negatives) * information(x - negatives)
    return gain(world.true_negative[candidates], up, down)


RULES: dict[str, Rule] = {
    "as the theorem says": by_theorem,
    "as released": by_release,
    "with the indicator": with_indicator,
}


def compare(gamma: float, truth: Truth, worlds: int) -> dict[str, tuple[float, float]]:
    """For each rule: how often it misses the best of five candidates, and what it gives away.

    The latter is the mean of best minus chosen rise, over the mean of best minus average rise of the five:
    0 is always right, 1 is as good as choosing blindly.
    """
    missed: dict[str, list[bool]] = {name: [] for name in RULES}
    lost: dict[str, list[float]] = {name: [] for name in RULES}
    blind = []
    for seed in range(worlds):
        world = make_world(seed)
        g = torch.Generator().manual_seed(10**6 + seed)
        candidates = torch.randperm(len(world.unobserved), generator=g)[:CANDIDATES]
        true = truth(world, candidates, gamma, seed)
        blind.append(float(true.max() - true.mean()))
        for name, rule in RULES.items():
            chosen = int(rule(world, candidates, gamma).argmax())
            missed[name].append(chosen != int(true.argmax()))
            lost[name].append(float(true.max() - true[chosen]))
    return {name: (float(np.mean(missed[name])), float(np.sum(lost[name]) / np.sum(blind))) for name in RULES}


TRUTHS: dict[str, tuple[Truth, int]] = {
    "sum, x's label": (lambda w, c, gamma, _: rises(w, c, gamma), WORLDS),
    "mean, x's label": (lambda w, c, gamma, _: rises(w, c, gamma, mean=True), WORLDS),
    "mean, all labels": (lambda w, c, gamma, seed: rises_with_all_labels(w, c, gamma, DRAWS, seed), 100),
}


def main() -> None:
    sure = np.mean([float(make_world(seed).true_negative.mean()) for seed in range(WORLDS)])
    print(f"worlds of 20 positives and 200 unobserved items, mean P(TN) {sure:.3f}; missed / given away")
    for gamma in GAMMAS:
        found = {name: compare(gamma, *how) for name, how in TRUTHS.items()}
        for rule in RULES:
            shown = "   ".join(f"{name}: {a[rule][0]:.3f} / {a[rule][1]:.3f}" for name, a in found.items())
            print(f"γ = {gamma:<5g} {rule:20} {shown}")


if __name__ == "__main__":
    main()
