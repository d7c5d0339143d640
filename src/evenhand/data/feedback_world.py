"""What a recommender does to its own data: it shows, users choose, the choices join the log, it learns again.

The recommender is the caller's function, so that this room knows nothing of training; the truth about what
users like comes from a `Simulation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini, share_of_hottest
from evenhand.data.simulate import Simulation
from evenhand.utils.errors import InputError
from evenhand.utils.keyed import keyed_uniform

_EXAMINATION = 100  # a stream of randomness that the simulation itself does not use


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
