"""What a sampler is: a small validated set of parameters that, bound to a training log, picks negatives.

The parameters (`Sampler`) are plain values. Binding makes the tables a draw needs; a bound sampler turns
uniform numbers into items, for one model (`sample`) or for R replicas side by side (`choose`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.samplers.unobserved import UnobservedDistribution
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

NOT_SHARED = "this objective draws its negatives once for a whole batch"
MOST_DRAWN = 10_000
"""Items that may be drawn for a positive: beyond, the exact rank and the hardest negative cost less."""


@dataclass(frozen=True)
class Sampler(ABC):
    """How negatives are chosen. Subclasses add parameters and check them in `__post_init__`."""

    structural: ClassVar[tuple[str, ...]] = ()
    """Parameters that fix the shape of a draw: replicas that train side by side must agree on them."""

    def bind(self, train: Interactions, device: torch.device | str = "cpu") -> BoundSampler:
        """Prepare to draw negatives for the users of `train`."""
        return bind([self], train, device)

    @classmethod
    @abstractmethod
    def bind_replicas(cls, replicas: Sequence[Any], train: Interactions, device: torch.device | str) -> BoundSampler:
        """Bind one sampler a replica; called through `bind`, which has checked that they fit together."""


@dataclass(frozen=True)
class Batch:
    """What a sampler may look at when it chooses: R replicas, B positives each, n negatives wanted."""

    users: Tensor
    """int64 [R, B]"""
    positives: Tensor | None
    """int64 [R, B]"""
    uniforms: Tensor
    """float64 [R, B, width(n)]: the randomness of each positive."""
    shared: Tensor
    """float64 [R, shared_width]: the randomness all positives of a batch share."""
    user_vectors: Tensor | None
    """[R, n_users, d]"""
    item_vectors: Tensor | None
    """[R, n_items, d]"""
    n: int = 1

    def split(self, replicas: int) -> list[Batch]:
        """The same batch in parts of `replicas` replicas."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "n"}
        parts = {name: t.split(replicas) for name, t in tensors.items() if t is not None}
        return [
            replace(self, **{name: pieces[i] for name, pieces in parts.items()}) for i in range(len(parts["users"]))
        ]


@dataclass(frozen=True)
class Looked:
    """The items that a choice looks at; which they are depends on no vector."""

    items: Tensor
    """int64 [R, B, w]: what each positive looks at."""
    shared: Tensor
    """int64 [R, s]: what all of a batch look at."""
    rows: Tensor
    """Like items: the rows of `Batch.item_vectors` with their vectors. Where that is the whole table, the items."""
    shared_rows: Tensor


