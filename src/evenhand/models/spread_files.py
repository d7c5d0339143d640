"""What several processes write together, each a part of it: a model folder, and lists for many users.

Of a model folder in parts (format 2) each writes the rows of one stretch of users and items; rank 0 writes what there
is once and, last, config.json with the stretch and the checksums of every part. One process reads such a folder as any
other (`evenhand.models.folder`). Which users' lists stand in which part depends on their number alone, so any number
of processes, one too, writes the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.spread_log import SpreadLog
from evenhand.data.write import Part, PartsFolder
from evenhand.models.base import Model
from evenhand.models.filters import Asked
from evenhand.models.folder import PARTS, check_ours, part_names, sha256, write_arrow, write_rest, write_tensors
from evenhand.utils.atomic import atomic_folder
from evenhand.utils.errors import InputError, RunError
from evenhand.utils.spread_arrays import exchange_arrays, exchange_ids
from evenhand.utils.world import USER_BLOCK, Blocks, World

_MOST_PARTS, _MOST_USERS, _TOGETHER = 64, 2**17, 64
"""Parts unless a number is asked for, users of one such part, and users that are not torn apart."""


def write_parts(model: Model, folder: Path, force: bool) -> None:
    """Write the folder, whole or not at all; called by all processes, whose file system is one."""
    known: Any = model.known
    world: World = known.world
    len(known)  # counted by all, before rank 0 writes it down
    names = [name for rank in range(world.size) for name in part_names(rank)]
    if not world.speaks:
        _write_part(model, known, Path(world.share(None)))
        world.barrier()
        return
    check_ours(folder)
    with atomic_folder(
        folder, [*names, "items.arrow", "history.json", "README.md", "config.json"], force=force
    ) as place:
        world.share(str(place))
        parts = _write_part(model, known, place)
        checksums = {name: found for part in parts for name, found in part.pop("checksums").items()}
        write_rest(model, place, folder.name, PARTS, checksums, parts=parts)
    world.barrier()


def _write_part(model: Model, known: SpreadLog, place: Path) -> list[dict[str, Any]]:
    """This rank's files; what config.json says of those of all ranks."""
    world, (rows, ids, pairs) = known.world, part_names(known.world.rank)
    sides = known.users, Blocks.of_items(known.n_items, world.size)
    tensors = {
        name: by_ranges(world, sides[name.startswith("item")], tensor.transpose(0, 1)).transpose(0, 1).contiguous()
        for name, tensor in model.tensors().items()
    }
    mine = known.user_numbers
    to = ranges(known.n_users, world.size)
    cuts = list(pairwise(np.searchsorted(mine, to).tolist()))
    users = pa.concat_arrays(exchange_ids(world, [known.mine.user_ids.slice(a, b - a) for a, b in cuts]))
    numbers = np.concatenate(exchange_arrays(world, [mine[a:b] for a, b in cuts]))
    ends = [(known.mine.indptr[a], known.mine.indptr[b]) for a, b in cuts]
    whose = np.repeat(mine, known.mine.activity).astype(np.int64)
    user, item = (
        np.concatenate(exchange_arrays(world, [column[a:b] for a, b in ends]))
        for column in (whose, known.mine.items.astype(np.int32))
    )
    order = np.argsort(user, kind="stable")
    with world.together():
        try:
            write_tensors(place / rows, tensors)
            write_arrow(place / ids, {"id": users.take(pa.array(np.argsort(numbers)))})
            write_arrow(place / pairs, {"user": pa.array(user[order]), "item": pa.array(item[order])})
        except OSError as problem:
            raise RunError(f"cannot write to {place.parent}: {problem.strerror or problem}.") from problem
    bounds = [ranges(n, world.size)[world.rank : world.rank + 2] for n in (known.n_users, known.n_items)]
    own = {name: sha256(place / name) for name in (rows, ids, pairs)}
    return world.gathered({"users": bounds[0], "items": bounds[1], "checksums": own})


def ranges(n: int, size: int) -> list[int]:
    """Where each of `size` stretches of 0…n-1 begins, and n."""
    return [rank * n // size for rank in range(size + 1)]


def by_ranges(world: World, placed: Blocks, rows: Tensor) -> Tensor:
    """Rows [n, …] from where training has them to stretches in a row: those of this rank's stretch."""
    to = ranges(placed.n, world.size)
    cuts = np.searchsorted(placed.mine(world.rank), to)
    parts = world.exchange([rows[a:b].contiguous() for a, b in pairwise(cuts.tolist())])
    first, last = to[world.rank : world.rank + 2]
    found = rows.new_empty((last - first, *rows.shape[1:]))
    for rank, part in enumerate(parts):
        theirs = placed.mine(rank)
        found[torch.from_numpy(theirs[(theirs >= first) & (theirs < last)] - first)] = part
    return found


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
