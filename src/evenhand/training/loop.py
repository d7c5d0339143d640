"""The training loop: positives in random order, a negative for each, one step of Adam.

R replicas with seeds of their own train side by side; nothing that one of them draws or learns depends on
the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evenhand import keyed
from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, Vectors
from evenhand.errors import InputError, RunError
from evenhand.objectives.bpr import bpr
from evenhand.samplers.base import Batch, Sampler, bind, rows
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
    ) -> None:
        self.settings, self.seeds, self.device = settings, tuple(seeds), device
        self.sampler = bind(samplers, train, device)
        self.model = encoder.start(train, seeds, device)
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        usable = self.sampler.eligible.cpu().numpy()[train.users]
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

    def vectors(self) -> Vectors:
        with torch.no_grad():
            return self.model().detach()

    def run_epoch(self, epoch: int) -> EpochLog:
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.lr_at(epoch)
        order = keyed.permutations(self._keys(epoch, _ORDER), len(self._users))
        own = keyed.hashes(self._keys(epoch, _OWN), self.steps)
        shared = keyed.hashes(self._keys(epoch, _SHARED), self.steps)
        tally = torch.zeros(3, len(self.seeds), dtype=torch.float64, device=self.device)
        for step in range(self.steps):
            chosen = order[:, step * self.settings.batch : (step + 1) * self.settings.batch]
            tally += self._step(self._users[chosen], self._items[chosen], own[:, step], shared[:, step])
        loss, hot, false = (tally / self.steps).cpu().numpy()
        if not np.isfinite(loss).all():
            raise RunError(f"the loss became {loss[~np.isfinite(loss)][0]} in epoch {epoch + 1}; lower --lr.")
        return EpochLog(
            loss=loss,
            hot_share=hot,
            false_share=None if self._held_out is None else false,
            sampler={name: value.cpu().numpy() for name, value in self.sampler.diagnostics().items()},
        )

    def _step(self, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor) -> Tensor:
        """One batch of every replica; returns loss, hot share and false share [3, R]."""
        vectors = self.model()
        negatives = self._choose(vectors, users, positives, own, shared)
        user = rows(vectors.users, users)
        positive = (user * rows(vectors.items, positives)).sum(-1)
        negative = (user.unsqueeze(2) * rows(vectors.items, negatives)).sum(-1)
        loss = bpr(positive, negative)
        self.optimiser.zero_grad()
        loss.sum().backward()
        self.optimiser.step()
        with torch.no_grad():
            return torch.stack([loss.detach().double(), *self._diagnose(users, negatives)])

    @torch.no_grad()
    def _choose(
        self, vectors: Vectors, users: Tensor, positives: Tensor, own: Tensor, shared: Tensor
    ) -> Tensor:
        n = self.settings.negatives
        seen = self.model.raw() if self.settings.sampler_scores == "raw" else vectors
        return self.sampler.choose(
            Batch(
                users=users,
                positives=positives,
                uniforms=keyed.uniforms(own, users.shape[1], self.sampler.width(n)),
                shared=keyed.uniforms(shared, self.sampler.shared_width),
                user_vectors=seen.users.detach(),
                item_vectors=seen.items.detach(),
                n=n,
            )
        )

    def _diagnose(self, users: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
        hot = self._hot[negatives].double().mean((1, 2))
        if self._held_out is None or not len(self._held_out):
            return hot, torch.zeros_like(hot)
        wanted = users.unsqueeze(-1) * self._n_items + negatives
        place = torch.searchsorted(self._held_out, wanted).clamp_max(len(self._held_out) - 1)
        return hot, (self._held_out[place] == wanted).double().mean((1, 2))

    def _keys(self, epoch: int, purpose: int) -> Tensor:
        return keyed.keys(self.seeds, epoch, purpose, device=self.device)


def _skipped_users(train: Interactions, usable: np.ndarray) -> tuple[str, ...]:
    lost = len(np.unique(train.users[~usable]))
    if not lost:
        return ()
    return (
        f"{lost:,} user{'s have' if lost > 1 else ' has'} nothing left to sample as a negative; skipped.",
    )
