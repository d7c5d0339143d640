"""Lists for many users as a folder of parts, each of some consecutive users; several processes share the parts out.

Which users stand in which part depends on their number alone, so any number of processes writes the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from evenhand.data.write import Part, PartsFolder
from evenhand.models.base import Model
from evenhand.models.filters import Asked
from evenhand.utils.errors import InputError
from evenhand.utils.world import USER_BLOCK, World

_MOST_PARTS, _MOST_USERS, _TOGETHER = 64, 2**17, 64
"""Parts unless a number is asked for, users of one such part, and users that are not torn apart."""


def part_ranges(n_users: int, parts: int | None = None) -> list[range]:
    """The users of each part; without a number of parts, at least 1,024 and at most 131,072 users in each.

    >>> part_ranges(300, 2), len(part_ranges(10**6)), len(part_ranges(10**8))
    ([range(0, 192), range(192, 300)], 64, 763)
    """
    if parts is not None and parts < 1:
        raise InputError(f"lists are written in one part or more, not in {parts}.")
    most = parts or min(_MOST_PARTS, max(1, n_users // USER_BLOCK))
    step = -(-n_users // most)
    if parts is None:
        step = min(step, _MOST_USERS)
    step = max(_TOGETHER, -(-step // _TOGETHER) * _TOGETHER)
    return [range(begin, min(begin + step, n_users)) for begin in range(0, max(1, n_users), step)]


def write_lists(
    model: Model,
    asked: Asked,
    k: int,
    target: PartsFolder,
    *,
    parts: int | None = None,
    finished: Callable[[pa.Table], pa.Table] = lambda table: table,
    more: pa.Table | None = None,
    world: World | None = None,
    **how: Any,
) -> list[Part]:
    """Write the lists that `asked` asks for, and after them `more`; `finished` has the last word on each table.

    `how` is what `Model.lists` takes. All ranks call this together, and each writes some of the parts.
    """
    world = world or World.current()
    with world.together():
        if world.rank == 0:
            target.open()
    ranges = part_ranges(len(asked.users), parts)

    def table(number: int) -> pa.Table:
        if number == len(ranges):
            return more
        users = ranges[number]
        return model.lists(asked.cut(users.start, users.stop, number == len(ranges) - 1), k, **how)

    mine = []
    n_parts = len(ranges) + (more is not None and len(more) > 0)
    for number in range(world.rank, world.rank + n_parts, world.size):  # as many rounds on every rank
        # After each part all wait for the slowest, so that nobody waits longer than one part takes.
        with world.together():
            if number < n_parts:
                mine.append(target.write(number, finished(table(number))))
    written = [Part(**one) for of_rank in world.gathered([asdict(part) for part in mine]) for one in of_rank]
    with world.together():
        if world.rank == 0:
            target.close(written, k=k, users=len(asked.users) + len(asked.others))
    return written
