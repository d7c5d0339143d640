# mypy: disable-error-code="no-untyped-def"
"""The closed-form gradient of BPR over two tables, with or without weights of the positives, and Adam, compiled.

A step has parallel passes: every positive finds its negative (`choices`) and its slope; every row of the batch
gathers its gradient, always in the order of the batch; every row moves. So a run gives the same bits on any
number of threads and beside any replicas.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import prange

from evenhand.training.engines.choices import FAST, LINE, dot
from evenhand.training.engines.draws import fetch, holds
from evenhand.utils.compiled import compiled

_ROWS = 64
"""Rows of a table that are moved as one task."""
_AHEAD = 4
"""How many rows before its turn a row is prefetched."""


class Pairs(NamedTuple):
    """What is trained on, and what the choices depend on."""

    users: np.ndarray
    """int64 [N]: the user and the item of each pair."""
    items: np.ndarray
    hot: np.ndarray
    """bool [n_items]"""
    held: np.ndarray
    """int64 [n_users + 1]: rows of held-out items in `held_items`; all empty where nothing is held out."""
    held_items: np.ndarray
    weights: np.ndarray
    """float32 [n_items]: how much a positive counts; 1 in plain BPR."""


class Table(NamedTuple):
    """One side of the model with Adam's memory of it."""

    rows: np.ndarray
    """float32 [R, n, d]"""
    mean: np.ndarray
    square: np.ndarray
    clock: np.ndarray
    """int32 [R, n]: how often each row moved; empty where every row moves at every step."""
    slot: np.ndarray
    """int32 [R, n]: where in `gradient` the row's gradient lies in this step, or -1."""
    gradient: np.ndarray
    """float32 [R, most touched rows, d]"""
    touched: np.ndarray
    """int32 [R, most touched rows]: the row of each slot."""
    times: np.ndarray
    """float32 [R, most touched rows]: how often the batch drew it; shared negatives count by share."""


class Moves(NamedTuple):
    """Adam's numbers, each replica's own."""

    lr: np.ndarray
    decay: np.ndarray
    l2: np.ndarray
    first: np.ndarray
    """float64 [t]: 1 / (1 - 0.9ᵗ), by which the mean of t gradients is corrected."""
    second: np.ndarray
    """float64 [t]: 1 / √(1 - 0.999ᵗ), likewise for the root of the square; both are 1 beyond their end."""


class Bench(NamedTuple):
    """Room to work in."""

    negatives: np.ndarray
    """int64 [R, B]"""
    slopes: np.ndarray
    """float32 [R, B]: ∂loss / ∂(s⁻ - s⁺) of each positive."""
    losses: np.ndarray
    """float64 [R, B]"""
    used: np.ndarray
    """int64 [2, R]: how many rows of each table the batch holds."""


@compiled(error_model="numpy", parallel=True)
def learn(size, begin, parts, order, pairs, users, items, moves, bench, tally, step):
    """One step from the negatives on the bench; `tally` [3, R] gathers loss, hot and false share."""
    replicas = order.shape[0]
    for task in prange(replicas * size):
        _slope(
            task // size, task % size, size, begin, order, pairs.users, pairs.items, pairs.weights, bench.negatives,
            users.rows, items.rows, bench.losses, bench.slopes,
        )  # fmt: skip
    for r in range(replicas):
        _sum_up(
            r, size, begin, order, pairs.users, pairs.items, pairs.hot, pairs.held, pairs.held_items,
            bench.negatives, bench.losses, users.slot, users.touched, users.times, items.slot, items.touched,
            items.times, bench.used, tally,
        )  # fmt: skip
    for task in prange(replicas * parts):
        _gather(
            task // parts, task % parts, parts, size, begin, order, pairs.users, pairs.items, bench.negatives,
            bench.slopes, bench.used, users.rows, users.slot, users.gradient, items.rows, items.slot,
            items.gradient,
        )  # fmt: skip
    move_tables(size, users, items, moves, bench.used, step)