class BoundSampler(ABC):
    """A sampler with its tables, for `replicas` replicas on one device."""

    shared_width: int = 0
    needs_vectors: bool = False
    distribution: UnobservedDistribution
    """What negatives are drawn from."""

    def __init__(self, train: Interactions, device: torch.device | str, replicas: int) -> None:
        self.device = torch.device(device)
        self.replicas = replicas
        self.n_users, self.n_items = train.n_users, train.n_items
        activity = torch.from_numpy(train.activity).to(self.device)
        self.observed = activity
        """int64 [n_users]: how many items each user has, |I_u⁺|."""

    @property
    def eligible(self) -> Tensor:
        """bool [n_users]: whether there is anything to draw for a user; here, whether the distribution has any mass."""
        return self.distribution.mass > 0

    @abstractmethod
    def width(self, n: int) -> int:
        """How many uniform numbers the choice of n negatives for one positive takes."""

    @abstractmethod
    def choose(self, batch: Batch) -> Tensor:
        """int64 [R, B, n]: the negatives."""

    def draw_shared(self, uniforms: Tensor) -> Tensor:
        """int64, like uniforms: items for a whole batch, from a distribution over the catalogue."""
        raise InputError(f"{NOT_SHARED}, and this sampler chooses them for each positive; use rns or pns.")

    def log_probability(self, items: Tensor) -> Tensor:
        """float32, like items: the logarithm of the probability of drawing each for a whole batch."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must keep for the next choice to be the same; empty for most samplers."""
        return {}

    def load_state(self, state: dict[str, Tensor]) -> None:
        if state:
            raise InputError(f"this sampler has no state, but {sorted(state)} were given.")

    def diagnostics(self) -> dict[str, Tensor]:
        """Values per replica [R] worth logging each epoch."""
        return {}

    def sample(
        self,
        users: Tensor,
        user_vectors: Tensor | None = None,
        item_vectors: Tensor | None = None,
        positives: Tensor | None = None,
        n: int = 1,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Negatives int64 [B, n] for the users [B] of one model, in anyone's own training loop.

        `user_vectors` [n_users, d] and `item_vectors` [n_items, d] are the model's current vectors; samplers
        that do not look at scores work without them. `generator` makes the draw repeatable.
        """
        if self.replicas != 1:
            raise InputError("sample() serves one model; this sampler was bound for several replicas.")
        users = torch.as_tensor(users).to(self.device, torch.int64)
        self._check(users, user_vectors, item_vectors, n)

        def uniforms(*shape: int) -> Tensor:
            where = generator.device if generator is not None else self.device
            drawn = torch.rand(shape, generator=generator, device=where, dtype=torch.float64)
            return drawn.to(self.device)

        with torch.no_grad():
            return self.choose(
                Batch(
                    users=users.unsqueeze(0),
                    positives=None if positives is None else positives.to(self.device).unsqueeze(0),
                    uniforms=uniforms(1, len(users), self.width(n)),
                    shared=uniforms(1, self.shared_width),
                    user_vectors=None if user_vectors is None else user_vectors.detach().unsqueeze(0),
                    item_vectors=None if item_vectors is None else item_vectors.detach().unsqueeze(0),
                    n=n,
                )
            ).squeeze(0)

    def _check(self, users: Tensor, user_vectors: Tensor | None, item_vectors: Tensor | None, n: int) -> None:
        if n < 1:
            raise InputError(f"n must be at least 1, not {n}.")
        if len(users) and not (int(users.min()) >= 0 and int(users.max()) < self.n_users):
            raise InputError(f"user indices must lie in 0…{self.n_users - 1}.")
        if not bool(self.eligible[users].all()):
            lost = users[~self.eligible[users]][0].item()
            raise InputError(
                f"user index {lost} has no item that could be a negative (or no training item); leave it out."
            )
        if self.needs_vectors:
            for kind, vectors, size in (
                ("user", user_vectors, self.n_users),
                ("item", item_vectors, self.n_items),
            ):
                if vectors is None or vectors.ndim != 2 or len(vectors) != size:
                    raise InputError(f"this sampler looks at scores: give {kind}_vectors of shape [{size}, d].")


class LookingSampler(BoundSampler):
    """A bound sampler that first looks at items and then picks one: between the two, vectors can be sent for."""

    @abstractmethod
    def look(self, users: Tensor, uniforms: Tensor, n: int, shared: Tensor) -> Tensor:
        """int64 [R, B, w]: items for users [R, B] from uniforms [R, B, width(n)], and what `look_shared` gave."""

    def look_shared(self, uniforms: Tensor) -> Tensor:
        """int64 [R, s]: items for a whole batch, from uniforms [R, shared_width]."""
        return (uniforms * self.n_items).long()

    def pick(self, batch: Batch, looked: Looked) -> Tensor:
        """int64 [R, B, n]: the columns of `looked.items` that become negatives; here, all n of them."""
        return torch.arange(batch.n, device=self.device).expand(looked.items.shape)

    def choose(self, batch: Batch) -> Tensor:
        shared = self.look_shared(batch.shared)
        items = self.look(batch.users, batch.uniforms, batch.n, shared)
        return items.gather(-1, self.pick(batch, Looked(items, shared, items, shared)))


def bind(samplers: Sequence[Sampler], train: Interactions, device: torch.device | str = "cpu") -> BoundSampler:
    """Bind one sampler per replica; their parameters may differ where they do not fix a draw's shape."""
    if not isinstance(train, Interactions):
        raise InputError(f"a sampler is bound to Interactions, not to {type(train).__name__}.")
    if train.n_items < 2:
        raise InputError(f"negatives need at least two items; the data has {train.n_items}.")
    check_together(samplers)
    return type(samplers[0]).bind_replicas(samplers, train, device)


def check_together(samplers: Sequence[Sampler]) -> None:
    """Whether these samplers can serve replicas that train side by side."""
    first = samplers[0]
    for other in samplers[1:]:
        if type(other) is not type(first):
            raise InputError("replicas that train side by side must use the same kind of sampler.")
        for name in first.structural:
            if getattr(other, name) != getattr(first, name):
                raise InputError(f"replicas that train side by side must agree on '{name}'.")


def stacked(samplers: Sequence[Sampler], name: str, device: torch.device) -> Tensor:
    """float32 [R, 1, 1]: one parameter of every replica, ready to broadcast over [R, B, M]."""
    assert name in {f.name for f in fields(samplers[0])}
    return torch.tensor([getattr(s, name) for s in samplers], device=device).float().view(-1, 1, 1)


def rows(table: Tensor, index: Tensor) -> Tensor:
    """table [R, N, d] at index [R, ...] → [R, ..., d], every replica from its own table."""
    replicas, size, dim = table.shape
    offset = torch.arange(replicas, device=table.device).view(-1, *[1] * (index.ndim - 1)) * size
    return torch.nn.functional.embedding(index + offset, table.reshape(replicas * size, dim))


def is_in(keys: Tensor, wanted: Tensor) -> Tensor:
    """bool, like wanted: whether each is among the ascending keys."""
    return keys[torch.searchsorted(keys, wanted).clamp_max_(len(keys) - 1)] == wanted


def products(items: Tensor, users: Tensor) -> Tensor:
    """Scores [R, B, m]: items [R, B, m, d] times the vector [R, B, d] of their user."""
    return (items @ users.unsqueeze(-1)).squeeze(-1)


def best(value: Tensor, n: int) -> Tensor:
    """int64 [R, B, n]: in each of n pools of candidates [R, B, n·M], the one of the largest value (ties: the first)."""
    pools = value.reshape(*value.shape[:2], n, -1)
    return pools.argmax(-1) + torch.arange(n, device=value.device) * pools.shape[-1]


def check_drawn(name: str, value: Any, besides: str = "") -> None:
    """A number of items that are drawn for each positive, or once for all of a batch."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_DRAWN:
        wanted = f"{besides}a whole number from 1 to {MOST_DRAWN:,}"
        raise InputError(f"{name} must be {wanted}, not {one_line(str(value), 40)}.")
