"""A world whose truth is known: who would like what, who was shown what, and the biased log that results.

Real logs never tell a false negative (liked, but never shown) from a true one; here every unobserved pair
can be asked, so that a sampler's claims about negatives can be checked. In rounds, a recommender also meets what it
does to its own data: it shows, users choose, the choices join the log, it learns again. `simulate_log` makes large
logs without a truth, for measuring speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini, share_of_hottest
from evenhand.data.splits import Split, given_split
from evenhand.utils.errors import InputError
from evenhand.utils.keyed import keyed_uniform

_TRUTH, _EXPOSURE, _UNIFORM_TEST, _MOMENT, _EXAMINATION = 0, 1, 2, 3, 100
"""Streams of randomness; every simulated log rests on their numbers, so they stay."""
_CELLS_AT_ONCE = 2_000_000
_MOST_CELLS = 10_000_000_000
_YEAR = 365 * 24 * 3600

# Chosen so that the default world resembles MovieLens: taste decides more than attractiveness does, nobody is
# without a history, and a little hardness of negatives helps a matrix factorisation while much of it harms.
_BASE_LIKING = -4.5
_TASTE_STRENGTH = 4.0
_ATTRACTION_IN_LIKING = 0.8
_EXPOSURE_NOISE = 0.3
_ACTIVITY_FLOOR, _ACTIVITY_SPREAD = 0.3, 0.8


@dataclass(frozen=True, eq=False)
class Simulation:
    """A biased log together with the truth behind it. Users and items are indices 0…n-1.

    A pair is in `log` iff it was exposed *and* liked; any other is a true negative iff it is not liked.
    """

    log: Interactions
    """All observed pairs, with moments of one year as timestamps (independent of taste)."""
    uniform_test: Interactions
    """Liked pairs among items shown to each user uniformly at random, none of them in `log`."""
    seed: int
    test: float
    """The share of the log that `split` tests on; `validation` is a share of what then remains."""
    validation: float
    user_taste: np.ndarray
    """float64 [n_users, dim], each row of the same length: the strength of taste."""
    item_taste: np.ndarray
    """float64 [n_items, dim], each row of length 1."""
    attraction: np.ndarray
    """float64 [n_items]: how much everybody likes the item, in logits of preference."""
    user_exposure: np.ndarray
    """float64 [n_users]; the exposure rate of a pair is user_exposure × item_exposure."""
    item_exposure: np.ndarray

    @cached_property
    def split(self) -> Split:
        """Train, validation and test out of the biased log, at random by the simulation's own seed."""
        return self.log.split(test=self.test, validation=self.validation, seed=self.seed)

    @cached_property
    def uniform_split(self) -> Split:
        """All of the biased log as train (less validation), `uniform_test` as the unbiased test."""
        return given_split(self.log, self.uniform_test, validation=self.validation, seed=self.seed)

    def preference(self, users: Any, items: Any) -> np.ndarray:
        """p: the probability that each user of two broadcastable index arrays likes the item."""
        users, items = np.asarray(users), np.asarray(items)
        logit = _BASE_LIKING + self.attraction[items]
        for user_factor, item_factor in zip(self.user_taste.T, self.item_taste.T, strict=True):
            # A plain sum, not a matrix product: its last bit must not depend on the BLAS at hand.
            logit = logit + user_factor[users] * item_factor[items]
        return 1 / (1 + np.exp(-logit))

    def truth(self, users: Any, items: Any) -> np.ndarray:
        """Whether the user likes the item: drawn with probability p, once and for all."""
        return self._uniform(_TRUTH, users, items) < self.preference(users, items)

    def exposure(self, users: Any, items: Any) -> np.ndarray:
        """e: the probability that the item was shown to the user, whatever they think of it."""
        return -np.expm1(-self.user_exposure[np.asarray(users)] * self.item_exposure[np.asarray(items)])

    def exposed(self, users: Any, items: Any) -> np.ndarray:
        """Whether the item was shown to the user before the log ended."""
        return self._uniform(_EXPOSURE, users, items) < self.exposure(users, items)

    def true_negative_probability(self, users: Any, items: Any) -> np.ndarray:
        """P(not liked | not observed) = (1 - p) / (1 - p·e), the ideal confidence in a negative."""
        p, e = self.preference(users, items), self.exposure(users, items)
        return (1 - p) / (1 - p * e)

    def _uniform(self, stream: int, users: Any, items: Any) -> np.ndarray:
        return keyed_uniform(self.seed, stream, users, items)


