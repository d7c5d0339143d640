"""What training over several processes sends, said before it starts.

The rows of a step are counted by expectation: an item is asked for once by each rank that meets it, however often; how
often it is met follows from its popularity and from what samplers draw uniformly. So bytes fall where items repeat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.objectives import SLatK
from evenhand.objectives.softmax_relatives import PAIRS_AT_ONCE, USERS_AT_ONCE
from evenhand.samplers import AUCSampler, DynamicSampler
from evenhand.training.engines.fused_tables import message_length
from evenhand.training.memory_estimate import Work

FEWEST = 8192
"""Positives of a rank and step below which ranks mostly wait for each other."""
_FLOAT, _INDEX, _WHOLE = 4, 4, 8


@dataclass(frozen=True)
class Wire:
    """The traffic of one rank, per positive of its own."""

    positives: float
    rows: float
    """Item rows that it asks for."""
    bytes: float
    """Bytes that it sends: what it asks, the rows it answers with, and gradients."""


def wire_of(work: Work, popularity: np.ndarray) -> Wire:
    """The traffic of training over `work.ranks` processes; `popularity` [n_items] counts the pairs of all."""
    own = min(work.settings.batch, work.pairs) / work.ranks
    if work.engine == "triton-ranks":  # what a positive says goes to all others
        return Wire(own, 0, work.seeds * (work.ranks - 1) * message_length(work.encoder.dim) * _FLOAT)
    share = popularity / max(1, popularity.sum())
    positive = own * share
    uniform, shared, known = _looked_at(work)
    asked = _distinct(positive * (1 + known) + _drawn(own * uniform, work)[0] + shared / work.n_items)
    chosen, once_chosen = _drawn(own if uniform else 0.0, work)
    back = positive + chosen  # positives, and the negatives that were chosen
    once = float((np.exp(-back) * (positive + once_chosen)).sum())
    several = _distinct(back) - once
    dim = work.encoder.dim
    sent = asked * (_INDEX + dim * _FLOAT) + once * (_INDEX + dim * _FLOAT)
    sent += several * (2 * _INDEX + dim * _WHOLE)
    if work.objective.shares_negatives:
        sent += _distinct(np.full(work.n_items, shared / work.n_items)) * dim * _WHOLE
    renewed = _renewed(work, share)
    rows, sent = asked / own + renewed, sent / own + renewed * (_INDEX + dim * _FLOAT)
    abroad = 1 - 1 / work.ranks  # the rest stays where it is
    return Wire(own, work.seeds * rows, work.seeds * abroad * sent)


def _renewed(work: Work, share: np.ndarray) -> float:
    """Item rows a positive, on average over epochs, from which SL@K renews β by blocks of users now and then."""
    of = work.objective
    if not isinstance(of, SLatK) or of.k >= work.n_items:
        return 0
    mine = work.pairs / work.ranks
    block = min(mine, PAIRS_AT_ONCE, USERS_AT_ONCE * work.pairs / work.n_users)
    return (_distinct(block * share) / block + of.shared / mine) / of.refresh


def _looked_at(work: Work) -> tuple[float, float, float]:
    """Items that a positive looks at, drawn uniformly; those that a batch shares; those among the user's own."""
    sampler = work.sampler
    if work.objective.shares_negatives:
        return 0, work.negatives, 0
    if isinstance(sampler, AUCSampler):
        return sampler.candidates + sampler.probes, work.draws or 0, sampler.probes
    return (sampler.candidates if isinstance(sampler, DynamicSampler) else 1), 0, 0


def _drawn(n: float, work: Work) -> tuple[float, float]:
    """Of n uniform draws: -log of the chance that an item is not among them, and that chance's ratio to once.

    Of a pool, an item is drawn only where it has a place in it, and then as often as the places are drawn.
    """
    each, pool = n / work.n_items, getattr(work.sampler, "pool", None)
    if not pool:
        return each, each
    return pool / work.n_items * -float(np.expm1(-n / pool)), each * float(np.exp(-n / pool))


def _distinct(expected: np.ndarray) -> float:
    """How many items are met at all, where each is met so often on average."""
    return float(-np.expm1(-expected).sum())
