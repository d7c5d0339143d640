"""Which rows of a raw log count: those with ids, within a span of time, rated high enough, and not refunded.

What is left out is counted, each row for the first reason that applies, and said in a few words.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evenhand.data.reading.codes import pair_keys
from evenhand.data.reading.columns import Loaded
from evenhand.data.reading.values import as_moment
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

_NOTHING = 1e-9
"""Sums of amounts are rounded; what is left of a pair counts from this share of the amounts on."""


def wanted_rows(
    loaded: Loaded,
    keep: np.ndarray,
    numbers: dict[str, np.ndarray | None],
    min_rating: float | None,
    since: str | float | None,
    until: str | float | None,
    all_times: np.ndarray | None = None,
) -> dict[str, int]:
    """Unmark the rows of `keep` that do not count; for each reason, how many rows it was the first to leave out.

    Dates are understood in the unit of `all_times`, where the rows are a piece of a log; else in that of their own.
    """
    left_out = {"without an id": len(keep) - int(keep.sum())}

    def leave_out(rows: np.ndarray, why: str) -> None:
        left_out[why] = int((keep & rows).sum())
        np.logical_and(keep, ~rows, out=keep)

    if since is not None or until is not None:
        times = _column_for(loaded, numbers, "timestamp", "since or until")
        unit = times if all_times is None else all_times
        leave_out(np.isnan(times), "without a timestamp")
        if since is not None:
            leave_out(times < as_moment(since, unit, "since"), f"before {since}")
        if until is not None:
            leave_out(times >= as_moment(until, unit, "until"), f"from {until} on")
    if min_rating is not None:
        ratings = _column_for(loaded, numbers, "rating", "min_rating")
        leave_out(ratings < min_rating, f"with a rating below {min_rating:g}")
        leave_out(np.isnan(ratings), "without a rating")
    return left_out


def skipped(left_out: Mapping[str, int]) -> list[str]:
    """What to say of rows that were left out.

    >>> skipped({"without an id": 1, "without a rating": 0})
    ['1 row without an id skipped']
    """
    return [f"{count(n, 'row')} {why} skipped" for why, n in left_out.items() if n]


def no_such_rating(label: str, min_rating: float) -> InputError:
    return InputError(f"no row of {label} has a rating of at least {min_rating:g}; lower min_rating.")


def _column_for(loaded: Loaded, numbers: dict[str, np.ndarray | None], role: str, option: str) -> np.ndarray:
    if role not in loaded.names:
        raise InputError(f"{loaded.label} has no {role} column for {option}; name it with {role}= or --{role}.")
    values = numbers[role]
    return np.full(len(loaded), np.nan) if values is None else values


def net_purchases(
    users: np.ndarray, items: np.ndarray, n_items: int, amounts: np.ndarray | None, keep: np.ndarray, label: str
) -> tuple[np.ndarray, list[str]]:
    """bool [n_rows]: the rows of positive amount whose pair is positive in sum; and what to say of the others."""
    if amounts is None:
        raise InputError(f"the weight column of {label} holds no number.")
    cleaned: list[str] = []
    absent = np.isnan(amounts) & keep
    if absent.any():
        cleaned.append(f"{count(int(absent.sum()), 'row')} without an amount skipped")
    rows = np.flatnonzero(keep & ~absent)
    key = pair_keys(users[rows], items[rows], n_items)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(key[order]) != 0)) if len(key) else np.zeros(0, dtype=np.int64)
    sorted_amounts = amounts[rows[order]]
    net, gross = (np.add.reduceat(a, starts) if len(starts) else a for a in (sorted_amounts, np.abs(sorted_amounts)))
    bought = net > _NOTHING * gross
    if not bought.all():
        cleaned.append(f"{count(int((~bought).sum()), 'pair')} netted to zero")
    wanted = np.zeros(len(users), dtype=bool)
    wanted[rows[order]] = np.repeat(bought, np.diff(np.append(starts, len(key)))) & (sorted_amounts > 0)
    return wanted, cleaned
