"""The training loop: positives in random order, a negative for each, one step of Adam.

R replicas with seeds of their own train side by side; nothing that one of them draws or learns depends on
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from evenhand import keyed
from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, Vectors
from evenhand.errors import InputError, RunError
from evenhand.objectives import BPR, Objective, Scored
from evenhand.samplers.base import Batch, BoundSampler, Sampler, bind, check_together, rows
from evenhand.training.adam import Adam
from evenhand.training.settings import Settings

_ORDER, _OWN, _SHARED = 1, 2, 3
"""What a key is for: the order of the pairs, the draws of a positive, the draws a batch shares."""


@dataclass(frozen=True)
class EpochLog:
    """What one pass over the data did, one value a replica."""

    loss: np.ndarray
    hot_share: np.ndarray
    """Share of hot items among the sampled negatives."""
    false_share: np.ndarray | None
    """Share of false negatives among them: items of the user that were held out; None without such a part."""
    sampler: dict[str, np.ndarray]
    """What the sampler reports of itself, such as the α it follows."""


class Loop:
    """Everything that changes while training, and the one method that changes it: `run_epoch`."""

    def __init__(
        self,
        train: Interactions,
        encoder: Encoder,
        samplers: Sequence[Sampler],
        seeds: Sequence[int],
        settings: Settings,
        device: torch.device,
        *,
        hot: np.ndarray,
        held_out: Interactions | None = None,
        objective: Objective | None = None,
    ) -> None:
        objective = objective or BPR()
        self.settings, self.seeds, self.device = settings, tuple(seeds), device
        self._decay = encoder.weight_decay if settings.weight_decay is None else settings.weight_decay
        self.samplers = _bind(samplers, train, device)
        self.model = encoder.start(train, seeds, device)
        self.negatives = settings.negatives or objective.negatives
        self._new_loss = partial(objective.start, train, self.model, self.seeds)
        self._start_loss()
        self.step = 0
        """The next batch of the epoch; not 0 where an epoch was interrupted."""
        self.tally = torch.zeros(3, len(self.seeds), dtype=torch.float64, device=device)
        """Sums over the epoch's steps so far: loss, hot share, false share."""
        usable = self.samplers[0].eligible.cpu().numpy()[train.users]
        self.notes = _skipped_users(train, usable)
        self._users = torch.from_numpy(train.users[usable].astype(np.int64)).to(device)
        self._items = torch.from_numpy(train.items[usable].astype(np.int64)).to(device)
        if not len(self._users):
            raise InputError("there is nothing to train on: every user has consumed every item.")
        self._hot = torch.from_numpy(hot).to(device)
        self._held_out = None if held_out is None else torch.from_numpy(held_out.keys).to(device)
        self._n_items = train.n_items

    @property
    def steps(self) -> int:
        """Batches in an epoch; at least one, even where an incomplete batch would be dropped."""
        whole, rest = divmod(len(self._users), self.settings.batch)
        return max(1, whole if self.settings.drop_last else whole + (rest > 0))

    def finals(self) -> tuple[Vectors, ...]:
        """The model's vectors as the objective wants them in the end; several where validation picks one."""
        with torch.no_grad():
            return tuple(v.detach() for v in self.loss.finals(self.model()))

    def tensors(self, vectors: Vectors) -> tuple[Tensor, ...]:
        """What is worth keeping of this moment: the vectors and, where they differ, the tables."""
        differ = self.model.propagates or self.loss.transforms
        return (*vectors, *self.model.raw().detach()) if differ else tuple(vectors)

    @torch.no_grad()
    def start_from(self, tables: tuple[Tensor, Tensor]) -> None:
        """Begin with these user and item tables [R, n, d] instead of random ones; nan rows stay random."""
        for mine, given in zip(self.model.raw(), tables, strict=True):
            if mine.shape != given.shape:
                raise InputError(f"tables of shape {list(given.shape)} do not fit {list(mine.shape)}.")
            given = given.to(mine.device)
            mine.copy_(torch.where(given.isnan(), mine, given))
        self._start_loss()

    def _start_loss(self) -> None:
        """A loss for the tables as they are: it may take its own first values from them."""
        self.loss = self._new_loss()
        self.optimisers = [
            Adam(self.model.parameters(), self._decay),
            Adam(self.loss.parameters(), self._decay if self.loss.decays else 0.0),
        ]

    def run_epoch(self, epoch: int, pause: Callable[[], bool] = lambda: False) -> EpochLog | None:
        """Run the epoch from where it stands; None if `pause` asked to stop after one of its steps."""
        order = keyed.permutations(self._keys(epoch, _ORDER), len(self._users))
        own = keyed.hashes(self._keys(epoch, _OWN), self.steps)
        shared = keyed.hashes(self._keys(epoch, _SHARED), self.steps)
        lr = self.settings.lr_at(epoch)
        self.loss.begin_epoch(epoch)
        while self.step < self.steps:
            begin = self.step * self.settings.batch
            chosen = order[:, begin : begin + self.settings.batch]
            users, positives = self._users[chosen], self._items[chosen]
            self.tally += self._learn(users, positives, own[:, self.step], shared[:, self.step], lr)
            self.step += 1
            if pause() and self.step < self.steps:
                return None
        loss, hot, false = (self.tally / self.steps).cpu().numpy()
        if not np.isfinite(loss).all():
            raise RunError(f"the loss became {loss[~np.isfinite(loss)][0]} in epoch {epoch + 1}; lower --lr.")
        self.step = 0
        self.tally.zero_()
        return EpochLog(
            loss=loss,
            hot_share=hot,
            false_share=None if self._held_out is None else false,
            sampler={name: value.cpu().numpy() for name, value in self._diagnostics().items()},
        )

    def _learn(self, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor, lr: float) -> Tensor:
        """One batch of every replica; returns loss, hot share and false share [3, R]."""
        vectors = self.model()
        negatives = self._choose(vectors, users, positives, own, shared)
        self.loss.prepare(self.model)
        batch = Scored(
            replicas=slice(0, len(self.seeds)),
            users=users,
            positives=positives,
            negatives=negatives,
            user=rows(vectors.users, users),
            positive=rows(vectors.items, positives),
            negative=rows(vectors.items, negatives),
        )
        loss = self.loss(batch) if users.is_cuda else torch.cat([self.loss(one) for one in batch.each()])
        loss.sum().backward()
        for optimiser in self.optimisers:
            optimiser.step(lr)
        with torch.no_grad():
            return torch.stack([loss.detach().double(), *self._diagnose(users, negatives)])

    @torch.no_grad()
    def _choose(
        self, vectors: Vectors, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor
    ) -> Tensor:
        n = self.negatives
        seen = self.model.raw() if self.settings.sampler_scores == "raw" else vectors
        first = self.samplers[0]
        batch = Batch(
            users=users,
            positives=positives,
            uniforms=keyed.uniforms(own, users.shape[1], first.width(n)),
            shared=keyed.uniforms(shared, first.shared_width),
            user_vectors=seen.users.detach(),
            item_vectors=seen.items.detach(),
            n=n,
        )
        parts = batch.split(len(self.seeds) // len(self.samplers))
        return torch.cat([one.choose(part) for one, part in zip(self.samplers, parts, strict=True)])

    def _diagnose(self, users: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        hot = self._hot[negatives].double().mean((1, 2))
        if self._held_out is None or not len(self._held_out):
            return hot, torch.zeros_like(hot)
        wanted = users.unsqueeze(-1) * self._n_items + negatives
        place = torch.searchsorted(self._held_out, wanted).clamp_max(len(self._held_out) - 1)
        return hot, (self._held_out[place] == wanted).double().mean((1, 2))

    def _diagnostics(self) -> dict[str, Tensor]:
        each = [one.diagnostics() for one in self.samplers]
        return {name: torch.cat([one[name] for one in each]) for name in each[0]}

    def _keys(self, epoch: int, purpose: int) -> Tensor:
        return keyed.keys(self.seeds, epoch, purpose, device=self.device)

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs to go on as if it had never stopped."""
        named = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        named |= {f"loss.{name}": p.detach() for name, p in self.loss.named_parameters()}
        for i, optimiser in enumerate(self.optimisers):
            named |= {f"adam.{i}.{name}": value for name, value in optimiser.state().items()}
        for r, sampler in enumerate(self.samplers):
            named |= {f"sampler.{r}.{name}": value for name, value in sampler.state().items()}
        return named | {"tally": self.tally}

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
        self.tally.copy_(state["tally"])
        self.step = step


def _bind(samplers: Sequence[Sampler], train: Interactions, device: torch.device) -> list[BoundSampler]:
    """One bound sampler for all replicas on a GPU, one for each on a CPU, shared by equals.

    On a CPU torch rounds the tail of an array otherwise than its body. Choices and losses are therefore
    computed one replica at a time: taken at once, its last digits would depend on how many there are.
    """
    if device.type == "cuda":
        return [bind(samplers, train, device)]
    check_together(samplers)
    made: dict[Sampler, BoundSampler] = {}
    bound = []
    for sampler in samplers:
        if sampler not in made or made[sampler].state():
            made[sampler] = bind([sampler], train, device)
        bound.append(made[sampler])
    return bound


def under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _skipped_users(train: Interactions, usable: np.ndarray) -> tuple[str, ...]:
    lost = len(np.unique(train.users[~usable]))
    if not lost:
        return ()
    return (
        f"{lost:,} user{'s have' if lost > 1 else ' has'} nothing left to sample as a negative; skipped.",
    )
