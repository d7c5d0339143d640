"""Sums over blocks of users that several processes share out, added up in the order in which one process would."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import World


def add_blocks(
    world: World, n_blocks: int, work: Callable[[int], None], sums: Callable[[], Sequence[np.ndarray]]
) -> None:
    """Call `work` with 0…n_blocks-1; it adds a block's share to `sums`, arrays of float64, which all ranks end up with.

    The last bits of a sum depend on its order, so the shares of the blocks travel, and not those of the ranks.
    """
    if world.size == 1:
        for block in range(n_blocks):
            work(block)
        return
    total = np.zeros(0)
    for first in range(0, n_blocks, world.size):
        block = first + world.rank
        # Who has no block in the first round looks at one all the same, and so knows what there is to sum.
        if block < n_blocks or first == 0:
            work(min(block, n_blocks - 1))
        share = np.concatenate([part.ravel() for part in sums()])
        for part in sums():
            part[...] = 0.0
        for one in exchange_arrays(world, [share if block < n_blocks else share[:0]] * world.size):
            total = total + one if len(total) and len(one) else (one if len(one) else total)
    end = 0
    for part in sums() if n_blocks else ():
        end += part.size
        part[...] = total[end - part.size : end].reshape(part.shape)
