# mypy: disable-error-code="no-untyped-def"
"""The first kernel of a fused step: draw, score, rank, choose, and leave the gradients of a batch.

One program serves a few positives of one replica. Scores are plain float32, and nothing here depends on how
many replicas there are. Draws are twins of `evenhand.utils.keyed` and of the distributions in `evenhand.samplers`:
given a key they draw the same items. The second kernel, in `triton_adam`, moves the tables. Importing this module
needs Triton.
"""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

if tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 3):
    raise ImportError(f"the fused steps need Triton 3.3 or newer, not {triton.__version__}")

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_FRACTION = tl.constexpr(2.0**-53)

UNIFORM, WEIGHTED, GROUPED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Which distribution the items come from."""

GRID = tl.constexpr(2.0**50)
"""Exact sums hold gradients as multiples of 2^-50, within ±8,192: integers add up alike in any order."""

FIXED, HARDEST, AUC = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""How a negative is chosen among what was drawn."""


@triton.jit
def uniform(key, position):
    """The float64 that `keyed.uniforms` has at `position` under `key`."""
    x = key.to(tl.uint64, bitcast=True) + (position.to(tl.int64) + 1).to(tl.uint64, bitcast=True) * _GOLDEN
    x = (x ^ (x >> 30)) * _FIRST
    x = (x ^ (x >> 27)) * _SECOND
    x = x ^ (x >> 31)
    return (x >> 11).to(tl.int64).to(tl.float64) * _FRACTION


@triton.jit
def scaled(number, size):
    """floor(number · size) as int64, never reaching `size` by rounding."""
    return tl.minimum((number * size.to(tl.float64)).to(tl.int64), size.to(tl.int64) - 1)


@triton.jit
def _power_within(most):
    """The largest power of two that is at most `most`; 0 for 0."""
    power = tl.zeros_like(most) + 1
    while power * 2 <= most:
        power = power * 2
    return tl.where(most > 0, power, 0)


@triton.jit
def count_up_to(values, start, count, bound, strides: tl.constexpr):
    """How many of the `count` ascending values from `start` on are at most `bound`, by halving steps.

    With `strides`, the value at place k counts as value - k: what remains of an item index once the
    user's own items below it are cut out.
    """
    found = tl.zeros_like(bound)
    step = _power_within(tl.max(count)).to(bound.dtype)
    while step > 0:
        ahead = found + step
        inside = ahead <= count
        value = tl.load(values + start + (ahead - 1), mask=inside, other=0).to(bound.dtype)
        if strides:
            value = value - (ahead - 1)
        found = tl.where(inside & (value <= bound), ahead, found)
        step = step // 2
    return found


