# mypy: disable-error-code="no-untyped-def"
"""Keyed random numbers and draws of unobserved items in Triton: the same numbers as in torch.

Twins of `evenhand.utils.keyed` and of the distributions in `evenhand.samplers`; given a key they draw the same items.
Importing this module needs Triton.
"""

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)
_FRACTION = tl.constexpr(2.0**-53)

UNIFORM, WEIGHTED, GROUPED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Which distribution the items come from."""


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
