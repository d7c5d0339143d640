"""What the fused steps look up: tables, the distribution of the draws, the rule of the choice, and tile sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from evenhand.samplers.auc import AUCBound
from evenhand.samplers.base import BoundSampler
from evenhand.samplers.dynamic import DynamicBound
from evenhand.samplers.static import GroupBound, StaticBound

if TYPE_CHECKING:
    from evenhand.data.interactions import Interactions


LOSS_UNIT = 2.0**30
"""Parts of 1 that losses of several processes are counted in, as in `sharded_steps`."""
LAST = 20_000
"""From this number of steps on, Adam's bias corrections are 1 in float32."""


class Distribution(NamedTuple):
    """What a draw may look up, on the device; what a kind of distribution does not need is None."""

    kind: Literal["uniform", "weighted", "grouped"]
    indptr: Tensor
    """int64 [n_users + 1]: rows of the users' own items, in the distribution's order of the items."""
    items: Tensor
    """int32 [n_pairs], ascending within a row; places in the order of the groups where it is grouped."""
    mass: Tensor | None = None
    """int64 [n_users]: the weight that is left to each user; weighted only, as are the next two."""
    before_item: Tensor | None = None
    """int64 [n_items + 1]: weight of all items before."""
    before_pair: Tensor | None = None
    """int64 [n_pairs + 1]: weight of all pairs before."""
    choice: Tensor | None = None
    """float64 [n_users, G]: running share of the groups with something left; grouped only, as the rest."""
    begin: Tensor | None = None
    """int64 [n_users, G]: where a group's unobserved items begin."""
    left: Tensor | None = None
    """int64 [n_users, G]: how many of them there are."""
    item_at: Tensor | None = None
    """int64 [n_items]: the item at each place of the distribution's order."""


class Rule(NamedTuple):
    """How one of the drawn items is chosen: as drawn, by score (DNS), or by AUC-NS.

    The last two need a uniform distribution.
    """

    kind: Literal["fixed", "hardest", "auc"] = "fixed"
    candidates: int = 1
    probes: int = 0
    draws: int = 0
    """Draws that a rank rests on; 0 is the rank among all items. AUC-NS only, as is the rest."""
    alpha: Tensor | None = None
    """float32 [R]"""
    gamma: Tensor | None = None
    """float32 [R]"""
    prior: Tensor | None = None
    """float32 [R, n_items]"""


class Table(NamedTuple):
    """One table with Adam's memory of it; changed in place."""

    rows: Tensor
    """float32 [R, n, d]"""
    mean: Tensor
    square: Tensor
    clock: Tensor | None = None
    """int32 [R, n]: how often each row moved; given, only the rows that a batch touches move."""


class Ranks(NamedTuple):
    """How processes share a batch: each learns from its own users' positives, and item rows lie on all of them."""

    size: int
    pairs: int
    """Of all of them."""
    lanes: int
    """The most positives of a batch that any of them has."""
    gather: Callable[[Tensor, Tensor], None] | None
    """Puts what each of them says [...] side by side [size, ...]; None where one asks nobody."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the first kernel's tiles. They follow from the model and the rule alone, never from R."""

    positives: int
    """Positives a program."""
    part: int
    """Vectors of a positive that are looked at together."""
    chunk: int
    """Items of the catalogue, or shared draws, that are scored together."""
    warps: int
    registers: int | None = None
    """The most that a thread may use; fewer let more programs run side by side."""


def shape_for(dim: int, rule: Rule) -> Shape:
    """What measured fastest on an H200: small programs, so that many wait for memory side by side.

    Ranks among all items are a matrix product; it wants several warps and a wide stretch of the catalogue.
    """
    if rule.kind == "fixed":
        return Shape(positives=16, part=1, chunk=16, warps=4)
    width, length = power(rule.candidates + 2 * rule.probes), padded(dim)
    if rule.kind == "auc" and not rule.draws:
        positives = max(1, min(4, 1024 // width))
        part = max(1, min(width, 8192 // (positives * length)))
        return Shape(positives, part, chunk=max(16, min(128, 8192 // length)), warps=4)
    positives = max(1, min(4, 256 // width))
    part = max(1, min(width, 1024 // (positives * length)))
    return Shape(positives, part, chunk=16, warps=max(1, length // 128))


def distribution_and_rule(sampler: BoundSampler, train: Interactions) -> tuple[Distribution, Rule]:
    """What a bound sampler of the paper's does, as tables; it must be bound for all replicas at once."""
    rows = sampler.regrouped if isinstance(sampler, GroupBound) else train
    indptr, items = (torch.from_numpy(array).to(sampler.device) for array in (rows.indptr, rows.items))
    if isinstance(sampler, GroupBound):
        tables = (sampler.choice, sampler.begin, sampler.left, sampler.item_at)
        return Distribution("grouped", indptr, items, None, None, None, *tables), Rule()
    if isinstance(sampler, StaticBound) and sampler.distribution.before_item is not None:
        drawn = sampler.distribution
        return Distribution("weighted", indptr, items, drawn.mass, drawn.before_item, drawn.before_pair), Rule()
    distribution = Distribution("uniform", indptr, items)
    if isinstance(sampler, DynamicBound):
        return distribution, Rule("hardest", sampler.candidates)
    if isinstance(sampler, AUCBound):
        numbers = (sampler.alpha, sampler.gamma.flatten(), sampler.prior)
        return distribution, Rule("auc", sampler.candidates, sampler.probes, sampler.draws, *numbers)
    assert isinstance(sampler, StaticBound)
    return distribution, Rule()


def gaps(distribution: Distribution) -> Tensor:
    """What the search in a user's row compares with: item indices, or the weight left before each of them."""
    if distribution.before_item is None or distribution.before_pair is None:
        return distribution.items
    start = torch.repeat_interleave(distribution.indptr[:-1], distribution.indptr.diff())
    return distribution.before_item[distribution.items.long()] - (
        distribution.before_pair[:-1] - distribution.before_pair[start]
    )


def corrections(beta: float, root: float) -> Tensor:
    """float32: what undoes Adam's bias after 0, 1, 2… steps; the first is never used."""
    past = torch.arange(LAST + 1, dtype=torch.float64).clamp_min(1)
    return ((1 - beta**past) ** -root).float()


def message_length(dim: int) -> int:
    """Numbers that one positive says to all processes: its user's row and five more, to a multiple of 16 bytes."""
    return -(-(dim + 5) // 4) * 4


def power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def padded(dim: int) -> int:
    """The length of vectors in a matrix product, which takes at least 16."""
    return max(16, power(dim))
