"""What training will need, said before it starts: the engine, memory with what would fit instead, and bytes sent.

Memory is that of the large arrays, to turn a run that cannot end well into one sentence. Rows that processes send are
counted by expectation: an item is asked for once by each rank that meets it, however often, so bytes fall where items
repeat.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders import Encoder, LightGCN
from evenhand.objectives import Objective, SLatK
from evenhand.objectives.softmax_relatives import PAIRS_AT_ONCE, USERS_AT_ONCE
from evenhand.samplers import AUCSampler, DynamicSampler, PopularitySampler, Sampler
from evenhand.samplers.auc import DRAWS, RANKED_AT_ONCE
from evenhand.training.engines import engine_name
from evenhand.training.engines.fused_tables import message_length
from evenhand.training.settings import Settings, is_sparse
from evenhand.utils.errors import InputError, RunError
from evenhand.utils.memory import available_bytes, gigabytes, is_shortage
from evenhand.utils.world import World

_FLOAT, _LONG = 4, 8
_BLOCK = 4
"""Users whose exact ranks a thread of the compiled engine finds together."""
_EVALUATED_AT_ONCE = 2**24
"""Scores of a chunk of users, while lists are made."""


@dataclass(frozen=True)
class Work:
    """The sizes of a training run, and what shapes its arrays."""

    n_users: int
    n_items: int
    pairs: int
    held_out: int
    seeds: int
    encoder: Encoder
    sampler: Sampler
    settings: Settings
    objective: Objective
    device: str
    """cpu or cuda"""
    ranks: int = 0
    """How many processes share it by rows; 0 where it is not split."""

    @property
    def negatives(self) -> int:
        return self.settings.negatives or self.objective.negatives

    @cached_property
    def engine(self) -> str:
        return engine_name(self)

    @property
    def sparse(self) -> bool:
        """Whether only rows move that a batch holds."""
        return is_sparse(self.settings.updates, self.encoder, self.n_users + self.n_items)

    @property
    def item_bytes(self) -> int:
        """Item rows with Adam's mean and square and whole-number sums of their gradients, and two numbers a row."""
        return self.seeds * self.n_items * (self.encoder.dim * (3 * _FLOAT + _LONG) + 2 * _FLOAT)

    @property
    def draws(self) -> int | None:
        """Draws that a rank rests on, 0 for the exact one; None where the sampler asks for no ranks."""
        return self.sampler.draws(self.n_items) if isinstance(self.sampler, AUCSampler) else None

    def needs(self) -> dict[str, int]:
        """Bytes of the large arrays by what they are for."""
        rows = self._split(self.seeds * (self.n_users + self.n_items))
        tables = rows * self.encoder.dim * _FLOAT
        layers = self.encoder.layers if isinstance(self.encoder, LightGCN) else 0
        found = {
            "tables": tables,
            "Adam's mean and square": 2 * tables + (rows * _FLOAT if self.sparse else 0),
            "best epoch so far": tables * (2 if layers else 1),
            "mean over epochs": tables * bool(self.settings.average),
            "gradients": self._gradients(rows, tables),
            "pairs and their order": self._pairs(),
            "ranks": self._ranks(),
            "evaluation": self._evaluation(),
            "rows on their way": self._exchanged(),
            "where the top k begin": self._edges(),
        }
        if self.objective.shares_negatives:
            # Scores and a mask, and on a GPU the keys it is looked up by; a CPU takes one replica at a time.
            each, at_once = (_FLOAT + 1 + _LONG, self.seeds) if self.device == "cuda" else (_FLOAT + 1, 1)
            found["shared negatives"] = at_once * self.settings.positives * self.negatives * each
        if layers:
            # Each layer and the vectors, once forwards and once backwards, and the graph in both directions.
            found["graph"] = 2 * (layers + 2) * tables + 2 * self.pairs * (_LONG + _FLOAT)
        return {what: size for what, size in found.items() if size}

    def _split(self, size: int) -> int:
        """The part of one process."""
        return -(-size // (self.ranks or 1))

    def _exchanged(self) -> int:
        """Over several processes: where each item lies, popularity and its like, and rows on their way."""
        if not self.ranks:
            return 0
        positives = self._split(self.settings.positives)
        if self.engine == "triton-ranks":
            return (
                self.item_bytes + self.seeds * (self.ranks + 1) * positives * message_length(self.encoder.dim) * _FLOAT
            )
        shared = self.objective.shares_negatives
        rows = min(self.n_items, positives + self.negatives if shared else positives * (1 + self.draws_each))
        return self.seeds * (self.n_items * (_FLOAT + 1 + _LONG) + 3 * rows * (self.encoder.dim * _FLOAT + _LONG))

    def _edges(self) -> int:
        """SL@K: β with Adam's places for it; for a block of users their scores, their items, and the rows of these."""
        if not isinstance(self.objective, SLatK):
            return 0
        pairs, width = min(PAIRS_AT_ONCE, self._split(self.pairs)), self.objective.shared + self.objective.k
        rows = 3 * min(self.n_items, pairs) * self.encoder.dim if self.ranks > 1 else 0
        beta = 3 * self.seeds * self._split(self.n_users)
        return (beta + rows + 2 * USERS_AT_ONCE * width) * _FLOAT + 6 * pairs * _LONG

    @property
    def draws_each(self) -> int:
        """Items that each positive looks at beside itself."""
        if isinstance(self.sampler, AUCSampler):
            return self.sampler.candidates + 2 * self.sampler.probes
        return getattr(self.sampler, "candidates", 1)

    @property
    def total(self) -> int:
        return sum(self.needs().values())

    def _evaluation(self) -> int:
        """A chunk of scores, and keys by which known and held-out pairs are found."""
        scores = min(_EVALUATED_AT_ONCE, self.n_users * self.n_items)
        return scores * _FLOAT + self._split(2 * self.pairs + self.held_out) * (_LONG + 2 * _FLOAT)

    def _gradients(self, rows: int, tables: int) -> int:
        moved = 3 * self.settings.positives * self.seeds * self.encoder.dim
        if self.engine.startswith("sharded"):  # and their sums in whole numbers
            return moved * (_FLOAT + _LONG) + rows * _FLOAT
        if self.engine in ("numba", "rows"):
            return moved * _FLOAT + rows * _FLOAT
        return tables * 2 if self.engine.startswith("triton") else tables + 3 * moved * _FLOAT

    def _pairs(self) -> int:
        """Orders of the epoch, the sort that makes one, users and items of every pair, and the distributions."""
        pairs = self._split(self.pairs)
        each = _LONG + _FLOAT * self.engine.startswith("triton")
        order = self.seeds * pairs * each * (2 if self.ranks else 1)
        weights = pairs * _LONG * (isinstance(self.sampler, PopularitySampler) + (self.engine != "numba"))
        return order + pairs * (3 * _LONG + 2 * _LONG + 2 * _FLOAT) + weights + 3 * self._split(self.n_users) * _LONG

    def _ranks(self) -> int:
        if self.draws is None:
            return 0
        prior = self.seeds * self.n_items * _FLOAT
        among = self.draws or self.n_items
        beside = self.seeds * self.encoder.dim * among * _FLOAT
        if self.engine == "numba":
            return prior + beside + (os.cpu_count() or 1) * _BLOCK * among * _FLOAT
        if self.engine.startswith("triton"):
            return prior + beside
        return prior + (beside if self.draws else 4 * RANKED_AT_ONCE[self.device] * _FLOAT)


def over_ranks(settings: Settings) -> bool:
    """Whether rows are split among processes, be it one: where a launcher started them, or the settings say so."""
    return World.current().joined or settings.engine == "sharded"


def work_of(
    train: Interactions | SpreadLog,
    held_out: Interactions | SpreadLog | None,
    encoder: Encoder,
    samplers: Sequence[Sampler],
    settings: Settings,
    objective: Objective,
    device: torch.device,
) -> Work:
    """The work of training these samplers side by side."""
    return Work(
        n_users=train.n_users,
        n_items=train.n_items,
        pairs=len(train),
        held_out=0 if held_out is None else len(held_out),
        seeds=len(samplers),
        encoder=encoder,
        # Side by side, some may follow α and some not; one that does decides.
        sampler=next((s for s in samplers if getattr(s, "alpha", None) == "auto"), samplers[0]),
        settings=settings,
        objective=objective,
        device=device.type,
        ranks=World.current().size if over_ranks(settings) else 0,
    )


def check_fits(work: Work, device: torch.device) -> None:
    """Refuse a run that memory cannot hold, and name what would fit; where nothing is known, go on."""
    left = available_bytes(device)
    if left is None or work.total <= left:
        return
    ways = _first_of_each([text for text, smaller in _smaller(work) if smaller.total <= left])
    way = f"{' or '.join(ways[:2])} would fit" if ways else "take a machine with more, or leave out rare items"
    largest = max(work.needs().items(), key=lambda need: need[1])
    raise InputError(
        f"training needs about {gigabytes(work.total)} of memory ({gigabytes(largest[1])} for {largest[0]}), "
        f"but {gigabytes(left)} are free on {device.type}; {way}."
    )


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """Running out of memory is no bug: say what would fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_shortage(problem):
            raise
        raise RunError(
            "there is not enough memory for this; lower --dim, --batch or --seeds, or use --ecdf 64."
        ) from problem


def _smaller(work: Work) -> Iterator[tuple[str, Work]]:
    """The same work made smaller, the mildest way first, each as the option that asks for it."""
    if isinstance(work.sampler, AUCSampler) and work.draws == 0:
        yield f"--ecdf {DRAWS}", replace(work, sampler=replace(work.sampler, ecdf=DRAWS))
    for seeds in _halved(work.seeds):
        yield f"--seeds {seeds}", replace(work, seeds=seeds)
    for dim in _halved(work.encoder.dim):
        yield f"--dim {dim}", replace(work, encoder=replace(work.encoder, dim=dim))
    if work.seeds > 1:
        for dim in _halved(work.encoder.dim):
            yield f"--seeds 1 --dim {dim}", replace(work, seeds=1, encoder=replace(work.encoder, dim=dim))


def _first_of_each(ways: Sequence[str]) -> list[str]:
    """The mildest of the ways that use the same option.

    >>> _first_of_each(["--seeds 2", "--seeds 1", "--dim 32"])
    ['--seeds 2', '--dim 32']
    """
    return list({text.split()[0] if text.count("--") == 1 else "both": text for text in ways[::-1]}.values())[::-1]


def _halved(size: int) -> Sequence[int]:
    """
    >>> _halved(10)
    [5, 2, 1]
    """
    return [size >> shift for shift in range(1, size.bit_length())]


# ---- bytes between processes

FEWEST = 8192
"""Positives of a rank and step below which ranks mostly wait for each other."""
_INDEX, _WHOLE = 4, 8


@dataclass(frozen=True)
class Wire:
    """The traffic of one rank, per positive of its own."""

    positives: float
    rows: float
    """Item rows that it asks for."""
    bytes: float
    """Bytes that it sends: what it asks, the rows it answers with, and gradients."""


def wire_of(work: Work, popularity: np.ndarray) -> Wire:
    """The traffic of training over `work.ranks` processes; `popularity` [n_items] counts the pairs of all."""
    own = min(work.settings.positives, work.pairs) / work.ranks
    if work.engine == "triton-ranks":  # what a positive says goes to all others
        return Wire(own, 0, work.seeds * (work.ranks - 1) * message_length(work.encoder.dim) * _FLOAT)
    share = popularity / max(1, popularity.sum())
    positive = own * share
    uniform, shared, known = _looked_at(work)
    asked = _distinct(positive * (1 + known) + _drawn(own * uniform, work)[0] + shared / work.n_items)
    chosen, once_chosen = _drawn(own if uniform else 0.0, work)
    back = positive + chosen  # positives, and the negatives that were chosen
    once = float((np.exp(-back) * (positive + once_chosen)).sum())
    several = _distinct(back) - once
    dim = work.encoder.dim
    sent = asked * (_INDEX + dim * _FLOAT) + once * (_INDEX + dim * _FLOAT)
    sent += several * (2 * _INDEX + dim * _WHOLE)
    if work.objective.shares_negatives:
        sent += _distinct(np.full(work.n_items, shared / work.n_items)) * dim * _WHOLE
    renewed = _renewed(work, share)
    rows, sent = asked / own + renewed, sent / own + renewed * (_INDEX + dim * _FLOAT)
    abroad = 1 - 1 / work.ranks  # the rest stays where it is
    return Wire(own, work.seeds * rows, work.seeds * abroad * sent)


def _renewed(work: Work, share: np.ndarray) -> float:
    """Item rows a positive, on average over epochs, from which SL@K renews β by blocks of users now and then."""
    of = work.objective
    if not isinstance(of, SLatK) or of.k >= work.n_items:
        return 0
    mine = work.pairs / work.ranks
    block = min(mine, PAIRS_AT_ONCE, USERS_AT_ONCE * work.pairs / work.n_users)
    return (_distinct(block * share) / block + of.shared / mine) / of.refresh


def _looked_at(work: Work) -> tuple[float, float, float]:
    """Items that a positive looks at, drawn uniformly; those that a batch shares; those among the user's own."""
    sampler = work.sampler
    if work.objective.shares_negatives:
        return 0, work.negatives, 0
    if isinstance(sampler, AUCSampler):
        return sampler.candidates + sampler.probes, work.draws or 0, sampler.probes
    return (sampler.candidates if isinstance(sampler, DynamicSampler) else 1), 0, 0


def _drawn(n: float, work: Work) -> tuple[float, float]:
    """Of n uniform draws: -log of the chance that an item is not among them, and that chance's ratio to once.

    Of a pool, an item is drawn only where it has a place in it, and then as often as the places are drawn.
    """
    each, pool = n / work.n_items, getattr(work.sampler, "pool", None)
    if not pool:
        return each, each
    return pool / work.n_items * -float(np.expm1(-n / pool)), each * float(np.exp(-n / pool))


def _distinct(expected: np.ndarray) -> float:
    """How many items are met at all, where each is met so often on average."""
    return float(-np.expm1(-expected).sum())