def simulate(
    n_users: int = 1000,
    n_items: int = 1500,
    n_interactions: int = 60_000,
    *,
    dim: int = 12,
    popularity_skew: float = 1.3,
    exposure_bias: float = 1.0,
    seed: int = 0,
    test: float = 0.2,
    validation: float = 0.1,
    uniform_test: int = 60,
) -> Simulation:
    """Make a world of users with tastes and items of long-tailed attractiveness, and its biased log.

    A pair is liked with probability p = σ(base + taste·character + attraction) and shown with probability
    e = 1 - exp(-rate), where the rate grows as attractiveness to the power of `exposure_bias` (0: exposure
    ignores attractiveness). `popularity_skew` is the spread of log-attractiveness, `uniform_test` the number
    of uniformly random items shown to each user for the unbiased test. The log holds *about*
    `n_interactions` pairs: this is the expected number.

    The default's item popularity has a Gini coefficient of 0.633, as MovieLens has (100K 0.629, 1M 0.634).
    """
    _check(n_users=n_users, n_items=n_items, n_interactions=n_interactions, dim=dim, uniform_test=uniform_test)
    if n_users * n_items > _MOST_CELLS:
        raise InputError(
            f"{n_users:,} users × {n_items:,} items are too many to know the truth of each pair; "
            "use simulate_log for a log without a truth."
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    user_taste = _unit_rows(rng.standard_normal((n_users, dim))) * (_TASTE_STRENGTH * np.sqrt(dim))
    item_taste = _unit_rows(rng.standard_normal((n_items, dim)))
    attractiveness = popularity_skew * rng.standard_normal(n_items)
    visibility = _EXPOSURE_NOISE * rng.standard_normal(n_items)
    activity = np.exp(_ACTIVITY_SPREAD * rng.standard_normal(n_users))
    world = Simulation(
        log=_empty(n_users, n_items),
        uniform_test=_empty(n_users, n_items),
        seed=seed,
        test=test,
        validation=validation,
        user_taste=user_taste,
        item_taste=item_taste,
        attraction=_ATTRACTION_IN_LIKING * attractiveness,
        user_exposure=_ACTIVITY_FLOOR + (1 - _ACTIVITY_FLOOR) * activity,
        item_exposure=np.exp(exposure_bias * attractiveness + visibility),
    )
    world = _scale_exposure(world, n_interactions)
    return _observe(world, min(uniform_test, n_items))


def simulate_log(n_users: int, n_items: int, n_interactions: int, *, seed: int = 0) -> Interactions:
    """A long-tailed log without a truth, in time and memory of its own length: for measuring speed.

    Item popularity is Zipf-distributed with exponent 1 (shifted by 10, as the top of real catalogues is flatter), user
    activity log-normal; both in random order. Repeats are merged, so there are somewhat fewer pairs.
    """
    _check(n_users=n_users, n_items=n_items, n_interactions=n_interactions)
    rng = np.random.Generator(np.random.PCG64(seed))
    item_weight = rng.permutation(1 / (np.arange(n_items) + 10))
    user_weight = np.exp(rng.standard_normal(n_users))
    users = _draw(rng, user_weight, n_interactions)
    items = _draw(rng, item_weight, n_interactions)
    return Interactions.from_pairs(users, items, n_users=n_users, n_items=n_items)


def _draw(rng: np.random.Generator, weight: np.ndarray, n: int) -> np.ndarray:
    cumulative = np.cumsum(weight)
    return np.minimum(np.searchsorted(cumulative, rng.random(n) * cumulative[-1], "right"), len(weight) - 1)


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        least = 0 if name == "uniform_test" else 1
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {value}.")


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))


def _empty(n_users: int, n_items: int) -> Interactions:
    return Interactions.from_pairs([], [], n_users=n_users, n_items=n_items)


