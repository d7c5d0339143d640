"""Item rows that lie on several ranks: fetched from their owners, with gradients returned to them, in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evenhand.utils.world import Blocks, Counts

if TYPE_CHECKING:
    from evenhand.training.trainer import Trainer

_UNIT, _MOST = 2.0**50, 2.0**12
"""Parts of 1 that gradients are counted in, and where a gradient is cut, as in `sharded_steps`."""


@dataclass(frozen=True)
class Fetched:
    """Item rows from their owners."""

    table: Tensor
    """float32 [m, d]"""
    at: list[Tensor]
    """Where in the table each of the ids that were asked for lies."""
    owner: Tensor | None = None
    """int64 [m]: the rank that has each; None where all are this rank's."""
    row: Tensor | None = None
    """int [m]: which row it is there."""


class ItemRows:
    """The rows of all replicas' item tables, dealt to ranks in blocks."""

    def __init__(self, trainer: Trainer) -> None:
        self.world, self.n, self.replicas = trainer.world, trainer.train.n_items, len(trainer.seeds)
        self.blocks = Blocks.of_items(self.n, self.world.size)
        sizes = [self.blocks.count(rank) for rank in range(self.world.size)]
        self.sizes = torch.tensor(sizes, device=trainer.device)
        """int64 [ranks]: how many rows a replica has on each."""
        self.index = torch.int32 if self.replicas * max(sizes) < 2**31 else torch.int64
        """The type that rows are asked for in."""

    def fetch(self, items: Tensor, asked: Sequence[tuple[int, Tensor]]) -> Fetched:
        """Rows by replica and ids, where `items` [R, own rows, d] are those of this rank; each is asked for once."""
        table, n = items.detach().view(-1, items.shape[-1]), self.n
        if self.world.lone:
            return Fetched(table, [r * n + ids for r, ids in asked])
        most = self.replicas * n
        keys = torch.cat([(r * n + ids).flatten() for r, ids in asked])
        distinct, where = torch.unique(self.blocks.owner(keys % n) * most + keys, return_inverse=True)
        owner, key = distinct // most, distinct % most
        row = (key // n * self.sizes[owner] + self.blocks.local(key % n)).to(self.index)
        send = torch.bincount(owner, minlength=self.world.size).tolist()
        counts = self.world.counts(send)
        answer = table.index_select(0, self.world.swap(row, send, counts))
        came = self.world.swap(answer, counts.receive, Counts(tuple(send), counts.most))
        parts = where.split([ids.numel() for _, ids in asked])
        at = [part.view(ids.shape) for part, (_, ids) in zip(parts, asked, strict=True)]
        return Fetched(came, at, owner, row)

    def give_back(self, rows: Fetched, at: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Send gradients of fetched rows to their owners; back come rows of this rank, with gradients for them.

        A row with one contribution goes as float32, of which the owner makes the same whole number.
        """
        if rows.owner is None or rows.row is None:
            return at, units
        times = torch.bincount(at, minlength=len(rows.table))
        sums = torch.zeros_like(rows.table, dtype=torch.int64).index_add_(0, at, units)
        found: list[Tensor] = []
        values: list[Tensor] = []
        for chosen in ((times == 1).nonzero().squeeze(1), (times > 1).nonzero().squeeze(1)):
            send = torch.bincount(rows.owner[chosen], minlength=self.world.size).tolist()
            counts = self.world.counts(send)
            found.append(self.world.swap(rows.row[chosen], send, counts).long())
            given = sums[chosen] if values else from_units(sums[chosen])
            came = self.world.swap(given, send, counts)
            values.append(came if values else in_units(came))
        return torch.cat(found), torch.cat(values)


def in_units(values: Tensor) -> Tensor:
    """int64: numbers in parts of 1 / UNIT; nan is 0."""
    return (values.double().nan_to_num_(0.0).clamp_(-_MOST, _MOST) * _UNIT).round_().long()


def from_units(sums: Tensor) -> Tensor:
    """float32"""
    return (sums.double() / _UNIT).float()
