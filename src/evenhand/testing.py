"""Checks for people who add a sampler: what every sampler promises, as calls for a test of your own.

They need no test runner; a broken promise raises an AssertionError that says which one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import chdtrc
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import MF, Encoder
from evenhand.objectives import BPR, Objective
from evenhand.samplers.base import Batch, BoundSampler, Sampler, bind
from evenhand.training import Settings
from evenhand.training import train as train_model
from evenhand.utils.errors import InputError

_DRAWS = 60
"""How often each user is asked; enough for a forbidden item to show up in a small catalogue."""
_DIM = 4


def checkerboard(n_users: int = 40, n_items: int = 40) -> tuple[Interactions, Interactions]:
    """(train, withheld): users of even index like even items, odd users odd ones; train lacks one of them.

    The one withheld pair a user is the next square of its colour, so after training it must rank first
    among what the user has not seen. Every item keeps other users who have it in train.
    """
    if n_users < 4 or n_items < 6 or n_users % 2 or n_items % 2:
        raise InputError("a checkerboard needs even numbers of users (4 or more) and items (6 or more).")
    user, item = np.divmod(np.arange(n_users * n_items), n_items)
    liked = user % 2 == item % 2
    missing = item == user % 2 + 2 * (user // 2 % (n_items // 2))
    return (
        Interactions.from_pairs(user[liked & ~missing], item[liked & ~missing], n_users=n_users, n_items=n_items),
        Interactions.from_pairs(user[missing], item[missing], n_users=n_users, n_items=n_items),
    )


def corner_cases(n_users: int = 9, n_items: int = 12, seed: int = 0) -> Interactions:
    """A small log with the users that break samplers: one has every item, one all but one, one nothing.

    Everyone else has a random half; every item is somebody's, so popularity alone excludes none.
    """
    rng = np.random.default_rng(seed)
    has = rng.random((n_users, n_items)) < 0.5
    has[0], has[1], has[2] = True, True, False
    has[1, 3] = False
    return Interactions.from_pairs(*np.nonzero(has), n_users=n_users, n_items=n_items)


def check_sampler(sampler: Sampler, train: Interactions | None = None, *, beside: Sequence[Sampler] = ()) -> None:
    """Assert what holds for every sampler, on `train` or on `corner_cases()`.

    Negatives are never observed items, come as [B, n], repeat with the generator's seed and differ with
    another; a user without anything left is refused, one with a single item left gets it; replicas (this
    sampler and those `beside` it, which may differ in parameters) choose as each would alone; and a
    sampler's state, once saved and loaded, continues as if nothing had happened.
    """
    train = corner_cases() if train is None else train
    bound = sampler.bind(train)
    users = torch.arange(train.n_users)[bound.eligible].repeat_interleave(_DRAWS)
    assert len(users), "no user of the log can be given a negative"
    _check_exhausted(bound, train)
    _check_draws(sampler, train, users)
    _check_replicas([sampler, *(beside or (sampler, sampler))], train, users)
    _check_state(sampler, train, users)


def check_learns(
    sampler: Sampler,
    encoder: Encoder | None = None,
    *,
    objective: Objective | None = None,
    least: float = 0.9,
    epochs: int = 20,
) -> None:
    """Assert that training with this sampler and objective finds the withheld squares of the checkerboard."""
    train, withheld = checkerboard()
    split = Split(train=train, validation=None, test=withheld, description="checkerboard")
    settings = Settings(epochs=epochs, batch=128, lr=0.03, weight_decay=1e-3)
    done = train_model(
        split, encoder or MF(dim=8), sampler, 1, settings, ks=(1,), device="cpu", objective=objective or BPR()
    )
    found = done.results[1][0].metrics["precision"]
    assert found >= least, f"{found:.0%} of the withheld items came first, not {least:.0%}"


def random_batch(bound: BoundSampler, users: Tensor, n: int = 1, seed: int = 0) -> Batch:
    """A batch of every replica for these users, with random vectors, uniforms and positives of its own."""
    g = torch.Generator().manual_seed(seed)
    shape = (bound.replicas, len(users))
    return Batch(
        user_vectors=torch.randn(bound.replicas, bound.n_users, _DIM, generator=g),
        item_vectors=torch.randn(bound.replicas, bound.n_items, _DIM, generator=g),
        users=users.expand(shape),
        positives=torch.randint(bound.n_items, shape, generator=torch.Generator().manual_seed(~seed)),
        uniforms=torch.rand(*shape, bound.width(n), generator=g, dtype=torch.float64),
        shared=torch.rand(bound.replicas, bound.shared_width, generator=g, dtype=torch.float64),
        n=n,
    )


def chi_square_p(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """Pearson's test: how likely counts at least this odd are under the distribution; 0 if the impossible happened.

    >>> round(chi_square_p(np.array([48, 52]), np.array([0.5, 0.5])), 3)
    0.689
    """
    counts, distribution = np.asarray(counts, dtype=np.float64), np.asarray(probabilities, dtype=np.float64)
    possible = distribution > 0
    if counts[~possible].any():
        return 0.0
    expected = counts.sum() * distribution[possible] / distribution.sum()
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    return float(chdtrc(possible.sum() - 1, statistic)) if possible.sum() > 1 else 1.0


def _check_draws(sampler: Sampler, train: Interactions, users: Tensor) -> None:
    vectors = _vectors(train)
    positives = torch.arange(len(users)) % train.n_items

    def draw(n: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return sampler.bind(train).sample(users, *vectors, positives, n=n, generator=generator)

    for n in (1, 3):
        items = draw(n, seed=1)
        assert items.shape == (len(users), n), f"shape {tuple(items.shape)} instead of {(len(users), n)}"
        assert items.dtype == torch.int64, f"items are {items.dtype}, not int64"
        assert ((items >= 0) & (items < train.n_items)).all(), "an item outside the catalogue"
        observed = train.contains(users.numpy()[:, None], items.numpy())
        assert not observed.any(), "a user's own item was returned as a negative"
        assert torch.equal(items, draw(n, seed=1)), "the same seed gave another draw"
        if sampler.bind(train).width(n):
            assert not torch.equal(items, draw(n, seed=2)), "another seed gave the same draw"


def _check_exhausted(bound: BoundSampler, train: Interactions) -> None:
    left = train.n_items - train.activity
    for user in np.flatnonzero(left == 0):
        assert not bound.eligible[user], f"user {user} has every item, yet is eligible"
    for user in torch.nonzero(~bound.eligible).flatten():
        try:
            bound.sample(user.view(1), *_vectors(train), positives=torch.zeros(1, dtype=torch.int64))
        except InputError:
            continue
        raise AssertionError(f"user {int(user)} is not eligible, yet sample() answered")
    for user in np.flatnonzero((left == 1) & bound.eligible.numpy()):
        remaining = np.setdiff1d(np.arange(train.n_items), train.row(int(user)))[0]
        positives = torch.arange(_DRAWS) % train.n_items
        items = bound.sample(torch.full((_DRAWS,), int(user)), *_vectors(train), positives, n=2)
        assert (items == int(remaining)).all(), f"user {user} has only item {remaining} left, but got others"


def _check_replicas(samplers: Sequence[Sampler], train: Interactions, users: Tensor) -> None:
    together = bind(samplers, train)
    batch = random_batch(together, users, n=2)
    chosen = together.choose(batch)
    for r, sampler in enumerate(samplers):
        alone = sampler.bind(train).choose(batch.split(1)[r])[0]
        assert torch.equal(chosen[r], alone), f"replica {r} chooses otherwise than it does alone"


def _check_state(sampler: Sampler, train: Interactions, users: Tensor) -> None:
    first = sampler.bind(train)
    for seed in range(3):
        first.choose(random_batch(first, users, seed=seed))
    second = sampler.bind(train)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    for seed in range(3, 6):
        batch = random_batch(first, users, seed=seed)
        assert torch.equal(first.choose(batch), second.choose(batch)), "a loaded state continues otherwise"
    same = all(torch.equal(value, second.state()[name]) for name, value in first.state().items())
    assert same, "a loaded state develops otherwise"


def _vectors(train: Interactions) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(7)
    return torch.randn(train.n_users, _DIM, generator=g), torch.randn(train.n_items, _DIM, generator=g)
