"""A model folder in parts (format 2): each of several processes writes the rows of one stretch of users and items.

Rank 0 writes what there is once and, last, config.json with the stretch and the checksums of every part. One process
reads such a folder as any other (`evenhand.models.folder`).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.reading.shared_ids import exchange_ids
from evenhand.data.spread_log import SpreadLog
from evenhand.models.base import Model
from evenhand.models.card import model_card
from evenhand.models.folder import (
    PARTS,
    check_ours,
    facts_of,
    part_names,
    sha256,
    write_arrow,
    write_json,
    write_tensors,
)
from evenhand.utils.atomic import atomic_folder
from evenhand.utils.errors import RunError
from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import Blocks, World


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
        titles = {} if model.titles is None else {"title": model.titles.cast(pa.string())}
        write_arrow(place / "items.arrow", {"id": known.item_ids, **titles})
        write_json(place / "history.json", [dict(record) for record in model.history])
        (place / "README.md").write_text(model_card(model, folder.name), encoding="utf-8")
        checksums = {name: sha256(place / name) for name in ("items.arrow", "history.json")}
        for part in parts:
            checksums |= part.pop("checksums")
        write_json(place / "config.json", {"format": PARTS, **facts_of(model), "parts": parts, "checksums": checksums})
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
