# mypy: disable-error-code="no-untyped-def"
"""The second kernel of a fused step: Adam on every row, or on the rows of the batch.

It takes the gradients that `triton_kernels.learn` left, leaves zeros, and adds up the tally.
Importing this module needs Triton.
"""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

CELL = tl.constexpr(2.0**-50)
"""The unit of gradients that are held as integers; see `triton_kernels.GRID`."""


@triton.jit
def _moved(
    table, mean, square, gradient, where, mask, rate, decay, unbias, unbias_root, across, over,
    EXACT: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """One step of Adam at some places of a table, whose gradients become zero; TWICE also stores `across`."""
    g = tl.load(gradient + where, mask=mask, other=0)
    tl.store(gradient + where, tl.zeros_like(g), mask=mask & (g != 0))
    if EXACT:
        g = g.to(tl.float32) * CELL
    p = tl.load(table + where, mask=mask, other=0.0)
    m = tl.load(mean + where, mask=mask, other=0.0)
    v = tl.load(square + where, mask=mask, other=0.0)
    g += decay * p
    m += 0.1 * (g - m)
    v = 0.999 * v + 0.001 * g * g
    p -= rate * unbias * m / (tl.sqrt(v) * unbias_root + 1e-8)
    tl.store(table + where, p, mask=mask)
    tl.store(mean + where, m, mask=mask)
    tl.store(square + where, v, mask=mask)
    if TWICE:
        tl.store(across + over, p, mask=mask)


@triton.jit
def _tallied(parts, tally, r, replicas, blocks, STRIDE: tl.constexpr):
    """Add this step's means of loss, hot share and false share to the tally [3, R]; without blocks, nothing."""
    place = tl.arange(0, STRIDE)
    positives = tl.zeros((STRIDE,), tl.float64)
    for first in range(0, blocks, STRIDE):
        inside = first + place < blocks
        positives += tl.load(parts + 3 * blocks + first + place, mask=inside, other=0.0).to(tl.float64)
    n = tl.maximum(tl.sum(positives), 1.0)
    for what in tl.static_range(3):
        total = tl.zeros((STRIDE,), tl.float64)
        for first in range(0, blocks, STRIDE):
            inside = first + place < blocks
            total += tl.load(parts + what * blocks + first + place, mask=inside, other=0.0).to(tl.float64)
        mine = tally + what * replicas + r
        tl.store(mine, tl.load(mine) + tl.sum(total) / n)


@triton.jit
def _moved_stretch(
    table, mean, square, gradient, k, r, n, dim, rate, decay, unbias, unbias_root, across, pitch,
    D: tl.constexpr, EXACT: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The k-th stretch of ROWS rows of a replica's table."""
    row = k * ROWS + tl.arange(0, ROWS)
    at = tl.arange(0, D)
    where = (r * n + row)[:, None] * dim + at[None, :]
    over = (r * D + at)[None, :] * pitch + row[:, None]
    mask = (row < n)[:, None] & (at < dim)[None, :]
    _moved(
        table, mean, square, gradient, where, mask, rate, decay, unbias, unbias_root, across, over,
        EXACT, TWICE,
    )  # fmt: skip


@triton.jit
def move_all(
    user_table, user_mean, user_square, user_gradient, item_table, item_mean, item_square, item_gradient,
    rates, decays, unbias, unbias_root, last, taken, step_at, parts, tally,
    n_users, n_items, user_programs, item_programs, blocks, dim, across, pitch,
    EXACT: tl.constexpr, D: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Every row of both tables, ROWS a program; the first program of a replica adds up its tally."""
    k, r = tl.program_id(0) - 1, tl.program_id(1).to(tl.int64)
    past = tl.minimum(tl.load(taken), last)
    one, root = tl.load(unbias + past), tl.load(unbias_root + past)
    rate, decay = tl.load(rates + r), tl.load(decays + r)
    if k < 0:
        _tallied(parts + r * 4 * blocks, tally, r, tl.num_programs(1), blocks, STRIDE)
        if r == 0:
            tl.store(step_at, tl.load(step_at) + 1)  # read by the next step's first kernel only
    elif k < user_programs:
        _moved_stretch(
            user_table, user_mean, user_square, user_gradient, k, r, n_users, dim, rate, decay, one, root,
            across, pitch, D, EXACT, False, ROWS,
        )  # fmt: skip
    else:
        _moved_stretch(
            item_table, item_mean, item_square, item_gradient, k - user_programs, r, n_items, dim, rate,
            decay, one, root, across, pitch, D, EXACT, TWICE, ROWS,
        )  # fmt: skip


@triton.jit
def _moved_rows(
    table, mean, square, gradient, clocks, marks, row, now, r, n, dim, rate, decay,
    unbias, unbias_root, last, across, pitch, D: tl.constexpr, EXACT: tl.constexpr, TWICE: tl.constexpr,
):  # fmt: skip
    """The rows that no other program of this step has marked yet."""
    there = r * n + row
    seen = tl.atomic_xchg(marks + there, tl.zeros_like(row) + now, mask=row >= 0, sem="relaxed")
    mine = (row >= 0) & (seen != now)
    past = tl.load(clocks + there, mask=mine, other=0) + 1
    tl.store(clocks + there, past, mask=mine)
    at = tl.arange(0, D)
    past = tl.minimum(past, last)
    one = tl.load(unbias + past, mask=mine, other=1.0)[:, None]
    root = tl.load(unbias_root + past, mask=mine, other=1.0)[:, None]
    where = there[:, None] * dim + at[None, :]
    mask = mine[:, None] & (at < dim)[None, :]
    over = (r * D + at)[None, :] * pitch + row[:, None]
    _moved(
        table, mean, square, gradient, where, mask, rate, decay, one, root, across, over, EXACT, TWICE
    )  # fmt: skip


@triton.jit
def move_touched(
    user_table, user_mean, user_square, user_gradient, item_table, item_mean, item_square, item_gradient,
    user_clocks, user_marks, item_clocks, item_marks, touched,
    rates, decays, unbias, unbias_root, last, taken, step_at, parts, tally,
    n_users, n_items, batch, programs, blocks, dim, across, pitch,
    EXACT: tl.constexpr, D: tl.constexpr, TWICE: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """The rows of the batch, ROWS positions a program: first the tally, then users, positives, negatives.

    A row may stand at many positions; the first program that marks it with the number of this step moves it.
    """
    k, r = tl.program_id(0) - 1, tl.program_id(1).to(tl.int64)
    if k < 0:
        _tallied(parts + r * 4 * blocks, tally, r, tl.num_programs(1), blocks, STRIDE)
        if r == 0:
            tl.store(step_at, tl.load(step_at) + 1)  # read by the next step's first kernel only
    else:
        kind = k // programs
        b = (k % programs) * ROWS + tl.arange(0, ROWS)
        now = tl.load(taken).to(tl.int32)
        rate, decay = tl.load(rates + r), tl.load(decays + r)
        row = tl.load(touched + (r * 3 + kind) * batch + b, mask=b < batch, other=-1)
        if kind == 0:
            _moved_rows(
                user_table, user_mean, user_square, user_gradient, user_clocks, user_marks, row, now,
                r, n_users, dim, rate, decay, unbias, unbias_root, last, across, pitch, D, EXACT, False,
            )  # fmt: skip
        else:
            _moved_rows(
                item_table, item_mean, item_square, item_gradient, item_clocks, item_marks, row, now,
                r, n_items, dim, rate, decay, unbias, unbias_root, last, across, pitch, D, EXACT, TWICE,
            )  # fmt: skip
