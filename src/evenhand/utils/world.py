"""Several processes that do one piece of work: who they are, what they send each other, and which rows each one holds.

The processes are started by `torchrun`, which numbers them by rank; rank 0 speaks for all. What goes over the wire
are tensors and JSON, never pickled objects. A program that runs alone has a world of size 1, where nothing is sent.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from evenhand.utils import progress
from evenhand.utils.errors import InputError, RunError

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 256 * 2**20
"""Bytes of the largest message from one process to another; more is sent in several."""
TIMEOUT, TIMEOUT_SECONDS = "EVENHAND_TIMEOUT", 300.0
"""The environment variable that says, in seconds, how long a process waits for the others, and its default."""
USER_BLOCK, ITEM_BLOCK = 1024, 64
"""Rows of a table that lie together on one rank."""
_FEWEST_BLOCKS = 64
"""A small table has smaller blocks, so that its rows are spread as well."""
_LAST_WORD = timedelta(seconds=10)
"""How long a process waits at its end for rank 0 to have said why: a launcher ends them all when the first leaves."""
_REPORTED, _SAID, _HEARD = "evenhand/reported", "evenhand/said", "evenhand/heard"

Ids = TypeVar("Ids", np.ndarray, "Tensor")

_current: World | None = None


class LostError(RunError):
    """Another process left, or did not answer in time."""


@dataclass(frozen=True)
class Blocks:
    """Rows 0…n-1 dealt to ranks in blocks, one after the other: arithmetic instead of a table of owners."""

    n: int
    block: int
    size: int

    @staticmethod
    def of_users(n: int, size: int) -> Blocks:
        """The placement of users; that of items differs in the length of a block."""
        return Blocks(n, max(1, min(USER_BLOCK, n // _FEWEST_BLOCKS)), size)

    @staticmethod
    def of_items(n: int, size: int) -> Blocks:
        return Blocks(n, max(1, min(ITEM_BLOCK, n // _FEWEST_BLOCKS)), size)

    def owner(self, ids: Ids) -> Ids:
        """The rank that holds each row."""
        return ids // self.block % self.size

    def local(self, ids: Ids) -> Ids:
        """The place of each row among those of its owner, which are in ascending order.

        >>> Blocks(10, 2, 2).local(np.arange(10)).tolist()
        [0, 1, 0, 1, 2, 3, 2, 3, 4, 5]
        """
        return ids // (self.block * self.size) * self.block + ids % self.block

    def mine(self, rank: int) -> np.ndarray:
        """int64, ascending: the rows of a rank.

        >>> Blocks(10, 2, 2).mine(0).tolist()
        [0, 1, 4, 5, 8, 9]
        """
        first = np.arange(rank * self.block, self.n, self.block * self.size)
        ids = (first[:, None] + np.arange(self.block)).ravel()
        return ids[ids < self.n]

    def count(self, rank: int) -> int:
        """How many rows a rank holds."""
        whole, rest = divmod(self.n, self.block * self.size)
        return whole * self.block + min(max(rest - rank * self.block, 0), self.block)


@dataclass(frozen=True)
class Counts:
    """What an exchange will bring: the rows from each rank, and the most that any rank sends to any other."""

    receive: tuple[int, ...]
    most: int


class World:
    """The processes that work together; `World.current()` is the one that this process joined."""

    sends_to_itself: ClassVar[bool] = False
    """Let a world of one send all messages all the same, to itself: for measurements of the transport."""

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None) -> None:
        self.rank, self.size, self._store = rank, size, store
        self.joined = False
        """Whether a launcher started this process; it may be the only one."""
        self.sent = 0
        """Bytes sent to other ranks so far by `exchange`, `swap` and `gather`."""
        self._gpus: Any = None
        """The NCCL group, by which messages on GPUs go; None unless every rank has one of its own."""
        self.lone = size == 1
        """Whether nothing needs to be sent."""

    @property
    def has_gpus(self) -> bool:
        """Whether every process has a GPU of its own, the current one of torch."""
        return self._gpus is not None

    @staticmethod
    def alone() -> World:
        """One process; every method does nothing, or hands back what it was given."""
        return World()

    @staticmethod
    def current() -> World:
        """The world that this process joined; without that, it is alone."""
        return _current or World.alone()

    @staticmethod
    def from_environment() -> World:
        """Join the processes that `torchrun` started, or be alone where it started none or one."""
        global _current
        if _current is not None:
            return _current
        try:
            rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
            seconds = float(os.environ.get(TIMEOUT, TIMEOUT_SECONDS))
        except ValueError as problem:
            raise InputError(
                f"RANK, WORLD_SIZE and {TIMEOUT} in the environment must be numbers ({problem})."
            ) from problem
        if size == 1 and not World.sends_to_itself:
            world = World.alone()
            if "WORLD_SIZE" in os.environ:
                world.joined, _current = True, world
            return world
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # when one leaves, torch warns the others at length
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            raise InputError("this build of torch has no torch.distributed; several processes need one that has.")
        from torch._C._distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        patience = timedelta(seconds=seconds)
        with _connected():
            given, rank, size = next(rendezvous("env://", timeout=patience))
            # A launcher that starts all again may keep its store, with the addresses of processes that are gone.
            store = PrefixStore(f"start-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", given)
            group = PrefixStore("group", store)
            dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=patience)
        place = int(os.environ.get("LOCAL_RANK", rank))
        has_gpu = torch.cuda.is_available() and place < torch.cuda.device_count() and dist.is_nccl_available()
        world = World(rank, size, store)
        world.lone = False
        if int(world.total(torch.tensor(int(has_gpu)))) == size:
            torch.cuda.set_device(place)
            world._gpus = dist.new_group(backend="nccl", timeout=patience)
        world.joined, _current = True, world
        return world

    # ---- what is sent

    def counts(self, send: Sequence[int]) -> Counts:
        """What `swap` will bring, where each rank says how many rows it has for every rank."""
        if self.lone:
            return Counts(tuple(send), max(send))
        import torch
        import torch.distributed as dist

        said = torch.tensor([[n, max(send)] for n in send])
        heard = torch.empty_like(said)
        with _connected():
            dist.all_to_all_single(heard, said)
        return Counts(tuple(heard[:, 0].tolist()), int(heard[:, 1].max()))

    def swap(self, rows: Tensor, send: Sequence[int], counts: Counts | None = None) -> Tensor:
        """Send `rows`, of which the first `send[0]` go to rank 0 and so on; back come those for this rank, by rank.

        `counts` are asked for where they are not known.
        """
        if self.lone:
            return rows
        import torch
        import torch.distributed as dist

        if rows.dtype == torch.bool:
            return self.swap(rows.view(torch.uint8), send, counts).view(torch.bool)
        counts = counts or self.counts(send)
        group = self._gpus if rows.is_cuda else None
        width = rows.element_size() * prod(rows.shape[1:])
        limit = max(1, LARGEST // max(1, width))
        self.sent += width * (sum(send) - send[self.rank])
        rows, received = rows.contiguous(), rows.new_empty((sum(counts.receive), *rows.shape[1:]))
        with _connected():
            if counts.most <= limit:
                dist.all_to_all_single(received, rows, list(counts.receive), list(send), group=group)
                return received
            mine, theirs = rows.split(list(send)), received.split(list(counts.receive))
            for first in range(0, counts.most, limit):
                out = [part[first : first + limit] for part in mine]
                into = [part[first : first + limit] for part in theirs]
                piece = rows.new_empty((sum(map(len, into)), *rows.shape[1:]))
                lengths = [len(part) for part in into]
                dist.all_to_all_single(piece, torch.cat(out), lengths, [len(part) for part in out], group=group)
                for part, new in zip(into, piece.split(lengths), strict=True):
                    part.copy_(new)
        return received

    def exchange(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Send `parts[r]` to rank r; back comes what every rank had for this one. Of one dtype, of any lengths."""
        if self.lone:
            return list(parts)
        import torch

        send = [len(part) for part in parts]
        counts = self.counts(send)
        return list(self.swap(torch.cat(list(parts)), send, counts).split(list(counts.receive)))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, of integers: their order would change a sum of fractions."""
        if self.lone:
            return tensor
        import torch.distributed as dist

        if tensor.is_floating_point():
            raise TypeError("fractions have no sum that all orders agree on")
        summed = tensor.clone()
        with _connected():
            dist.all_reduce(summed, group=self._gpus if tensor.is_cuda else None)
        return summed

    def gather(self, mine: Tensor, everyone: Tensor) -> None:
        """Fill `everyone` [ranks, ...] with what each has as `mine` [...], which is of one shape for all."""
        import torch.distributed as dist

        self.sent += (self.size - 1) * mine.element_size() * mine.numel()
        with _connected():
            dist.all_gather_into_tensor(everyone.view(-1), mine.view(-1), group=self._gpus if mine.is_cuda else None)

    def agree(self, value: int) -> int:
        """The value of rank 0, everywhere."""
        return value if self.lone else int(self.share(int(value)))

    def share(self, document: Any) -> Any:
        """The JSON document of rank 0, everywhere; what the others give is left aside."""
        return self.gathered(document if self.rank == 0 else None)[0]

    def gathered(self, document: Any) -> list[Any]:
        """The JSON documents of all ranks, everywhere."""
        if self.lone:
            return [document]
        import torch

        packed = torch.frombuffer(bytearray(json.dumps(document).encode()), dtype=torch.uint8)
        return [json.loads(got.numpy().tobytes()) for got in self.exchange([packed] * self.size)]

    def barrier(self) -> None:
        """Wait until all have come here."""
        self.gathered(None)

    # ---- mistakes, and who speaks

    @contextmanager
    def together(self) -> Iterator[None]:
        """An `InputError` or `RunError` of one rank in the block is that of all at its end; nothing is sent within."""
        problem: InputError | RunError | None = None
        try:
            yield
        except (InputError, RunError) as found:
            if self.lone:
                raise
            problem = found
        for said in self.gathered(None if problem is None else [isinstance(problem, InputError), str(problem)]):
            if said is not None:
                raise (InputError if said[0] else RunError)(said[1]) from problem

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Around a whole command: an `InputError` of one rank becomes that of all, even if they wait for it."""
        try:
            yield
        except InputError as problem:
            if not self.lone:
                self._report(str(problem))
            raise
        except LostError as problem:
            with suppress(RuntimeError):
                self._store.wait([_REPORTED], timedelta(seconds=1))
                raise InputError(self._store.get(_REPORTED).decode()) from problem
            raise

    def _report(self, sentence: str) -> None:
        """Leave word, and hang up, so that those who wait for this rank look for it."""
        import torch.distributed as dist

        with suppress(RuntimeError):
            if not self._store.check([_REPORTED]):
                self._store.set(_REPORTED, sentence)
            dist.destroy_process_group()

    @property
    def restarted(self) -> bool:
        """Whether the launcher started all processes again because one had failed: they go on from a checkpoint."""
        return self.joined and int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0

    @property
    def speaks(self) -> bool:
        """Whether this process is the one that prints."""
        return self.rank == 0

    def hush(self) -> None:
        """From here on ranks other than 0 print nothing but the traceback of a failure of their own."""
        if self.speaks:
            return
        progress.quiet()
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        sys.excepthook = lambda *problem: traceback.print_exception(*problem, file=sys.__stderr__)

    def last_word(self) -> None:
        """Called when the reason for leaving has been printed: the others leave no sooner than rank 0 has said it."""
        if self.lone:
            return
        with suppress(RuntimeError):
            if not self.speaks:
                self._store.wait([_SAID], _LAST_WORD)
                self._store.add(_HEARD, 1)
                return
            self._store.set(_SAID, "")
            until = time.monotonic() + _LAST_WORD.total_seconds() / 2  # rank 0 may hold the place where they look
            while self._store.add(_HEARD, 0) < self.size - 1 and time.monotonic() < until:
                time.sleep(0.02)


@contextmanager
def _connected() -> Iterator[None]:
    """A partner that is gone shows as some error of torch's, with a long text; one sentence will do."""
    try:
        yield
    except RuntimeError as problem:
        raise LostError(
            "another process left or did not answer in time; what it said stands above, and --resume goes on."
        ) from problem
