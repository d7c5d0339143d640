"""All that changes while a model is trained: its tables, the loss, Adam, the samplers, and the place in the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders import MF
from evenhand.encoders.base import Encoder, RowsHeld, Tables, Vectors
from evenhand.objectives import BPR, Objective
from evenhand.samplers.base import BoundSampler, Sampler, bind, check_together
from evenhand.training.adam import Adam
from evenhand.training.engines import check_served
from evenhand.training.estimates import Work, work_of
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError
from evenhand.utils.world import Blocks, World

_RISING, _LEAST = 3, 0.1
"""Of the mean over epochs, an epoch counts 4 / (3 + its number), and at least a tenth: about the last quarter of the
epochs so far, and never more than ten."""
_ROWS_AT_ONCE = 2**18


class TrainState:
    """R replicas on one device, ready to train; `state` and `load_state` are for checkpoints."""

    def __init__(
        self,
        train: Interactions | SpreadLog,
        encoder: Encoder,
        samplers: Sequence[Sampler],
        seeds: Sequence[int],
        settings: Settings | Sequence[Settings],
        device: torch.device,
        *,
        hot: np.ndarray,
        held_out: Interactions | SpreadLog | None = None,
        objective: Objective | None = None,
    ) -> None:
        objective = objective or BPR()
        self._each = _each(settings, len(seeds))
        self.settings, self.seeds, self.device = self._each[0], tuple(seeds), device
        self.work = work_of(train, held_out, encoder, samplers, self.settings, objective, device)
        """What is asked for, by which the engine is chosen."""
        check_served(self.work)
        self.world = World.current()
        """The processes that train together; what follows is this one's part, users and items by their blocks."""
        log = spread(train, self.world) if self.work.ranks else None
        if log is not None and held_out is not None:
            held_out = spread(held_out, self.world)
        self.train = mine = _mine(train if log is None else log)
        self.held_out = None if held_out is None else _mine(held_out)
        engine = self.work.engine
        together = engine.startswith("triton") or (device.type == "cuda" and not engine.startswith("sharded"))
        self._asked = list(samplers)
        self.samplers = [bind(samplers, mine, device)] if together else _bind(samplers, mine, device)
        self.shares = objective.shares_negatives
        """Whether all positives of a batch have the same negatives."""
        if self.shares:
            self.samplers[0].draw_shared(torch.zeros(1, 1, dtype=torch.float64, device=device))  # or a reason not to
        self.model = encoder.start(mine, seeds, device) if log is None else _part(encoder, log, seeds, device)
        if objective.init_std is not None:
            self.model.rescale(objective.init_std)
        self.average = [torch.zeros_like(table) for table in self.model.raw()] if self.settings.average else None
        """The mean of the tables over the last epochs, where that is asked for."""
        self.averaged = torch.zeros((), dtype=torch.int64)
        """How many epochs went into it."""
        self.negatives = self.work.negatives
        self.decay = [encoder.weight_decay if s.weight_decay is None else s.weight_decay for s in self._each]
        self.l2 = [s.l2 or 0.0 for s in self._each]
        """λ of each replica for the rows of a batch."""
        self._lazy = _updates_lazily(self.work, self.model)
        self._new_loss = partial(objective.start, mine, self.model, self.seeds)
        self._start_loss()
        self.step = 0
        """The next batch of the epoch; not 0 where an epoch was interrupted."""
        self.tally = torch.zeros(3, len(self.seeds), dtype=torch.float64, device=device)
        """Sums over the epoch's steps so far: loss, hot share, false share."""
        usable = self.samplers[0].eligible.cpu().numpy()[mine.users]
        self.notes = _skipped_users(mine, usable, self.world)
        self.users = torch.from_numpy(mine.users[usable].astype(np.int64)).to(device)
        self.items = torch.from_numpy(mine.items[usable].astype(np.int64)).to(device)
        """int64 [N]: the pairs to learn from."""
        self.pairs = len(self.users)
        """How many pairs all processes learn from."""
        if log is not None:
            left = log.take(usable)
            self.pairs, self.numbers = len(left), torch.from_numpy(left.pair_numbers)
            """int64 [N]: the number of each pair among those of all processes."""
        if not self.pairs:
            raise InputError("there is nothing to train on: every user has consumed every item.")
        self.hot = torch.from_numpy(hot).to(device)
        self.held_out_keys = None if self.held_out is None else torch.from_numpy(self.held_out.keys).to(device)

    @property
    def steps(self) -> int:
        """Batches in an epoch; at least one, even where an incomplete batch would be dropped."""
        whole, rest = divmod(self.pairs, self.settings.positives)
        return max(1, whole if self.settings.drop_last else whole + (rest > 0))

    def rates(self, epoch: int) -> list[float]:
        """The learning rate of each replica in an epoch, counted from 0."""
        return [settings.lr_at(epoch) for settings in self._each]

    def finals(self) -> tuple[Vectors, ...]:
        """The model's vectors as the objective wants them in the end; several where validation picks one."""
        with torch.no_grad():
            return tuple(v.detach() for v in self.loss.finals(self.model.encode(*self.tables())))

    def tables(self) -> Vectors:
        """What stands for the model at the end of an epoch."""
        return Vectors(*self.average) if self.average and self.averaged else self.model.raw().detach()

    @torch.no_grad()
    def add_to_average(self) -> None:
        """Let the tables of a finished epoch into the mean over epochs."""
        if self.average is None or not self.loss.trains_encoder:
            return
        self.averaged += 1
        share = max(_LEAST, (1 + _RISING) / (int(self.averaged) + _RISING))
        for mean, table in zip(self.average, self.model.raw(), strict=True):
            pieces = zip(*(one.flatten(0, 1).split(_ROWS_AT_ONCE) for one in (mean, table)), strict=True)
            for mine, new in pieces:  # each rounding by itself, so that it does not depend on who holds which rows
                mine.mul_(1 - share).add_(new * share)

    def tensors(self, vectors: Vectors) -> tuple[Tensor, ...]:
        """What is worth keeping of this moment: the vectors and, where they differ, the tables."""
        differ = self.model.propagates or self.loss.transforms
        return (*vectors, *self.tables()) if differ else tuple(vectors)

    @torch.no_grad()
    def start_from(self, tables: tuple[Tensor, Tensor]) -> None:
        """Begin with these user and item tables [R, n, d] instead of random ones; nan rows stay random."""
        for mine, given in zip(self.model.raw(), tables, strict=True):
            if mine.shape != given.shape:
                raise InputError(f"tables of shape {list(given.shape)} do not fit {list(mine.shape)}.")
            given = given.to(mine.device)
            mine.copy_(torch.where(given.isnan(), mine, given))
        self._start_loss()

    @torch.no_grad()
    def go_on_with(self, replicas: Sequence[int]) -> None:
        """Let go of all but these; they go on as they would have beside the others."""
        chosen = list(replicas)
        for parameter in (*self.model.parameters(), *self.loss.parameters()):
            parameter.data = parameter.data[chosen]
        for optimiser in self.optimisers:
            optimiser.go_on_with(chosen)
        self.average = self.average and [mean[chosen] for mean in self.average]
        self.tally = self.tally[:, chosen]
        self._asked, self._each = [self._asked[r] for r in chosen], [self._each[r] for r in chosen]
        self.decay, self.l2 = [self.decay[r] for r in chosen], [self.l2[r] for r in chosen]
        self.seeds, self.settings = tuple(self.seeds[r] for r in chosen), self._each[0]
        self.loss.seeds = self.seeds
        if len(self.samplers) > 1:
            self.samplers = [self.samplers[r] for r in chosen]
        else:
            together, self.samplers = self.samplers[0], [bind(self._asked, self.train, self.device)]
            self.samplers[0].load_state({name: value[chosen] for name, value in together.state().items()})

    def _start_loss(self) -> None:
        """A loss for the tables as they are: it may take its own first values from them."""
        self.loss = self._new_loss()
        own = self.decay if self.loss.decays else [0.0] * len(self.seeds)
        self.optimisers = [
            Adam(self.model.parameters(), self.decay, lazy=self._lazy),
            Adam(self.loss.parameters(), own),
        ]

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs to go on as if it had never stopped."""
        named = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        named |= {f"loss.{name}": p.detach() for name, p in self.loss.named_parameters()}
        for i, optimiser in enumerate(self.optimisers):
            named |= {f"adam.{i}.{name}": value for name, value in optimiser.state().items()}
        for r, sampler in enumerate(self.samplers):
            named |= {f"sampler.{r}.{name}": value for name, value in sampler.state().items()}
        for name, mean in zip(("users", "items"), self.average or (), strict=False):
            named[f"average.{name}"] = mean
        return named | {"tally": self.tally, "averaged": self.averaged}

    @torch.no_grad()
    def load_state(self, state: dict[str, Tensor], step: int) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(state[f"model.{name}"])
        for name, parameter in self.loss.named_parameters():
            parameter.copy_(state[f"loss.{name}"])
        for i, optimiser in enumerate(self.optimisers):
            optimiser.load_state(under(f"adam.{i}.", state))
        for r, sampler in enumerate(self.samplers):
            sampler.load_state(under(f"sampler.{r}.", state))
        for name, mean in zip(("users", "items"), self.average or (), strict=False):
            mean.copy_(state[f"average.{name}"])
        self.averaged.copy_(state["averaged"])
        self.tally.copy_(state["tally"])
        self.step = step


def under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _each(settings: Settings | Sequence[Settings], replicas: int) -> list[Settings]:
    """The settings of every replica; side by side they may differ in learning rate and regularisation only."""
    each = [settings] * replicas if isinstance(settings, Settings) else list(settings)
    if len(each) != replicas:
        raise InputError(f"{replicas} seeds need as many settings, but {len(each)} were given.")
    for one in each:
        if replace(one, lr=each[0].lr, weight_decay=each[0].weight_decay, l2=each[0].l2) != each[0]:
            raise InputError("replicas that train side by side may differ in lr, weight_decay and l2 only.")
    return each


def _updates_lazily(work: Work, model: Tables) -> bool:
    """By the rows of all processes, so that their number decides nothing."""
    if work.settings.updates == "sparse" and model.propagates:
        raise InputError(
            "sparse updates need an encoder whose vectors are its rows, such as mf; "
            "in this one every vector depends on every row."
        )
    return work.sparse


def _bind(samplers: Sequence[Sampler], train: Interactions, device: torch.device) -> list[BoundSampler]:
    """One bound sampler for each replica, shared by equals.

    On a CPU torch rounds the tail of an array otherwise than its body. Choices and losses are therefore
    computed one replica at a time: taken at once, its last digits would depend on how many there are.
    """
    check_together(samplers)
    made: dict[Sampler, BoundSampler] = {}
    bound = []
    for sampler in samplers:
        if sampler not in made or made[sampler].state():
            made[sampler] = bind([sampler], train, device)
        bound.append(made[sampler])
    return bound


def _part(encoder: Encoder, log: SpreadLog, seeds: Sequence[int], device: torch.device) -> Tables:
    """The rows of the model that this process holds."""
    assert isinstance(encoder, MF)
    items = Blocks.of_items(log.n_items, log.world.size).mine(log.world.rank)
    return encoder.start(RowsHeld(log.n_users, log.n_items, log.user_numbers, items), seeds, device)


def _mine(part: Interactions | SpreadLog) -> Interactions:
    return part.mine if isinstance(part, SpreadLog) else part


def spread(part: Interactions | SpreadLog, world: World) -> SpreadLog:
    """This process's users, with the popularity that items have among all."""
    log = part if isinstance(part, SpreadLog) else SpreadLog.of(part, world)
    if world.size > 1:
        mine = replace(log.mine)
        mine.__dict__["popularity"] = log.popularity  # in place of the count among its own pairs
        log = SpreadLog(world, log.users, mine)
    return log


def _skipped_users(train: Interactions, usable: np.ndarray, world: World) -> tuple[str, ...]:
    lost = int(world.total(torch.tensor(len(np.unique(train.users[~usable])))))
    if not lost:
        return ()
    return (f"{lost:,} user{'s have' if lost > 1 else ' has'} nothing left to sample as a negative; skipped.",)
