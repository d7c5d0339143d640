# mypy: disable-error-code="no-untyped-def"
"""Which item becomes the negative, compiled: one parallel pass over a batch for each kind of sampler.

Twins of the samplers' `choose`; the formulas stand in `evenhand.samplers`. The body of a parallel trainer only
calls functions: numba loses what it would write itself into an array that came in a tuple.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange
from numba.np.ufunc.parallel import get_thread_id

from evenhand.samplers.auc import AVERAGE
from evenhand.training.engines.draws import (
    fetch,
    free_item,
    free_item_by_weight,
    free_items,
    group_and_place,
    pool_items,
    scaled,
    uniform,
)
from evenhand.utils.compiled import compiled

BLOCK = 4
"""Positives whose ranks are found together: their users share each look at the items."""
LINE = 16
"""Numbers that come from memory together."""
_LARGEST = 300.0
"""Scores beyond this are cut before exp; σ has long been 0 or 1 there."""

FAST = {"contract", "reassoc", "nsz", "arcp", "afn"}
"""Sums may be reordered and fused; nan and inf keep their meaning."""


class Weighted(NamedTuple):
    """A distribution over unobserved items with a weight each (PNS); empty sums mean that all are alike (RNS)."""

    indptr: np.ndarray
    items: np.ndarray
    mass: np.ndarray
    """int64 [n_users]: the weight that is left to each user."""
    before_item: np.ndarray
    """int64 [n_items + 1]: weight of all items before."""
    before_pair: np.ndarray
    """int64 [n_pairs + 1]: weight of all pairs before."""


class Grouped(NamedTuple):
    """A distribution that first picks a group (FairStatic); rows are in the order of the groups."""

    indptr: np.ndarray
    items: np.ndarray
    choice: np.ndarray
    """float64 [n_users, G]: running share of the groups with something left."""
    begin: np.ndarray
    """int64 [n_users, G]: where a group's unobserved items begin."""
    left: np.ndarray
    """int64 [n_users, G]: how many of them there are."""
    item_at: np.ndarray
    """int64 [n_items]: the item at each place of that order."""


class Pool(NamedTuple):
    """A uniform distribution of which several candidates are drawn, the highest score wins (DNS)."""

    indptr: np.ndarray
    items: np.ndarray
    mass: np.ndarray
    candidates: int


class Optimal(NamedTuple):
    """A uniform distribution of which the candidate with the largest gain wins (AUC-NS)."""

    indptr: np.ndarray
    items: np.ndarray
    mass: np.ndarray
    candidates: int
    probes: int
    draws: int
    """Draws that a rank rests on; 0 for the exact one."""
    alpha: np.ndarray
    """float32 [R]: the running macro-AUC where it is automatic."""
    auto: np.ndarray
    """bool [R]"""
    gamma: np.ndarray
    """float64 [R]"""
    prior: np.ndarray
    """float32 [R, n_items, 1]: τ⁻ of every item, shaped like a table of vectors."""
    beside: np.ndarray
    """float32 [R, d, n]: vectors of the items that ranks rest on (all, or those drawn), side by side."""
    drawn: np.ndarray
    """int64 [R, draws]: which items were drawn."""
    pool: np.ndarray
    """int64 [R, pool]: the items that candidates and probes are drawn of, of which `drawn` are the first, or empty."""
    everything: np.ndarray
    """float32 [threads, BLOCK, n]: scores of a block's users with them."""
    vectors: np.ndarray
    """float32 [threads, BLOCK, d]"""
    seen: np.ndarray
    """int64 [threads, BLOCK, width]: candidates, negative probes, positive probes."""
    base: np.ndarray
    """int64 [threads, width]: where their searches stand."""
    grown: np.ndarray
    """float64 [threads, width]: exp of their scores."""
    won: np.ndarray
    """float64 [R, B]: of a positive's pairs of probes, how many the model has in order."""


@compiled(error_model="numpy", fastmath=FAST, forceinline=True)
def dot(users, user, items, item, r):
    total = np.float32(0)
    for k in range(users.shape[2]):
        total += users[r, user, k] * items[r, item, k]
    return total


@compiled(error_model="numpy", parallel=True)
def choose_weighted(tables, size, begin, step, order, own, shared, of, users, items, negatives):
    for task in prange(order.shape[0] * size):
        r, b = task // size, task % size
        user = of[order[r, begin + b]]
        place = scaled(uniform(own[r, step], b), tables.mass[user])
        if len(tables.before_item):
            negatives[r, b] = free_item_by_weight(
                tables.indptr, tables.items, tables.before_item, tables.before_pair, user, place
            )
        else:
            negatives[r, b] = free_item(tables.indptr, tables.items, user, place)


