"""The three ways to re-rank, each with one parameter: its strength λ between 0 (the list as it came) and 1.

A method takes a block of lists and says which candidates to show, in order. Equal values always go to the
candidate that stood higher before; values are rounded first, so that the last bit does not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.models.rerank.popularity_mix import Block, Grouped

DIGITS = 12

Pick = Callable[[Block, float, int], np.ndarray]
"""(block, strength, k) → int64 [n, k]: places in the candidate lists, -1 where a list has no more."""
Gain = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(how many of each group are picked [n, G], the user's mix [n, G]) → what one more of each is worth."""


@dataclass(frozen=True)
class Method:
    """A way to re-rank."""

    pick: Pick
    strength: float
    """The strength without a choice on validation."""
    says: str
    """What it does, in a sentence."""


def calibrated(block: Block, strength: float, k: int) -> np.ndarray:
    """Calibrated popularity (Abdollahpouri et al. 2021, after Steck 2018): the list's mix follows the user's.

    Greedily maximises (1 - λ) Σ relevance - λ JS(history mix, list mix) over head, mid and tail.
    """
    return _greedy(block, block.tiers, strength, k, _closeness)


def xquad(block: Block, strength: float, k: int) -> np.ndarray:
    """Long-tail coverage (Abdollahpouri, Burke & Mobasher 2019), the smooth form.

    Greedily takes the best (1 - λ) relevance + λ P(c | u) (1 - share of c in the list so far), where c,
    hot or cold, is the candidate's side.
    """
    return _greedy(block, block.sides, strength, k, _smooth_need)


def xquad_binary(block: Block, strength: float, k: int) -> np.ndarray:
    """`xquad` in its binary form: a side that has one item in the list needs no more."""
    return _greedy(block, block.sides, strength, k, _binary_need)


def compensated(block: Block, strength: float, k: int) -> np.ndarray:
    """A plain handicap for popularity: the highest (1 - λ) z(score) - λ z(log(1 + train count)).

    z is taken over the candidates of the list; it is 0 where they are all alike. Our own definition.
    """
    value = (1 - strength) * _standardised(block.relevance, block.filled)
    value -= strength * _standardised(np.log1p(block.counts), block.filled)
    value = np.where(block.filled, np.round(value, DIGITS), -np.inf)
    order = np.argsort(-value, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(block.filled, order, axis=1), order, -1)


METHODS: dict[str, Method] = {
    "calibrated": Method(calibrated, 0.1, "The list's mix of head, mid and tail follows the user's history."),
    "xquad": Method(xquad, 0.3, "Cold items enter as the user's history asks for them."),
    "xquad-binary": Method(xquad_binary, 0.3, "The same, but one cold item in the list is enough."),
    "compensated": Method(compensated, 0.05, "Scores lose a handicap that grows with popularity."),
}


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The Jensen-Shannon divergence of distributions along the last axis, in bits: 0 (the same) to 1.

    >>> divergence(np.array([1.0, 0.0]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    array([1., 0.])
    """
    return _bits((p + q) / 2) - (_bits(p) + _bits(q)) / 2


def _bits(p: np.ndarray) -> np.ndarray:
    """The entropy along the last axis."""
    return -(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(-1)


def _closeness(picked: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """How near the list's mix would come to the user's with one more of each group: minus the divergence."""
    n_groups = mix.shape[1]
    after = picked[:, None, :] + np.eye(n_groups)
    return -divergence(mix[:, None, :], after / after.sum(-1, keepdims=True))


def _smooth_need(picked: np.ndarray, mix: np.ndarray) -> np.ndarray:
    return mix * (1 - picked / np.maximum(picked.sum(1, keepdims=True), 1))


def _binary_need(picked: np.ndarray, mix: np.ndarray) -> np.ndarray:
    return mix * (picked == 0)


def _greedy(block: Block, grouped: Grouped, strength: float, k: int, gain: Gain) -> np.ndarray:
    """k times the candidate with the highest (1 - λ) relevance + λ gain of its group.

    Within a group the gain is one for all, so the next of a group is always its highest remaining candidate
    and only one candidate a group has to be compared.
    """
    groups, mixes = grouped.groups, grouped.mixes
    n, width = groups.shape
    n_groups = mixes.shape[1]
    row = np.arange(n)
    # Candidates sorted by group, in their old order within one; what fills a short list up comes last.
    queue = np.argsort(np.where(block.filled, groups, n_groups), axis=1, kind="stable")
    sizes = np.stack([((groups == g) & block.filled).sum(1) for g in range(n_groups)], axis=1)
    first = np.cumsum(sizes, axis=1) - sizes
    picked = np.zeros((n, n_groups), dtype=np.int64)
    chosen = np.full((n, min(k, width)), -1, dtype=np.int64)
    for position in range(chosen.shape[1]):
        head = queue[row[:, None], np.minimum(first + picked, width - 1)]
        value = (1 - strength) * block.relevance[row[:, None], head] + strength * gain(picked, mixes)
        value = np.where(picked < sizes, np.round(value, DIGITS), -np.inf)
        best = value.max(1, keepdims=True)
        group = np.where(value == best, head, width).argmin(1)
        left = np.isfinite(best[:, 0])
        chosen[left, position] = head[left, group[left]]
        picked[row, group] += left
    return chosen


def _standardised(values: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """Each row with mean 0 and standard deviation 1 over its filled cells; 0 where they are all equal."""
    n = filled.sum(1, keepdims=True)
    away = values - np.sum(values, axis=1, keepdims=True, where=filled) / n
    spread = np.sqrt(np.sum(away**2, axis=1, keepdims=True, where=filled) / n)
    low = np.min(values, axis=1, keepdims=True, where=filled, initial=np.inf)
    high = np.max(values, axis=1, keepdims=True, where=filled, initial=-np.inf)
    return np.divide(away, spread, out=np.zeros_like(away), where=(high > low) & (spread > 0))