@triton.jit
def draw_fixed(
    key, b, u, start, count, live, n_items, n_groups,
    gaps, mass, before_item, before_pair, choice, begin, left, item_at,
    DRAWN: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """One item for each position b from a distribution that does not look at scores."""
    if DRAWN == UNIFORM:
        place = scaled(uniform(key, b), n_items - count).to(tl.int32)
        return place + count_up_to(gaps, start, count, place, True)
    elif DRAWN == WEIGHTED:  # noqa: RET505 (Triton must not see the branches of other distributions)
        place = scaled(uniform(key, b), tl.load(mass + u, mask=live, other=1))
        passed = count_up_to(gaps, start, count.to(tl.int64), place, False)
        cut = tl.load(before_pair + start + passed, mask=live, other=0)
        point = place + cut - tl.load(before_pair + start, mask=live, other=0)
        known = tl.zeros_like(point) + n_items + 1
        return (count_up_to(before_item, tl.zeros_like(start), known, point, False) - 1).to(tl.int32)
    else:
        g = tl.arange(0, GROUPS)[None, :]
        row = u.to(tl.int64) * n_groups
        within = live[:, None] & (g < n_groups)
        steps = tl.load(choice + row[:, None] + g, mask=within, other=float("inf"))
        total = tl.load(choice + row + n_groups - 1, mask=live, other=1.0)
        # (2^52 - 1) / 2^52 in float64; a literal would be rounded to float32.
        below_one = (tl.zeros_like(row) + 4503599627370495).to(tl.float64) * 2.0**-52
        point = uniform(key, b * 2) * below_one * total
        group = tl.sum((steps <= point[:, None]).to(tl.int32), 1)
        where = row + group
        there = tl.load(left + where, mask=live, other=1)
        place = tl.load(begin + where, mask=live, other=0) + scaled(uniform(key, b * 2 + 1), there)
        place = place.to(tl.int32)
        spot = place + count_up_to(gaps, start, count, place, True)
        return tl.load(item_at + spot, mask=live, other=0).to(tl.int32)


@triton.jit
def gather_shared(
    item_table, shared, step_at, across, drawn, n_items, dim, steps, pitch,
    DRAWS: tl.constexpr, D: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """The items that a batch draws in common, and their vectors side by side: across [R, D, pitch]."""
    r = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * SOME + tl.arange(0, SOME)
    inside = place < DRAWS
    key = tl.load(shared + r * steps + tl.load(step_at))
    ids = (uniform(key, place) * n_items).to(tl.int32)
    at = tl.arange(0, D)
    mask = inside[:, None] & (at < dim)[None, :]
    q = tl.load(item_table + (r * n_items + ids)[:, None] * dim + at[None, :], mask=mask, other=0.0)
    tl.store(drawn + r * pitch + place, ids, mask=inside)
    tl.store(across + (r * D + at)[None, :] * pitch + place[:, None], q, mask=mask)


@triton.jit
def _scores(table, looked, wanted, p, at, dim, PART: tl.constexpr):
    """Scores [B, W] of items looked [B, W] with the users' vectors p [B, D], PART columns at a time."""
    BB: tl.constexpr = looked.shape[0]
    PARTS: tl.constexpr = looked.shape[1] // PART
    part = tl.arange(0, PARTS)[None, :, None]
    ids = tl.reshape(tl.where(wanted, looked, -1), (BB, PARTS, PART))
    result = tl.zeros((BB, PARTS, PART), tl.float32)
    for k in tl.static_range(PARTS):
        these = tl.sum(tl.where(part == k, ids, 0), 1)
        where = these.to(tl.int64)[:, :, None] * dim + at[None, None, :]
        q = tl.load(table + where, mask=(these >= 0)[:, :, None] & (at < dim)[None, None, :], other=0.0)
        result = tl.where(part == k, tl.sum(q * p[:, None, :], 2)[:, None, :], result)
    return tl.reshape(result, (BB, PARTS * PART))


@triton.jit
def _column(tile, column, m):
    """Column m of a tile [B, W]."""
    return tl.sum(tl.where(column == m, tile, 0), 1)


@triton.jit
def _below(scores, ids, s, looked, column, m: tl.constexpr, M: tl.constexpr):
    """int32 [B, n]: whether each of the scores [B, n] of items ids [n] is at most that of candidate m.

    An item ties with itself by its index, since its two scores may be rounded differently.
    """
    if m >= M:
        return tl.zeros(scores.shape, tl.int32)
    else:  # noqa: RET505 (Triton must not see both)
        x, item = _column(s, column, m), _column(looked, column, m)
        return ((scores <= x[:, None]) | (ids[None, :] == item[:, None])).to(tl.int32)


@triton.jit
def _ranks(
    across, drawn, s, looked, p, at, column, n_items, pitch,
    M: tl.constexpr, DRAWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Rank [B, W] of the M candidates' scores among all items, or among DRAWS items that the batch shares.

    `across` [D, pitch] holds their vectors side by side. Six candidates are counted at a time, three in one
    integer of which each has ten bits, so that sums over the tile are rare.
    """
    SPAN: tl.constexpr = 1023 // CHUNK * CHUNK
    count = tl.zeros_like(looked)
    n = DRAWS if DRAWS > 0 else n_items
    for c in tl.static_range(0, M, 6):
        for span in range(0, n, SPAN):
            low = tl.zeros((p.shape[0], CHUNK), tl.int32)
            high = tl.zeros((p.shape[0], CHUNK), tl.int32)
            for first in range(span, tl.minimum(span + SPAN, n), CHUNK):
                place = first + tl.arange(0, CHUNK)
                ids = tl.load(drawn + place) if DRAWS > 0 else place
                q = tl.load(across + at[:, None] * pitch + place[None, :])
                scores = tl.dot(p, q, input_precision="ieee")
                scores = tl.where((place < n)[None, :], scores, float("inf"))
                for m in tl.static_range(3):
                    low += _below(scores, ids, s, looked, column, c + m, M) << (10 * m)
                    high += _below(scores, ids, s, looked, column, c + 3 + m, M) << (10 * m)
            for m in tl.static_range(3):
                count += tl.where(column == c + m, ((tl.sum(low, 1) >> (10 * m)) & 1023)[:, None], 0)
                count += tl.where(column == c + 3 + m, ((tl.sum(high, 1) >> (10 * m)) & 1023)[:, None], 0)
    return (1 + count) / (DRAWS + 2.0) if DRAWS > 0 else count / (n_items + 1.0)


@triton.jit
def _gain(s, posterior, observed, unobserved, column, m, M: tl.constexpr, K: tl.constexpr):
    """Δ⁺·P(TN) - Δ⁻·P(FN) of candidate m, [B]."""
    negative = (column >= M) & (column < M + K)
    positive = (column >= M + K) & (column < M + 2 * K)
    margin = s - _column(s, column, m)[:, None]
    share = tl.sigmoid(tl.where(negative, margin, -margin))
    rise = observed * (tl.sum(tl.where(positive, share, 0.0), 1) / K)
    fall = unobserved * (tl.sum(tl.where(negative, share, 0.0), 1) / K)
    true = _column(posterior, column, m)
    return rise * true - fall * (1 - true)


@triton.jit
def _gains(s, posterior, observed, unobserved, column, M: tl.constexpr, K: tl.constexpr):
    """The gains of the M candidates, in columns 0…M-1; other columns are -inf."""
    value = tl.full(s.shape, float("-inf"), tl.float32)
    if M <= 8:
        for m in tl.static_range(M):
            gain = _gain(s, posterior, observed, unobserved, column, m, M, K)
            value = tl.where(column == m, gain[:, None], value)
    else:
        for m in range(M):
            gain = _gain(s, posterior, observed, unobserved, column, m, M, K)
            value = tl.where(column == m, gain[:, None], value)
    return value


@triton.jit
def _choose(
    table, across, drawn, pitch, key, b, start, count, live, p, at, n_items, dim, items, alpha, gamma, prior,
    CHOICE: tl.constexpr, M: tl.constexpr, K: tl.constexpr, DRAWS: tl.constexpr,
    W: tl.constexpr, PART: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The best of M uniform candidates for each position: by score, or by what it adds to the partial AUC."""
    width: tl.constexpr = M + 2 * K if CHOICE == AUC else M
    column = tl.arange(0, W)[None, :]
    wanted = live[:, None] & (column < width)
    numbers = uniform(key, b[:, None].to(tl.int64) * width + column)
    probe = (column >= M + K) & (column < width)
    left = (n_items - count)[:, None]
    place = scaled(numbers, tl.where(probe, count[:, None], left)).to(tl.int32)
    looked = place + count_up_to(items, start[:, None], count[:, None], place, True)
    if CHOICE == AUC:
        seen = tl.load(items + start[:, None] + place, mask=wanted & probe, other=0).to(tl.int32)
        looked = tl.where(probe, seen, looked)
        tau = tl.load(prior + looked, mask=live[:, None] & (column < M), other=0.5)
    s = _scores(table, looked, wanted, p, at, dim, PART)
    if CHOICE == AUC:
        rank = _ranks(across, drawn, s, looked, p, at, column, n_items, pitch, M, DRAWS, CHUNK)
        a = tl.load(alpha)
        true = (a * (1 - rank) + (1 - a) * rank) * tau
        false = ((1 - a) * (1 - rank) + a * rank) * (1 - tau)
        harm = tl.load(gamma) * (n_items - count).to(tl.float32)
        value = _gains(s, true / (true + false), count.to(tl.float32), harm, column, M, K)
    else:
        value = tl.where(column < M, s, float("-inf"))
    winner = tl.argmax(value, 1, tie_break_left=True)
    return tl.sum(tl.where(column == winner[:, None], looked, 0), 1)


@triton.jit
def _add(gradient, where, value, mask, EXACT: tl.constexpr):
    """Add to a table of gradients, as integers where the sum must not depend on the order."""
    if EXACT:
        tl.atomic_add(gradient + where, (value * GRID).to(tl.int64), mask=mask, sem="relaxed")
    else:
        tl.atomic_add(gradient + where, value, mask=mask, sem="relaxed")


@triton.jit
def _is_held(u, negative, live, n_items, held, held_at):
    """Whether each negative is a held-out item of its user."""
    start = tl.load(held_at + u, mask=live, other=0)
    count = tl.load(held_at + u + 1, mask=live, other=0) - start
    wanted = u.to(tl.int64) * n_items + negative
    passed = count_up_to(held, start, count, wanted, False)
    last = tl.load(held + start + passed - 1, mask=live & (passed > 0), other=-1)
    return live & (last == wanted)


@triton.jit
def _leave_sums(parts, block, blocks, u, negative, loss, live, n_items, hot, held, held_at, HELD: tl.constexpr):
    """Sums over this program's positives, for the tally: loss, hot negatives, false negatives, positives."""
    is_hot = tl.load(hot + negative, mask=live, other=0)
    tl.store(parts + block, tl.sum(tl.where(live, loss, 0.0)))
    tl.store(parts + blocks + block, tl.sum((is_hot != 0).to(tl.float32)))
    if HELD:
        false = _is_held(u, negative, live, n_items, held, held_at)
        tl.store(parts + 2 * blocks + block, tl.sum(false.to(tl.float32)))
    tl.store(parts + 3 * blocks + block, tl.sum(live.to(tl.float32)))


@triton.jit
def learn(
    user_table, item_table, user_gradient, item_gradient, order, users, items, own, step_at, taken,
    across, drawn, indptr, row_items, gaps, mass, before_item, before_pair, choice, begin, left, item_at,
    alpha, gamma, prior, hot, held, held_at, l2, touched, parts, cuts, places, said,
    n_pairs, n_users, n_items, dim, steps, batch, n_groups, blocks, pitch, of_all, lanes, wide, message,
    DRAWN: tl.constexpr, CHOICE: tl.constexpr, M: tl.constexpr, K: tl.constexpr, DRAWS: tl.constexpr,
    GROUPS: tl.constexpr, EXACT: tl.constexpr, HELD: tl.constexpr, SPREAD: tl.constexpr,
    BB: tl.constexpr, D: tl.constexpr, W: tl.constexpr, PART: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """BB positives of one replica: their negatives, their loss and their part of the gradients.

    With SPREAD, this process has only some positives of a batch: those from `cuts` [R, steps + 1] on in `order`, which
    stand at `places` of the batch. What items get from them is `said` [R, lanes, message] to all, and added by
    `add_items`: the user's row, then positive, negative, slope, loss, and whether the negative was held out.
    """
    block, r = tl.program_id(0), tl.program_id(1).to(tl.int64)
    step = tl.load(step_at)
    if (block == 0) & (r == 0):
        tl.store(taken, tl.load(taken) + 1)  # read by the next kernel only
    lane = block * BB + tl.arange(0, BB)
    if SPREAD:
        place = tl.load(cuts + r * (steps + 1) + step) + lane
        live = (lane < lanes) & (place < tl.load(cuts + r * (steps + 1) + step + 1))
        b = tl.load(places + r * n_pairs + place, mask=live, other=0)
    else:
        place = step * batch + lane
        live = (lane < batch) & (place < n_pairs)
        b = lane
    size = tl.minimum(of_all - step * batch, batch).to(tl.float32)
    pair = tl.load(order + r * n_pairs + place, mask=live, other=0).to(tl.int64)
    u = tl.load(users + pair, mask=live, other=0).to(tl.int32)
    positive = tl.load(items + pair, mask=live, other=0).to(tl.int32)
    start = tl.load(indptr + u, mask=live, other=0)
    count = (tl.load(indptr + u + 1, mask=live, other=0) - start).to(tl.int32)
    own_key = tl.load(own + r * steps + step)

    at = tl.arange(0, D)
    inside = live[:, None] & (at < dim)[None, :]
    table = item_table + r * n_items * dim
    of_user = (r * n_users + u)[:, None] * dim + at[None, :]
    of_positive = (r * n_items + positive)[:, None] * dim + at[None, :]
    p = tl.load(user_table + of_user, mask=inside, other=0.0)
    q_positive = tl.load(item_table + of_positive, mask=inside, other=0.0)
    if CHOICE == FIXED:
        negative = draw_fixed(
            own_key, b, u, start, count, live, n_items, n_groups,
            gaps, mass, before_item, before_pair, choice, begin, left, item_at, DRAWN, GROUPS,
        )  # fmt: skip
    else:
        negative = _choose(
            table, across + r * D * pitch, drawn + r * pitch, pitch, own_key, b, start, count, live, p, at,
            n_items, dim, row_items, alpha + r, gamma + r, prior + r * n_items,
            CHOICE, M, K, DRAWS, W, PART, CHUNK,
        )  # fmt: skip
    of_negative = (r * n_items + negative)[:, None] * dim + at[None, :]
    q_negative = tl.load(item_table + of_negative, mask=inside, other=0.0)

    z = tl.sum(p * q_negative, 1) - tl.sum(p * q_positive, 1)
    loss = tl.maximum(z, 0.0) + tl.log(1 + tl.exp(-tl.abs(z)))
    slope = (tl.sigmoid(z) / size)[:, None]
    pull = tl.load(l2 + r) / size
    _add(user_gradient, of_user, slope * (q_negative - q_positive) + pull * p, inside, EXACT)
    rows = touched + r * 3 * wide + lane
    tl.store(rows, tl.where(live, u, -1), mask=lane < lanes)
    if SPREAD:
        row = said + (r * lanes + lane) * message
        tl.store(row[:, None] + at[None, :], p, mask=inside)
        there = lane < lanes
        tl.store(row + dim, tl.where(live, positive, -1).to(tl.float32, bitcast=True), mask=there)
        tl.store(row + dim + 1, negative.to(tl.float32, bitcast=True), mask=there)
        tl.store(row + dim + 2, tl.sigmoid(z) / size, mask=there)
        tl.store(row + dim + 3, loss, mask=there)
        if HELD:
            false = _is_held(u, negative, live, n_items, held, held_at)
            tl.store(row + dim + 4, false.to(tl.float32), mask=there)
    else:
        _add(item_gradient, of_positive, pull * q_positive - slope * p, inside, EXACT)
        _add(item_gradient, of_negative, pull * q_negative + slope * p, inside, EXACT)
        tl.store(rows + wide, tl.where(live, positive, -1), mask=lane < lanes)
        tl.store(rows + 2 * wide, tl.where(live, negative, -1), mask=lane < lanes)
        _leave_sums(parts + r * 4 * blocks, block, blocks, u, negative, loss, live, n_items, hot, held, held_at, HELD)


@triton.jit
def add_items(
    item_table, item_gradient, heard, step_at, l2, hot, touched, sums,
    n_items, dim, batch, of_all, lanes, wide, message, LOSS_UNIT: tl.constexpr, D: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """What BB positives of a batch do to their items, from what every process `said`: heard [ranks, R, lanes, message].

    Sums of losses, hot and false negatives go to `sums` [2, 3, R], in whole numbers; the second half is for a batch
    that is not full.
    """
    r, replicas = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    step = tl.load(step_at)
    k = tl.program_id(0) * BB + tl.arange(0, BB)
    row = heard + (((k // lanes).to(tl.int64) * replicas + r) * lanes + k % lanes) * message
    positive = tl.load(row + dim, mask=k < wide, other=0.0).to(tl.int32, bitcast=True)
    live = (k < wide) & (positive >= 0)
    negative = tl.load(row + dim + 1, mask=live, other=0.0).to(tl.int32, bitcast=True)
    slope = tl.load(row + dim + 2, mask=live, other=0.0)[:, None]
    loss = tl.load(row + dim + 3, mask=live, other=0.0).to(tl.float64)
    false = tl.load(row + dim + 4, mask=live, other=0.0)

    at = tl.arange(0, D)
    inside = live[:, None] & (at < dim)[None, :]
    p = tl.load(row[:, None] + at[None, :], mask=inside, other=0.0)
    of_positive = (r * n_items + positive)[:, None] * dim + at[None, :]
    of_negative = (r * n_items + negative)[:, None] * dim + at[None, :]
    size = tl.minimum(of_all - step * batch, batch)
    pull = tl.load(l2 + r) / size.to(tl.float32)
    q_positive = tl.load(item_table + of_positive, mask=inside, other=0.0)
    q_negative = tl.load(item_table + of_negative, mask=inside, other=0.0)
    _add(item_gradient, of_positive, pull * q_positive - slope * p, inside, True)
    _add(item_gradient, of_negative, pull * q_negative + slope * p, inside, True)
    rows = touched + r * 3 * wide + k
    tl.store(rows + wide, tl.where(live, positive, -1), mask=k < wide)
    tl.store(rows + 2 * wide, tl.where(live, negative, -1), mask=k < wide)

    whole = (tl.minimum(tl.maximum(loss, -1e6), 1e6) * LOSS_UNIT).to(tl.int64)
    whole = tl.where(loss == loss, whole, (tl.zeros_like(whole) + 1) << 61)  # nan: so large that it shows
    is_hot = tl.load(hot + negative, mask=live, other=0)
    mine = sums + (size < batch).to(tl.int64) * 3 * replicas + r
    tl.atomic_add(mine, tl.sum(tl.where(live, whole, 0)), sem="relaxed")
    tl.atomic_add(mine + replicas, tl.sum((is_hot != 0).to(tl.int64)), sem="relaxed")
    tl.atomic_add(mine + 2 * replicas, tl.sum(false.to(tl.int64)), sem="relaxed")