@compiled(error_model="numpy", parallel=True)
def choose_grouped(tables, size, begin, step, order, own, shared, of, users, items, negatives):
    for task in prange(order.shape[0] * size):
        r, b = task // size, task % size
        user = of[order[r, begin + b]]
        which, where = uniform(own[r, step], 2 * b), uniform(own[r, step], 2 * b + 1)
        place = group_and_place(tables.choice, tables.begin, tables.left, user, which, where)
        negatives[r, b] = tables.item_at[free_item(tables.indptr, tables.items, user, place)]


@compiled(error_model="numpy", parallel=True, fastmath=FAST)
def choose_highest(tables, size, begin, step, order, own, shared, of, users, items, negatives):
    for task in prange(order.shape[0] * size):
        r, b = task // size, task % size
        user = of[order[r, begin + b]]
        best, value = np.int64(-1), np.float32(0)
        for m in range(tables.candidates):
            place = scaled(uniform(own[r, step], b * tables.candidates + m), tables.mass[user])
            item = free_item(tables.indptr, tables.items, user, place)
            score = dot(users, user, items, item, r)
            if best < 0 or score > value:
                best, value = item, score
        negatives[r, b] = best


@compiled(error_model="numpy", parallel=True, fastmath=FAST)
def choose_optimal(tables, size, begin, step, order, own, shared, of, users, items, negatives):
    replicas, n = order.shape[0], tables.beside.shape[2]
    for task in prange(replicas * n if tables.draws == 0 else replicas):
        if tables.draws == 0:
            put_beside(tables.beside, items, task // n, task % n, task % n)
        else:
            _share_sample(tables.beside, tables.drawn, tables.pool, items, task, shared[task, step])
    blocks = (size + BLOCK - 1) // BLOCK
    for task in prange(replicas * blocks):
        _choose_block(
            task // blocks, (task % blocks) * BLOCK, get_thread_id(), size, begin, order, of, users, items,
            negatives, own[task // blocks, step], tables.indptr, tables.items, tables.mass, tables.candidates,
            tables.probes, tables.draws, tables.alpha, tables.gamma, tables.prior, tables.beside, tables.drawn,
            tables.everything, tables.vectors, tables.seen, tables.base, tables.grown, tables.won, tables.pool,
        )  # fmt: skip
    _follow(tables.alpha, tables.auto, tables.won, size, tables.probes)


@compiled(error_model="numpy")
def _follow(alpha, auto, won, size, probes):
    """Let the running macro-AUC take note of a batch's probes, where α is automatic."""
    for r in range(len(alpha)):
        if auto[r]:
            total = 0.0
            for b in range(size):
                total += won[r, b]
            alpha[r] = AVERAGE * alpha[r] + (1 - AVERAGE) * total / (size * probes)


@compiled(error_model="numpy")
def _share_sample(beside, drawn, pool, items, r, key):
    """The uniform draws that a batch shares: its pool, and those that ranks rest on."""
    for j in range(pool.shape[1]):
        pool[r, j] = scaled(uniform(key, j), items.shape[1])
    for j in range(drawn.shape[1]):
        drawn[r, j] = scaled(uniform(key, j), items.shape[1])
        put_beside(beside, items, r, drawn[r, j], j)


@compiled(error_model="numpy", fastmath=FAST)
def _choose_block(
    r, first, at, size, begin, order, of, users, items, negatives, key, indptr, own_items, mass, m, p, draws, alpha,
    gamma, prior, beside, drawn, everything, vectors, seen, base, grown, won, pool,
):  # fmt: skip
    """The negatives of a block of positives of replica r, in the working space of thread `at`."""
    width = m + 2 * p
    for lane in range(BLOCK):
        b = min(first + lane, size - 1)
        user = of[order[r, begin + b]]
        for k in range(users.shape[2]):
            vectors[at, lane, k] = users[r, user, k]
        look_at(indptr, own_items, mass[user], m, p, user, key, b * width, pool, r, seen, base, at, lane)
        if draws:
            for j in range(m):
                fetch(prior, r, seen[at, lane, j], 0)
            for j in range(width):
                for k in range(0, users.shape[2], LINE):
                    fetch(items, r, seen[at, lane, j], k)
    decide_block(
        r, first, at, size, begin, order, of, users, items, negatives, indptr, mass, m, p, draws, alpha, gamma, prior,
        beside, drawn, everything, vectors, seen, grown, won,
    )  # fmt: skip


@compiled(error_model="numpy", fastmath=FAST, forceinline=True)
def decide_block(
    r, first, at, size, begin, order, of, users, items, negatives, indptr, mass, m, p, draws, alpha, gamma, prior,
    beside, drawn, everything, vectors, seen, grown, won,
):  # fmt: skip
    """The negatives of a block, of what its positives look at in `seen`."""
    width = m + 2 * p
    _score_block(vectors, beside, everything, r, at)
    for lane in range(min(BLOCK, size - first)):
        user = of[order[r, begin + first + lane]]
        for j in range(width):
            item = seen[at, lane, j]
            grown[at, j] = dot(users, user, items, item, r) if draws else everything[at, lane, item]
        won[r, first + lane] = 0
        for q in range(m, m + p):
            above, level = grown[at, q + p] > grown[at, q], grown[at, q + p] == grown[at, q]
            won[r, first + lane] += 1.0 if above else 0.5 if level else 0.0
        observed = indptr[user + 1] - indptr[user]
        trust = np.float64(min(max(alpha[r], np.float32(0.5)), np.float32(1)))
        negatives[r, first + lane] = _most_gained(
            m, p, draws, trust, gamma[r] * mass[user], observed, prior, drawn, everything, seen, grown, r,
            at, lane,
        )  # fmt: skip


@compiled(error_model="numpy")
def put_beside(beside, items, r, item, j):
    for k in range(items.shape[2]):
        beside[r, k, j] = items[r, item, k]


@compiled(error_model="numpy", forceinline=True)
def look_at(indptr, items, mass, m, p, user, key, first, pool, r, seen, base, at, lane):
    """Draw what AUC-NS looks at: candidates, negative probes, positive probes."""
    if pool.shape[1]:
        pool_items(indptr, items, user, mass, key, first, m + p, pool, r, seen, at, lane)
    else:
        free_items(indptr, items, user, mass, key, first, m + p, seen, base, at, lane)
    start = indptr[user]
    size = indptr[user + 1] - start
    for j in range(m + p, m + 2 * p):
        seen[at, lane, j] = items[start + scaled(uniform(key, first + j), size)]


@compiled(error_model="numpy", fastmath=FAST)
def _score_block(vectors, beside, everything, r, at):
    """everything[at, lane, j]: the score of each of a block's four users with each item beside the others."""
    dim, n = beside.shape[1], beside.shape[2]
    for lane in range(BLOCK):
        for j in range(n):
            everything[at, lane, j] = 0
    for k in range(0, dim - dim % 2, 2):
        a0, b0, c0, d0 = (vectors[at, 0, k], vectors[at, 1, k], vectors[at, 2, k], vectors[at, 3, k])
        a1, b1, c1, d1 = (
            vectors[at, 0, k + 1], vectors[at, 1, k + 1], vectors[at, 2, k + 1], vectors[at, 3, k + 1]
        )  # fmt: skip
        for j in range(n):
            x, y = beside[r, k, j], beside[r, k + 1, j]
            everything[at, 0, j] += a0 * x + a1 * y
            everything[at, 1, j] += b0 * x + b1 * y
            everything[at, 2, j] += c0 * x + c1 * y
            everything[at, 3, j] += d0 * x + d1 * y
    if dim % 2:
        for lane in range(BLOCK):
            weight = vectors[at, lane, dim - 1]
            for j in range(n):
                everything[at, lane, j] += weight * beside[r, dim - 1, j]


@compiled(error_model="numpy", fastmath=FAST, forceinline=True)
def _most_gained(m, p, draws, alpha, harm, observed, prior, drawn, everything, seen, grown, r, at, lane):
    """The candidate with the largest Δ⁺·P(TN|x) - Δ⁻·P(FN|x); `grown` holds the scores, and later their exp.

    σ(x - p) = eˣ / (eˣ + eᵖ), so each score is exponentiated once; in float64 nothing overflows.
    """
    n = everything.shape[2]
    for j in range(m, m + 2 * p):
        grown[at, j] = math.exp(min(max(grown[at, j], -_LARGEST), _LARGEST))
    best, value = 0, -np.inf
    for j in range(m):
        item, score = seen[at, lane, j], np.float32(grown[at, j])
        below = np.int32(0)
        for i in range(n):
            below += np.int32(everything[at, lane, i] <= score)
        if draws == 0:
            rank = below / (n + 1.0)
        else:
            for i in range(n):  # an item ties with itself, however the two scores were rounded
                below += np.int32((drawn[r, i] == item) & (everything[at, lane, i] > score))
            rank = (1.0 + below) / (n + 2.0)
        x = math.exp(min(max(grown[at, j], -_LARGEST), _LARGEST))
        rise, fall = 0.0, 0.0
        for q in range(p):
            rise += x / (x + grown[at, m + p + q])
        for q in range(p):
            fall += grown[at, m + q] / (x + grown[at, m + q])
        tau = np.float64(prior[r, item, 0])
        true = (alpha * (1 - rank) + (1 - alpha) * rank) * tau
        false = ((1 - alpha) * (1 - rank) + alpha * rank) * (1 - tau)
        free = true / (true + false)
        gain = observed * (rise / p) * free - harm * (fall / p) * (1 - free)
        if gain > value:
            best, value = j, gain
    return seen[at, lane, best]
