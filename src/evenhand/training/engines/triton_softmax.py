# mypy: disable-error-code="no-untyped-def"
"""From scores to margins and slopes of the softmax on a GPU: one pass over each row, which stays on the chip.

Twin of `evenhand.objectives.softmax._margin_and_slopes`. Each negative is looked up among the user's own items, which
are few, by binary search.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from evenhand.objectives.base import Scored
from evenhand.objectives.softmax import SoftmaxLoss
from evenhand.objectives.softmax_relatives import AUCSoftmaxLoss, PSLLoss

_LONGEST = 8192
"""Negatives that a row may have here."""


def softmax_rows(loss: SoftmaxLoss, batch: Scored, x: Tensor, own: Tensor) -> Tensor | None:
    """Margins [r, B], with slopes left in x [r, B, n]; None for curves other than the exponential."""
    (replicas, size, n), offset = x.shape, SoftmaxLoss.log_weights(loss, x, batch, batch.negatives)
    if isinstance(loss, PSLLoss | AUCSoftmaxLoss) or n > _LONGEST:
        return None
    margin = torch.empty_like(own)
    _row[(replicas * size,)](
        x,
        own.detach().contiguous(),
        margin,
        batch.users.contiguous(),
        batch.negatives.contiguous(),
        margin if offset is None else offset.contiguous(),
        loss.indptr,
        loss.pairs,
        1 / loss.temperature,
        size,
        n,
        SHIFTED=offset is not None,
        WIDTH=triton.next_power_of_2(n),
    )
    return margin


@triton.jit
def _row(
    x, own, margin, users, negatives, offset, indptr, pairs, scale, size, n, SHIFTED: tl.constexpr, WIDTH: tl.constexpr
):
    """The scores of one positive's negatives become ∂margin/∂c_j; own items of the user count nothing."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, WIDTH)
    there = place < n
    shared = row // size * n + place
    item = tl.load(negatives + shared, there, 0)
    user = tl.load(users + row)
    begin, end = tl.load(indptr + user), tl.load(indptr + user + 1)
    low = tl.zeros([WIDTH], tl.int64) + begin
    high = tl.zeros([WIDTH], tl.int64) + end
    left = end - begin
    while left > 0:
        middle = (low + high) // 2
        open_ = low < high
        below = open_ & (tl.load(pairs + middle, open_, 0) < item)
        low = tl.where(below, middle + 1, low)
        high = tl.where(open_ & ~below, middle, high)
        left = left // 2
    counts = there & ((low == end) | (tl.load(pairs + low, low < end, 0) != item))
    z = (tl.load(x + row * n + place, there, 0.0) - tl.load(own + row)) * scale
    if SHIFTED:
        z += tl.load(offset + shared, there, 0.0)
    z = tl.where(counts, z, -float("inf"))
    top = tl.max(z, 0)
    some = top > -float("inf")
    top = tl.where(some, top, 0.0)
    grown = tl.exp(z - top)
    total = tl.where(some, tl.sum(grown, 0), 1.0)
    tl.store(x + row * n + place, grown / total * scale, there)
    tl.store(margin + row, tl.where(some, top + tl.log(total), -2e30))
