"""The parts of a sharded step, compiled: what positives look at, where its rows lie, the choice, and exact sums.

What the samplers draw needs no vectors, so the items of a batch are known before any row is asked for: each gets a
*slot*, ordered by the rank that owns it. Once the rows of all slots have come, a slot stands for its item. Gradients of
items are added up as whole multiples of 2⁻⁵⁰, whose sum no order and no number of ranks can change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange
from numba.np.ufunc.parallel import get_thread_id

from evenhand.training.engines.choices import BLOCK, FAST, decide_block, dot, look_at, put_beside
from evenhand.training.engines.draws import free_item, free_item_by_weight, group_and_place, holds, scaled, uniform
from evenhand.training.engines.steps import give_slot
from evenhand.utils.compiled import compiled

UNIT = 2.0**50
"""Sums of gradients count in parts of 1 / UNIT: of a batch's mean, no sum comes near the end of 64 bits."""
_MOST = 2.0**12
"""A larger number is cut: training has diverged, which the loss will say."""
LOSS_UNIT = 2.0**30
"""The same for losses."""


# ---- what is looked at: `place` [n] are the places of this rank's positives in the batch, `of` [n] their users


@compiled(error_model="numpy")
def look_weighted(tables: Any, key: Any, place: Any, of: Any, looked: Any) -> None:
    for b in range(len(of)):
        point = scaled(uniform(key, place[b]), tables.mass[of[b]])
        if len(tables.before_item):
            looked[b, 0] = free_item_by_weight(
                tables.indptr, tables.items, tables.before_item, tables.before_pair, of[b], point
            )
        else:
            looked[b, 0] = free_item(tables.indptr, tables.items, of[b], point)


@compiled(error_model="numpy")
def look_grouped(tables: Any, key: Any, place: Any, of: Any, looked: Any) -> None:
    for b in range(len(of)):
        which, where = uniform(key, 2 * place[b]), uniform(key, 2 * place[b] + 1)
        point = group_and_place(tables.choice, tables.begin, tables.left, of[b], which, where)
        looked[b, 0] = tables.item_at[free_item(tables.indptr, tables.items, of[b], point)]


@compiled(error_model="numpy")
def look_pool(tables: Any, key: Any, place: Any, of: Any, looked: Any) -> None:
    for b in range(len(of)):
        for m in range(tables.candidates):
            point = scaled(uniform(key, place[b] * tables.candidates + m), tables.mass[of[b]])
            looked[b, m] = free_item(tables.indptr, tables.items, of[b], point)


@compiled(error_model="numpy")
def look_optimal(tables: Any, key: Any, place: Any, of: Any, looked: Any) -> None:
    """Candidates, negative probes, positive probes."""
    width = tables.candidates + 2 * tables.probes
    found, base = np.empty((1, 1, width), dtype=np.int64), np.empty((1, width), dtype=np.int64)
    zero = np.int64(0)  # a literal would have it compiled once more
    for b in range(len(of)):
        look_at(
            tables.indptr, tables.items, tables.mass[of[b]], tables.candidates, tables.probes, of[b], key,
            place[b] * width, tables.pool, zero, found, base, zero, zero,
        )  # fmt: skip
        looked[b] = found[0, 0]


@compiled(error_model="numpy")
def look_shared(key: Any, n_items: Any, drawn: Any) -> None:
    """The uniform draws that a batch shares."""
    for j in range(len(drawn)):
        drawn[j] = scaled(uniform(key, j), n_items)


# ---- slots


@compiled(error_model="numpy")
def place_ids(ids: Any, offset: Any, slot: Any, asked: Any, used: Any) -> Any:
    """Take note of each item that was not yet asked for; `slot` [R · n_items] is -1 elsewhere."""
    for i in range(len(ids)):
        key = offset + ids[i]
        if slot[key] < 0:
            slot[key] = used
            asked[used] = key
            used += 1
    return used


