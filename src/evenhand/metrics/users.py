"""From top-k lists to every metric of every user, in whole arrays.

Training asks after each epoch and an audit asks once, of the same function. It keeps the values per user
because the tests for a difference resample users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.metrics import bias, ranking
from evenhand.metrics.bias import Rate
from evenhand.utils.errors import InputError, unknown

if TYPE_CHECKING:
    from evenhand.data.interactions import Interactions

NO_ITEM = -1
"""In a list: the slot is empty, because the list is shorter than k."""
UNKNOWN_ITEM = -2
"""In a list: the slot holds an item outside the vocabulary. It is never a hit, never a negative, and cold."""

ACCURACY = ("precision", "recall", "f1", "ndcg")
RATES = ("ohr", "ocr", "uhr", "ucr")
ERRORS = ("fpr", "fnr", "fpr_true")
DEFINED = tuple(f"{name}_defined" for name in RATES)
POOLED = tuple(f"{name}_pooled" for name in RATES)
METRICS = (*ACCURACY, *RATES, *ERRORS, *DEFINED, *POOLED)
"""Every metric name, in the order in which tables show them."""
HIGHER_IS_BETTER: Mapping[str, bool] = {name: name in ACCURACY for name in METRICS}


@dataclass(frozen=True, eq=False)
class UserMetrics:
    """The metrics of n users at one k; all arrays are float64 [n], aligned with `users`."""

    k: int
    users: np.ndarray
    """The users' indices. Only users with a test item are here."""
    values: Mapping[str, np.ndarray]
    """The metrics that every user has: precision, recall, f1, ndcg, fpr, fnr, fpr_true."""
    rates: Mapping[str, Rate]
    """The four bias rates with their numerators and denominators: ohr, ocr, uhr, ucr."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but k as named arrays, to be stored; `from_arrays` reads them back."""
        named = {"users": self.users} | {f"value.{name}": array for name, array in self.values.items()}
        for name, rate in self.rates.items():
            named |= {f"above.{name}": rate.numerators, f"below.{name}": rate.denominators}
        return named

    @staticmethod
    def from_arrays(k: int, arrays: Mapping[str, np.ndarray]) -> UserMetrics:
        def under(prefix: str) -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}

        below = under("below.")
        rates = {name: Rate(above, below[name]) for name, above in under("above.").items()}
        return UserMetrics(k, arrays["users"], under("value."), rates)

    def per_user(self, name: str) -> np.ndarray:
        """One value per user: an empty rate is 0 under its plain name and nan under `…_defined`."""
        if name in self.values:
            return self.values[name]
        rate = self.rates[_rate_name(name)]
        if name in POOLED:
            raise InputError(f"{name} has no value per user: take numerators and denominators from `rates`.")
        return rate.per_defined_user if name in DEFINED else rate.per_user

    def mean(self, name: str) -> float:
        """The metric over all users; nan where it is undefined (see `Rate`) or there are no users."""
        if name in self.values:
            return float(self.values[name].mean()) if len(self.users) else np.nan
        rate = self.rates[_rate_name(name)]
        if name in POOLED:
            return rate.pooled_mean
        return rate.defined_mean if name in DEFINED else rate.mean

    def means(self) -> dict[str, float]:
        """Every metric of `METRICS` by name."""
        return {name: self.mean(name) for name in METRICS}


def score_lists(
    top: np.ndarray,
    users: np.ndarray,
    truth: Interactions,
    hot: np.ndarray,
    ks: Sequence[int],
    consumed: Interactions | None = None,
) -> dict[int, UserMetrics]:
    """Judge one list per user at each k of `ks`.

    `top` (int [n, kmax]) holds item indices by rank, without repeats in a row, with `NO_ITEM` in empty
    slots; `users` (int [n]) says whose row it is; `truth` is the test part; `hot` is bool [n_items].
    `consumed` (train and validation) matters to `fpr_true` alone; without it all items outside the truth
    are negatives. Rows of users without test items are dropped, and users without a row are not looked at.
    Where there is not enough memory for all of them at once, they are judged in halves.
    """
    top, users, hot = np.asarray(top), np.asarray(users), np.asarray(hot, dtype=bool)
    _check(top, users, truth, hot, ks)
    judged = truth.activity[users] > 0
    if not judged.all():
        top, users = top[judged], users[judged]
    return score_sheet(top, answer_sheet(users, truth, hot, consumed), ks)


