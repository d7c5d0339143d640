"""From top-k lists to every metric, in whole arrays: per user where a metric has a value per user.

Training asks after each epoch and an audit asks once, of the same functions. Values per user are kept because the
tests for a difference resample users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.metrics.catalogue import METRICS, RATES, SUMS, named
from evenhand.metrics.exposure import NO_ITEM, UNKNOWN_ITEM, exposure_counts
from evenhand.metrics.ranking import share
from evenhand.metrics.slots import AnswerSheet, Slots
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import gather_columns, total
from evenhand.utils.world import World

__all__ = ["NO_ITEM", "UNKNOWN_ITEM", "AnswerSheet", "UserMetrics", "score_lists", "score_sheet"]

_Value = TypeVar("_Value")
_COUNTS = "items.slots"
"""The name under which the items' slots are stored."""


@dataclass(frozen=True, eq=False)
class UserMetrics:
    """The metrics of n users at one k; arrays are aligned with `users`. What is not there is undefined."""

    k: int
    users: np.ndarray
    """The users' indices. Only users with a test item are here."""
    values: Mapping[str, np.ndarray]
    """The metrics that have a value per user: float64 [n], nan for a user who does not count."""
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The columns behind rates and formulas of sums: [n] or [n, 10]."""
    items: Mapping[str, np.ndarray] = field(default_factory=dict)
    """One entry, `items.slots`: int64 [n_items], in how many slots each item stands."""
    slots: Slots | None = None
    """The lists themselves; None for stored metrics."""

    @staticmethod
    def of(slots: Slots, k: int) -> UserMetrics:
        """Every metric, computed when it is asked for."""
        per_user = {name: metric.of_user for name, metric in METRICS.items() if metric.of_user is not None}
        return UserMetrics(
            k,
            slots.sheet.users,
            _Lazy(per_user, lambda name: per_user[name](slots, k)),
            _Lazy(SUMS, lambda name: SUMS[name](slots, k)),
            _Lazy((_COUNTS,), lambda _: exposure_counts(slots.top[:, :k], slots.sheet.truth.n_items)),
            slots,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but k as named arrays, to be stored; `from_arrays` reads them back."""
        stored = {"users": self.users} | {f"value.{name}": array for name, array in self.values.items()}
        for name, array in self.sums.items():
            rate, _, side = name.partition(".")
            stored[f"{side}.{rate}" if rate in RATES else f"sum.{name}"] = array
        return stored | dict(self.items)

    @staticmethod
    def from_arrays(k: int, arrays: Mapping[str, np.ndarray]) -> UserMetrics:
        def under(prefix: str, end: str = "") -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix) + end: a for n, a in arrays.items() if n.startswith(prefix)}

        sums = under("sum.") | under("above.", ".above") | under("below.", ".below")
        items = {_COUNTS: arrays[_COUNTS]} if _COUNTS in arrays else {}
        return UserMetrics(k, arrays["users"], under("value."), sums, items)

    def gathered(self, world: World, order: np.ndarray | slice = slice(None)) -> UserMetrics:
        """The metrics of all ranks' users, rank by rank or in an `order` of those; what counts items is added up."""
        if world.size == 1:
            return self
        arrays = self.arrays()
        added = {name: total(world, arrays.pop(name)) for name in self.items}
        of_users = {name: column[order] for name, column in gather_columns(world, arrays).items()}
        return UserMetrics.from_arrays(self.k, of_users | added)

    def per_user(self, name: str) -> np.ndarray:
        """One value per user: an empty rate is 0 under its plain name and nan under `…_defined`."""
        metric = named(name)
        if metric.of_user is not None:
            return self.values[name]
        if metric.rate is None:
            raise InputError(f"{name} has no value per user: it is a number of all lists together.")
        above, below = (self.sums[f"{metric.rate}.{side}"] for side in ("above", "below"))
        return share(above, below, empty=np.nan if metric.average == "defined" else 0.0)

    @property
    def item_slots(self) -> np.ndarray:
        return self.items[_COUNTS]

    def mean(self, name: str) -> float:
        """The metric over all users; nan where it is undefined or there are no users."""
        metric = named(name)
        if not len(self.users):
            return np.nan
        try:
            if metric.of_user is not None or metric.rate is not None:
                counted = self.per_user(name)
                counted = counted[~np.isnan(counted)]
                return float(counted.mean()) if len(counted) else np.nan
            if metric.of_items is not None:
                return float(metric.of_items(self.item_slots)) if self.item_slots.any() else np.nan
            assert metric.of_sums is not None
            with np.errstate(divide="ignore", invalid="ignore"):
                found = float(metric.of_sums(lambda column: np.float64(self.sums[column].sum(axis=0))))
        except KeyError:  # stored by a version that did not know the metric
            return np.nan
        return found if np.isfinite(found) else np.nan

    def means(self) -> dict[str, float]:
        """Every metric of the catalogue by name."""
        return {name: self.mean(name) for name in METRICS}


class _Lazy(Mapping[str, Any]):
    """Named values that are made each time they are asked for, so that none is kept in memory."""

    def __init__(self, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        self._names, self._make = tuple(names), make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def score_lists(
    top: np.ndarray,
    users: np.ndarray,
    truth: Interactions,
    hot: np.ndarray,
    ks: Sequence[int],
    consumed: Interactions | None = None,
) -> dict[int, UserMetrics]:
    """Score one list per user at each k of `ks`.

    `top` (int [n, kmax]) holds item indices by rank, without repeats in a row, with `NO_ITEM` in empty slots;
    `users` (int [n]) says whose row it is; `truth` is the test part; `hot` is bool [n_items]. `consumed` (train and
    validation) is what popularity is counted in and what `fpr_true` leaves out; without it all items outside the
    truth are negatives and metrics of popularity are undefined. Rows of users without test items are dropped, and
    users without a row are not looked at.
    """
    top, users, hot = np.asarray(top), np.asarray(users), np.asarray(hot, dtype=bool)
    _check(top, users, truth, hot, ks)
    with_test = truth.activity[users] > 0
    if not with_test.all():
        top, users = top[with_test], users[with_test]
    return score_sheet(top, AnswerSheet(users, truth, hot, consumed), ks)


def score_sheet(top: np.ndarray, sheet: AnswerSheet, ks: Sequence[int]) -> dict[int, UserMetrics]:
    """Score one list per user of the sheet, whose users have test items."""
    slots = Slots(sheet, top[:, : max(ks)])
    return {k: UserMetrics.of(slots, k) for k in ks}


def _check(top: np.ndarray, users: np.ndarray, truth: Interactions, hot: np.ndarray, ks: Sequence[int]) -> None:
    if top.ndim != 2 or users.shape != top.shape[:1]:
        raise InputError(f"top must be [n, k] with one user per row, but is {top.shape} for {users.shape} users.")
    if hot.shape != (truth.n_items,):
        raise InputError(f"hot must say yes or no for each of the {truth.n_items} items, but is {hot.shape}.")
    if not ks or min(ks) < 1:
        raise InputError(f"k must be one or more numbers from 1 up, not {list(ks)}.")
    if max(ks) > top.shape[1]:
        raise InputError(f"k = {max(ks)} needs lists of that length, but these have {top.shape[1]} slots.")
    if top.size and not UNKNOWN_ITEM <= top.min() <= top.max() < truth.n_items:
        raise InputError(f"top holds item indices outside {UNKNOWN_ITEM}…{truth.n_items - 1}.")
    if users.size and not 0 <= users.min() <= users.max() < truth.n_users:
        raise InputError(f"users must be indices in 0…{truth.n_users - 1}.")