def _scale_exposure(world: Simulation, n_interactions: int) -> Simulation:
    """Choose how much is shown so that the expected number of observed pairs is `n_interactions`."""
    n_users, n_items = world.log.n_users, world.log.n_items
    # Users of every activity in proportion stand for all: the expected number needs no pass over all pairs.
    ranks = np.unique(np.linspace(0, n_users - 1, max(1, 300_000 // n_items), dtype=np.int64))
    sample = np.argsort(world.user_exposure, kind="stable")[ranks][:, None]
    liked = world.preference(sample, np.arange(n_items))
    wanted = n_interactions * len(sample) / n_users
    if wanted > 0.9 * liked.sum():
        most = int(0.9 * liked.sum() * n_users / len(sample))
        raise InputError(
            f"n_interactions = {n_interactions:,} is more than {n_users:,} users would like "
            f"among {n_items:,} items; ask for at most {most:,}."
        )
    rate = world.user_exposure[sample] * world.item_exposure
    low, high = -40.0, 40.0
    for _ in range(30):
        middle = (low + high) / 2
        observed = -(liked * np.expm1(-np.exp(middle) * rate)).sum()
        low, high = (middle, high) if observed < wanted else (low, middle)
    # Rounding hides the last bits of a long sum, which may differ from one processor to the next.
    return replace(world, user_exposure=world.user_exposure * np.exp(round(low, 6)))


def _observe(world: Simulation, shown_uniformly: int) -> Simulation:
    """Fill in the log and the uniform test, a chunk of users at a time."""
    n_items = world.log.n_items
    log: list[np.ndarray] = []
    uniform: list[np.ndarray] = []
    step = max(1, _CELLS_AT_ONCE // n_items)
    for start in range(0, world.log.n_users, step):
        users = np.arange(start, min(start + step, world.log.n_users))[:, None]
        items = np.arange(n_items)
        liked = world.truth(users, items)
        observed = liked & world.exposed(users, items)
        log.append(_pairs(users, observed))
        lottery = np.where(observed, 2.0, world._uniform(_UNIFORM_TEST, users, items))
        drawn = np.zeros_like(observed)
        if shown_uniformly:
            winners = np.argpartition(lottery, shown_uniformly - 1, axis=1)[:, :shown_uniformly]
            np.put_along_axis(drawn, winners, True, axis=1)
        uniform.append(_pairs(users, drawn & liked & ~observed))
    users, items = np.concatenate(log, axis=1)
    moments = np.floor(world._uniform(_MOMENT, users, items) * _YEAR)
    return replace(
        world,
        log=Interactions.from_pairs(users, items, timestamps=moments, n_users=world.log.n_users, n_items=n_items),
        uniform_test=Interactions.from_pairs(
            *np.concatenate(uniform, axis=1), n_users=world.log.n_users, n_items=n_items
        ),
    )


def _pairs(users: np.ndarray, mask: np.ndarray) -> np.ndarray:
    row, items = np.nonzero(mask)
    return np.stack([users[row, 0], items])


@dataclass(frozen=True, eq=False)
class Round:
    """One turn of the loop: what was shown, what was chosen, and how uneven both left the world."""

    number: int
    """From 1."""
    top: np.ndarray
    """int64 [n_users, k]: what was shown, best first; -1 where nothing was."""
    chosen: np.ndarray
    """bool [n_users, k]: examined and liked, so new in the log after this round."""
    log: Interactions
    """The log after this round."""
    exposure_gini: float
    """Gini coefficient of how often each item was shown in this round."""
    popularity_gini: float
    """Gini coefficient of item popularity in `log`."""
    hot_share: float
    """The share of `log` on its hottest 15 % of items."""
    choice_rate: float
    """The share of shown items that were chosen."""


def simulate_rounds(
    simulation: Simulation,
    recommend: Callable[[Interactions], np.ndarray],
    n_rounds: int = 5,
    k: int = 10,
    *,
    start: Interactions | None = None,
    position_bias: float = 1.0,
    seed: int = 0,
) -> list[Round]:
    """Let `recommend` meet the users of a simulation `n_rounds` times, each time with the log so far.

    `recommend(log)` returns item indices [n_users, at least k], best first, -1 for none, and should leave
    out what is in the log. A user examines rank r (from 1) with probability r ** -position_bias and chooses
    what is examined, truly liked and new. `start` is the first log, else `simulation.log`.
    """
    log = simulation.log if start is None else start
    rounds: list[Round] = []
    for number in range(1, n_rounds + 1):
        top = _shown(recommend(log), log, k)
        chosen = _choices(simulation, log, top, position_bias, (seed, number))
        users, ranks = np.nonzero(chosen)
        new = Interactions.from_pairs(users, top[users, ranks], user_ids=log.user_ids, item_ids=log.item_ids)
        log = log.union(new)
        shown = top >= 0
        rounds.append(
            Round(
                number=number,
                top=top,
                chosen=chosen,
                log=log,
                exposure_gini=gini(np.bincount(top[shown], minlength=log.n_items)),
                popularity_gini=gini(log.popularity),
                hot_share=share_of_hottest(log.popularity),
                choice_rate=float(chosen.sum() / max(1, shown.sum())),
            )
        )
    return rounds


def _shown(answer: np.ndarray, log: Interactions, k: int) -> np.ndarray:
    top = np.asarray(answer)
    if top.ndim != 2 or top.shape[0] != log.n_users or top.shape[1] < k or top.dtype.kind not in "iu":
        raise InputError(
            f"recommend must return integer item indices of shape [{log.n_users}, at least {k}], "
            f"not {top.dtype} of shape {list(top.shape)}."
        )
    top = top[:, :k].astype(np.int64)
    if top.size and (top.min() < -1 or top.max() >= log.n_items):
        raise InputError(f"recommend returned item indices outside 0…{log.n_items - 1} (-1 stands for none).")
    return top


def _choices(
    simulation: Simulation, log: Interactions, top: np.ndarray, position_bias: float, key: tuple[int, int]
) -> np.ndarray:
    users = np.arange(len(top))[:, None]
    examined = np.arange(1, top.shape[1] + 1, dtype=np.float64) ** -position_bias
    attentive = keyed_uniform(simulation.seed, _EXAMINATION, *key, users, top) < examined
    fresh = (top >= 0) & ~log.contains(users, top)
    return attentive & fresh & simulation.truth(users, np.maximum(top, 0))