@compiled(error_model="numpy", parallel=True)
def move_tables(size, users, items, moves, used, step):
    """Adam on both tables, from the gradients of a batch's rows."""
    replicas, lazy = used.shape[1], users.clock.size > 0
    mine = _stretches(used, 0, lazy, users.rows.shape[1])
    stretches = mine + _stretches(used, 1, lazy, items.rows.shape[1])
    for task in prange(replicas * stretches):
        r, stretch = task // stretches, task % stretches
        if stretch < mine:
            _move_stretch(
                r, stretch * _ROWS, used[0, r], lazy, step, size, users.rows, users.mean, users.square,
                users.clock, users.slot, users.gradient, users.touched, users.times, moves,
            )  # fmt: skip
        else:
            _move_stretch(
                r, (stretch - mine) * _ROWS, used[1, r], lazy, step, size, items.rows, items.mean,
                items.square, items.clock, items.slot, items.gradient, items.touched, items.times, moves,
            )  # fmt: skip


@compiled(error_model="numpy")
def _stretches(used, side, lazy, rows):
    """How many stretches of a table move; a plain loop, as `used[side].max()` takes two seconds to compile here."""
    most = 0 if lazy else rows
    for r in range(used.shape[1] if lazy else 0):
        most = max(most, used[side, r])
    return (most + _ROWS - 1) // _ROWS


@compiled(error_model="numpy", fastmath=FAST)
def _slope(r, b, size, begin, order, of, positives, weights, negatives, users, items, losses, slopes):
    ahead = order[r, begin + min(b + _AHEAD, size - 1)]
    for k in range(0, users.shape[2], LINE):
        fetch(users, r, of[ahead], k)
        fetch(items, r, positives[ahead], k)
        fetch(items, r, negatives[r, min(b + _AHEAD, size - 1)], k)
    pair = order[r, begin + b]
    user, weight = of[pair], np.float64(weights[positives[pair]])
    margin = np.float64(dot(users, user, items, negatives[r, b], r) - dot(users, user, items, positives[pair], r))
    losses[r, b] = weight * (max(margin, 0.0) + math.log1p(math.exp(-abs(margin))))
    slopes[r, b] = weight / (1 + math.exp(-margin)) / size


@compiled(error_model="numpy")
def _sum_up(
    r, size, begin, order, of, positives, hot, held, held_items, negatives, losses, user_slot, user_touched,
    user_times, item_slot, item_touched, item_times, used, tally,
):  # fmt: skip
    """Record what the batch drew, and give each of its rows a place for its gradient."""
    one = np.float32(1)
    loss, hots, false = 0.0, 0, 0
    of_users, of_items = 0, 0
    for b in range(size):
        pair = order[r, begin + b]
        user, negative = of[pair], negatives[r, b]
        loss += losses[r, b]
        hots += hot[negative]
        false += holds(held, held_items, user, negative)
        of_users = give_slot(user_slot, user_touched, user_times, r, user, of_users, one)
        of_items = give_slot(item_slot, item_touched, item_times, r, positives[pair], of_items, one)
        of_items = give_slot(item_slot, item_touched, item_times, r, negative, of_items, one)
    tally[0, r] += loss / size
    tally[1, r] += hots / size
    tally[2, r] += false / size
    used[0, r], used[1, r] = of_users, of_items


@compiled(error_model="numpy")
def give_slot(slot, touched, times, r, row, used, weight):
    if slot[r, row] >= 0:
        times[r, slot[r, row]] += weight
        return used
    slot[r, row] = used
    touched[r, used] = row
    times[r, used] = weight
    return used + 1


@compiled(error_model="numpy", fastmath=FAST)
def _gather(
    r, part, parts, size, begin, order, of, positives, negatives, slopes, used, users, user_slot, user_gradient, items,
    item_slot, item_gradient,
):  # fmt: skip
    """Sum the gradients of the rows in every `parts`-th slot, in the order of the batch."""
    dim = users.shape[2]
    for slot in range(part, used[0, r], parts):
        for k in range(dim):
            user_gradient[r, slot, k] = 0
    for slot in range(part, used[1, r], parts):
        for k in range(dim):
            item_gradient[r, slot, k] = 0
    for b in range(size):
        pair = order[r, begin + b]
        user, positive, negative, slope = of[pair], positives[pair], negatives[r, b], slopes[r, b]
        slot = user_slot[r, user]
        if slot % parts == part:
            for k in range(dim):
                user_gradient[r, slot, k] += slope * (items[r, negative, k] - items[r, positive, k])
        slot = item_slot[r, positive]
        if slot % parts == part:
            for k in range(dim):
                item_gradient[r, slot, k] -= slope * users[r, user, k]
        slot = item_slot[r, negative]
        if slot % parts == part:
            for k in range(dim):
                item_gradient[r, slot, k] += slope * users[r, user, k]