@dataclass(frozen=True, eq=False)
class AnswerSheet:
    """What judging lists needs to know of their users: the same whoever made the lists."""

    users: np.ndarray
    """Each has a test item."""
    truth: Interactions
    hot: np.ndarray
    consumed: Interactions | None
    """What lists may hold although the user has had it; None where they do not."""
    n_relevant: np.ndarray
    n_relevant_hot: np.ndarray
    n_negatives: np.ndarray
    """int [n] each: the user's test items, the hot ones among them, and all items that are neither in test
    nor consumed."""

    def part(self, rows: slice) -> AnswerSheet:
        counts = {name: getattr(self, name)[rows] for name in ("n_relevant", "n_relevant_hot", "n_negatives")}
        return replace(self, users=self.users[rows], **counts)


def answer_sheet(
    users: np.ndarray,
    truth: Interactions,
    hot: np.ndarray,
    consumed: Interactions | None,
    *,
    shown_again: bool = True,
) -> AnswerSheet:
    """The sheet of users with test items; without `shown_again` no list holds anything of `consumed`."""
    n_relevant = truth.activity[users]
    n_negatives = truth.n_items - n_relevant
    if consumed is not None:
        in_both = _per_user(truth, consumed.contains(truth.users, truth.items))[users]
        n_negatives = n_negatives - consumed.activity[users] + in_both
    n_relevant_hot = _per_user(truth, hot[truth.items])[users]
    again = consumed if shown_again else None
    return AnswerSheet(users, truth, hot, again, n_relevant, n_relevant_hot, n_negatives)


def score_sheet(top: np.ndarray, sheet: AnswerSheet, ks: Sequence[int]) -> dict[int, UserMetrics]:
    """Judge one list per user of the sheet; in halves, where there is not enough memory for all at once."""
    try:
        return _scored(top, sheet, ks)
    except MemoryError:
        if len(top) < 2:
            raise
    middle = len(top) // 2
    halves = [score_sheet(top[part], sheet.part(part), ks) for part in (slice(middle), slice(middle, None))]
    return {k: _joined(k, [half[k].arrays() for half in halves]) for k in ks}


def _joined(k: int, parts: Sequence[Mapping[str, np.ndarray]]) -> UserMetrics:
    return UserMetrics.from_arrays(k, {name: np.concatenate([p[name] for p in parts]) for name in parts[0]})


def _scored(top: np.ndarray, sheet: AnswerSheet, ks: Sequence[int]) -> dict[int, UserMetrics]:
    top, users, hot = top[:, : max(ks)], sheet.users, sheet.hot
    hits = sheet.truth.contains(users[:, None], top)
    known = top >= 0
    is_hot = known & hot[np.where(known, top, 0)] if len(top) else known
    is_cold = (top != NO_ITEM) & ~is_hot
    is_negative = known & ~hits
    if sheet.consumed is not None:
        # Foreign lists may repeat what the user has had: a miss, but not one of the negatives.
        is_negative &= ~sheet.consumed.contains(users[:, None], top)
    n_relevant, n_relevant_hot = sheet.n_relevant, sheet.n_relevant_hot
    return {
        k: UserMetrics(
            k=k,
            users=users,
            values={
                "precision": ranking.precision(hits, k),
                "recall": ranking.recall(hits, n_relevant, k),
                "f1": ranking.f1(hits, n_relevant, k),
                "ndcg": ranking.ndcg(hits, n_relevant, k),
                "fpr": ranking.fpr(hits, k),
                "fnr": ranking.fnr(hits, n_relevant, k),
                "fpr_true": ranking.fpr_true(is_negative, sheet.n_negatives, k),
            },
            rates={
                "ohr": bias.ohr(hits, is_hot, k),
                "ocr": bias.ocr(hits, is_cold, k),
                "uhr": bias.uhr(hits, is_hot, n_relevant_hot, k),
                "ucr": bias.ucr(hits, is_cold, n_relevant - n_relevant_hot, k),
            },
        )
        for k in ks
    }


def _per_user(pairs: Interactions, mask: np.ndarray) -> np.ndarray:
    """How many pairs of each user the mask marks."""
    return np.bincount(pairs.users[mask], minlength=pairs.n_users)


def _rate_name(name: str) -> str:
    if name not in HIGHER_IS_BETTER:
        raise unknown("metric", name, METRICS)
    return name.split("_")[0]


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