@compiled(error_model="numpy")
def order_slots(n_items: Any, block: Any, ranks: Any, sizes: Any, slot: Any, asked: Any, row: Any, send: Any) -> None:
    """Put what is asked for in the order of its owners, `send` [ranks] for each, and say which row of theirs it is."""
    send[:] = 0
    for i in range(len(asked)):
        send[asked[i] % n_items // block % ranks] += 1
    begin = np.cumsum(send) - send
    keys = asked.copy()
    for i in range(len(keys)):
        item = keys[i] % n_items
        owner = item // block % ranks
        place = begin[owner]
        begin[owner] += 1
        asked[place] = keys[i]
        slot[keys[i]] = place
        row[place] = keys[i] // n_items * sizes[owner] + item // (block * ranks) * block + item % block


@compiled(error_model="numpy")
def into_slots(ids: Any, offset: Any, slot: Any) -> None:
    for i in range(len(ids)):
        ids[i] = slot[offset + ids[i]]


@compiled(error_model="numpy")
def forget_slots(asked: Any, slot: Any) -> None:
    for i in range(len(asked)):
        slot[asked[i]] = -1


# ---- the choice and the slopes of one replica: `users` [1, n, d] its users, `items` [1, slots, d] what has come


@compiled(error_model="numpy", fastmath=FAST)
def choose_first(tables: Any, own: Any, of: Any, looked: Any, users: Any, items: Any, negatives: Any) -> None:
    for b in range(len(of)):
        negatives[0, b] = looked[b, 0]


@compiled(error_model="numpy", parallel=True, fastmath=FAST)
def choose_highest(tables: Any, own: Any, of: Any, looked: Any, users: Any, items: Any, negatives: Any) -> None:
    for b in prange(len(of)):
        _highest(np.int64(b), of, looked, users, items, negatives)


@compiled(error_model="numpy", fastmath=FAST)
def _highest(b: Any, of: Any, looked: Any, users: Any, items: Any, negatives: Any) -> None:
    best, value = np.int64(-1), np.float32(0)
    for m in range(looked.shape[1]):
        score = dot(users, of[b], items, looked[b, m], np.int64(0))
        if best < 0 or score > value:
            best, value = looked[b, m], score
    negatives[0, b] = best


@compiled(error_model="numpy", parallel=True, fastmath=FAST)
def choose_optimal(tables: Any, own: Any, of: Any, looked: Any, users: Any, items: Any, negatives: Any) -> None:
    """`tables` as in one process, of one replica, with `prior` and `drawn` by slot."""
    for j in range(tables.draws):
        put_beside(tables.beside, items, 0, tables.drawn[0, j], j)
    blocks = (len(of) + BLOCK - 1) // BLOCK
    for task in prange(blocks):
        _optimal_block(
            task * BLOCK, get_thread_id(), own, of, looked, users, items, negatives, tables.indptr, tables.mass,
            tables.candidates, tables.probes, tables.draws, tables.alpha, tables.gamma, tables.prior, tables.beside,
            tables.drawn, tables.everything, tables.vectors, tables.seen, tables.grown, tables.won,
        )  # fmt: skip


@compiled(error_model="numpy", fastmath=FAST)
def _optimal_block(
    first: Any, at: Any, own: Any, of: Any, looked: Any, users: Any, items: Any, negatives: Any, indptr: Any,
    mass: Any, m: Any, p: Any, draws: Any, alpha: Any, gamma: Any, prior: Any, beside: Any, drawn: Any,
    everything: Any, vectors: Any, seen: Any, grown: Any, won: Any,
) -> None:  # fmt: skip
    size = len(of)
    for lane in range(BLOCK):
        b = min(first + lane, size - 1)
        for k in range(users.shape[2]):
            vectors[at, lane, k] = users[0, of[b], k]
        for j in range(looked.shape[1]):
            seen[at, lane, j] = looked[b, j]
    zero = np.int64(0)
    decide_block(
        zero, first, at, size, zero, own, of, users, items, negatives, indptr, mass, m, p, draws, alpha, gamma, prior,
        beside, drawn, everything, vectors, seen, grown, won,
    )  # fmt: skip


@compiled(error_model="numpy", fastmath=FAST)
def slopes_of(
    of: Any, positives: Any, negatives: Any, users: Any, items: Any, size: Any, losses: Any, slopes: Any
) -> None:
    """Losses, and ∂loss / ∂(s⁻ - s⁺) of each positive, of the mean over `size` positives."""
    for b in range(len(of)):
        margin = np.float64(dot(users, of[b], items, negatives[0, b], 0) - dot(users, of[b], items, positives[b], 0))
        losses[b] = max(margin, 0.0) + math.log1p(math.exp(-abs(margin)))
        slopes[b] = 1 / (1 + math.exp(-margin)) / size


@compiled(error_model="numpy")
def counted(
    of: Any, negatives: Any, losses: Any, hot: Any, held: Any, held_items: Any, asked: Any, offset: Any, tally: Any
) -> None:
    """Add to `tally` [3], in whole numbers: losses, hot negatives, held-out ones."""
    for b in range(len(of)):
        item = asked[negatives[0, b]] - offset
        tally[0] += _loss_in_units(losses[b])
        tally[1] += hot[item]
        tally[2] += holds(held, held_items, of[b], item)


@compiled(error_model="numpy")
def counted_of(of: Any, negatives: Any, losses: Any, held: Any, held_items: Any, tally: Any) -> None:
    """The same where a batch shares its negatives: one of them [n] for each positive is looked up."""
    for b in range(len(of)):
        tally[0] += _loss_in_units(losses[b])
        tally[2] += holds(held, held_items, of[b], negatives[b])


@compiled(error_model="numpy", forceinline=True)
def _loss_in_units(loss: Any) -> Any:
    """nan as a number so large that it shows."""
    return np.int64(np.rint(min(max(loss, -1e6), 1e6) * LOSS_UNIT)) if loss == loss else np.int64(2) ** 61


# ---- sums


@compiled(error_model="numpy", fastmath=FAST)
def sum_users(
    r: Any, of: Any, positives: Any, negatives: Any, slopes: Any, items: Any, slot: Any, touched: Any, times: Any,
    gradient: Any, used: Any,
) -> None:  # fmt: skip
    """The gradients of users, who are this rank's own, in the order of the batch."""
    n = 0
    for b in range(len(of)):
        n = give_slot(slot, touched, times, r, of[b], n, np.float32(1))
    used[0, r] = n
    for s in range(n):
        for k in range(gradient.shape[2]):
            gradient[r, s, k] = 0
    for b in range(len(of)):
        s, slope, positive, negative = slot[r, of[b]], slopes[b], positives[b], negatives[0, b]
        for k in range(gradient.shape[2]):
            gradient[r, s, k] += slope * (items[0, negative, k] - items[0, positive, k])


@compiled(error_model="numpy")
def sum_given_users(
    r: Any, of: Any, given: Any, slot: Any, touched: Any, times: Any, gradient: Any, used: Any
) -> None:  # fmt: skip
    """The same from the gradients [n, d] of each positive's user."""
    n = 0
    for b in range(len(of)):
        if slot[r, of[b]] < 0:
            for k in range(given.shape[1]):
                gradient[r, n, k] = 0
        n = give_slot(slot, touched, times, r, of[b], n, np.float32(1))
        for k in range(given.shape[1]):
            gradient[r, slot[r, of[b]], k] += given[b, k]
    used[0, r] = n


@compiled(error_model="numpy")
def add_shared(
    r: Any, row: Any, given: Any, weight: Any, slot: Any, touched: Any, times: Any, gradient: Any, used: Any
) -> None:  # fmt: skip
    """At the owner: add the gradients [n, d] of shared negatives, each of which counts as `weight` [n] draws."""
    for i in range(len(row)):
        if slot[r, row[i]] < 0:
            for k in range(given.shape[1]):
                gradient[r, used[1, r], k] = 0
        used[1, r] = give_slot(slot, touched, times, r, row[i], used[1, r], weight[i])
        for k in range(given.shape[1]):
            gradient[r, slot[r, row[i]], k] += given[i, k]


@compiled(error_model="numpy")
def count_items(drawn: Any, times: Any) -> None:
    for b in range(len(drawn)):
        times[drawn[b]] += 1


@compiled(error_model="numpy")
def number_items(times: Any, send: Any, place: Any, once: Any, often: Any) -> None:
    """Number the slots with one contribution, and those with several, each from 0; how many of them go to whom."""
    slot, ones, more = 0, 0, 0
    for rank in range(len(send)):
        for _ in range(send[rank]):
            if times[slot] == 1:
                place[slot] = ones
                once[rank] += 1
                ones += 1
            elif times[slot] > 1:
                place[slot] = more
                often[rank] += 1
                more += 1
            slot += 1


@compiled(error_model="numpy")
def sum_items(
    of: Any, drawn: Any, slopes: Any, sign: Any, users: Any, times: Any, place: Any, ones: Any, more: Any
) -> None:  # fmt: skip
    """±slope times the user's row: alone as it is, beside others as a whole number."""
    for b in range(len(of)):
        slope, slot = sign * slopes[b], drawn[b]
        if times[slot] == 1:
            for k in range(users.shape[2]):
                ones[place[slot], k] = slope * users[0, of[b], k]
        else:
            for k in range(users.shape[2]):
                more[place[slot], k] += in_units(np.float32(slope * users[0, of[b], k]))


@compiled(error_model="numpy")
def sum_given(drawn: Any, given: Any, times: Any, place: Any, ones: Any, more: Any) -> None:
    """The same for contributions [n, d] that are known already."""
    for b in range(len(drawn)):
        slot = drawn[b]
        if times[slot] == 1:
            for k in range(given.shape[1]):
                ones[place[slot], k] = given[b, k]
        else:
            for k in range(given.shape[1]):
                more[place[slot], k] += in_units(given[b, k])


@compiled(error_model="numpy", forceinline=True)
def in_units(number: Any) -> Any:
    """A number in parts of 1 / UNIT; nan is 0."""
    cut = min(max(np.float64(number), -_MOST), _MOST)
    return np.int64(np.rint(cut * UNIT)) if cut == cut else np.int64(0)


@compiled(error_model="numpy")
def all_in_units(values: Any) -> Any:
    found = np.empty(values.shape, dtype=np.int64)
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            found[i, k] = in_units(values[i, k])
    return found


@compiled(error_model="numpy")
def add_rows(
    row: Any, n: Any, values: Any, counts: Any, slot: Any, touched: Any, times: Any, sums: Any, used: Any
) -> None:  # fmt: skip
    """At the owner of `n` rows a replica: add the whole numbers that a rank has for them."""
    for i in range(len(row)):
        r, mine = row[i] // n, row[i] % n
        fresh = slot[r, mine] < 0
        used[1, r] = give_slot(slot, touched, times, r, mine, used[1, r], np.float32(counts[i]))
        s = slot[r, mine]
        for k in range(values.shape[1]):
            sums[r, s, k] = values[i, k] if fresh else sums[r, s, k] + values[i, k]


@compiled(error_model="numpy")
def to_gradients(used: Any, sums: Any, gradient: Any) -> None:
    for r in range(sums.shape[0]):
        for s in range(used[1, r]):
            for k in range(sums.shape[2]):
                gradient[r, s, k] = np.float32(sums[r, s, k] / UNIT)


@compiled(error_model="numpy", fastmath=FAST)
def add_in_order(
    row: Any, n: Any, slopes: Any, users: Any, slot: Any, touched: Any, times: Any, gradient: Any, used: Any
) -> None:  # fmt: skip
    """The sum that one process makes: every contribution by itself, in the order of the batch."""
    for i in range(len(row)):
        r, mine = row[i] // n, row[i] % n
        if slot[r, mine] < 0:
            for k in range(users.shape[1]):
                gradient[r, used[1, r], k] = 0
        used[1, r] = give_slot(slot, touched, times, r, mine, used[1, r], np.float32(1))
        s, slope = slot[r, mine], slopes[i]
        for k in range(users.shape[1]):
            gradient[r, s, k] += slope * users[i, k]