@compiled(error_model="numpy", fastmath=FAST, forceinline=True)  # by itself LLVM does not, and the loop is slower
def _move_stretch(r, begin, used, lazy, step, size, rows, mean, square, clock, slots, gradient, touched, times, moves):
    """Adam on a stretch of all rows or, lazily, of the rows of the batch, each by its own clock.

    A row without a gradient moves by decay and momentum alone; L2 pulls a row as often as the batch drew it.
    """
    small, smaller, tiny = np.float32(0.1), np.float32(0.001), np.float32(1e-8)
    decay, l2, end = np.float32(moves.decay[r]), moves.l2[r] / size, len(moves.first) - 1
    for place in range(begin, min(begin + _ROWS, used if lazy else rows.shape[1])):
        row, now = place, step
        if lazy:
            ahead = touched[r, min(place + _AHEAD, used - 1)]
            for k in range(0, rows.shape[2], LINE):
                fetch(rows, r, ahead, k)
                fetch(mean, r, ahead, k)
                fetch(square, r, ahead, k)
            row = touched[r, place]
            clock[r, row] += 1
            now = clock[r, row]
        rate = np.float32(moves.lr[r] * moves.first[min(now, end)])
        scale = np.float32(moves.second[min(now, end)])
        slot = slots[r, row]
        has = np.float32(1 if slot >= 0 else 0)
        slots[r, row] = -1
        slot = max(slot, 0)
        pull = decay + np.float32(has * l2 * times[r, slot])
        for k in range(rows.shape[2]):
            g = has * gradient[r, slot, k] + pull * rows[r, row, k]
            m = mean[r, row, k] + small * (g - mean[r, row, k])
            s = square[r, row, k] + smaller * (g * g - square[r, row, k])
            mean[r, row, k], square[r, row, k] = m, s
            rows[r, row, k] -= rate * m / (np.sqrt(s) * scale + tiny)


@compiled(error_model="numpy", parallel=True)
def move_rows(parts, of, positives, negatives, user, positive, negative, users, items, moves, used, step):
    """Adam on one replica from the gradients of its rows: user and positive [B, d], shared negatives [n, d]."""
    _place_rows(
        of, positives, negatives, users.slot, users.touched, users.times, items.slot, items.touched, items.times, used
    )
    for part in prange(parts):
        one = np.int64(part)  # or what is called is compiled for two kinds of integers
        _add_rows(one, parts, used[0, 0], of, user, users.slot, users.gradient, True)
        _add_rows(one, parts, used[1, 0], positives, positive, items.slot, items.gradient, True)
        _add_rows(one, parts, used[1, 0], negatives, negative, items.slot, items.gradient, False)
    move_tables(len(of), users, items, moves, used, step)


@compiled(error_model="numpy")
def _place_rows(
    of, positives, negatives, user_slot, user_touched, user_times, item_slot, item_touched, item_times, used
):
    """Give every row of the batch a place for its gradient; the shared negatives weigh as much as the positives."""
    one, share = np.float32(1), np.float32(len(of) / len(negatives))
    of_users, of_items = 0, 0
    for b in range(len(of)):
        of_users = give_slot(user_slot, user_touched, user_times, 0, of[b], of_users, one)
        of_items = give_slot(item_slot, item_touched, item_times, 0, positives[b], of_items, one)
    for j in range(len(negatives)):
        of_items = give_slot(item_slot, item_touched, item_times, 0, negatives[j], of_items, share)
    used[0, 0], used[1, 0] = of_users, of_items


@compiled(error_model="numpy", fastmath=FAST)
def _add_rows(part, parts, used, drawn, found, slots, gradient, first):
    """Sum the gradients of the rows in every `parts`-th slot, in the order of the batch."""
    if first:
        for slot in range(part, used, parts):
            for k in range(gradient.shape[2]):
                gradient[0, slot, k] = 0
    for b in range(len(drawn)):
        slot = slots[0, drawn[b]]
        if slot % parts == part:
            for k in range(found.shape[1]):
                gradient[0, slot, k] += found[b, k]
