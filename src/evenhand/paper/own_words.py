"""What the paper's own cells say about its claims: no training, only reading its tables closely.

A *column* is one metric of one data set, encoder and k, over the ten methods: eighteen columns a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evenhand.paper.errata import LOWER_IS_BETTER
from evenhand.paper.published import cells


@dataclass(frozen=True)
class Standing:
    """Where a method stands in one column."""

    dataset: str
    encoder: str
    k: int
    metric: str
    value: float
    place: int
    """1 is best; equals share a place."""
    best: str
    """The method in the first place."""
    best_value: float


def standings(metric: str, method: str = "auc-ns") -> list[Standing]:
    """The method's place in every column of the metric, in the order of the paper."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    found = []
    for (dataset, encoder, k), column in _columns(metric):
        mine = column[method]
        best = min(column, key=lambda name: sign * column[name])
        place = 1 + sum(sign * value < sign * mine for value in column.values())
        found.append(Standing(dataset, encoder, k, metric, mine, place, best, column[best]))
    return found


def better_than(other: str, metric: str, method: str = "auc-ns") -> list[tuple[str, str, int, float]]:
    """Every column with how much better the method is than the other one; negative where it is worse.

    Better is lower for rates of error, higher for the rest.
    """
    sign = -1 if metric in LOWER_IS_BETTER else 1
    return [(*where, round(sign * (column[method] - column[other]), 4)) for where, column in _columns(metric)]


def _columns(metric: str) -> Iterator[tuple[tuple[str, str, int], dict[str, float]]]:
    grouped: dict[tuple[str, str, int], dict[str, float]] = {}
    for cell in cells("performance", metric=metric):
        grouped.setdefault((cell.dataset, cell.encoder, int(cell.k)), {})[cell.method] = cell.value
    yield from sorted(grouped.items(), key=lambda item: (item[0][0], item[0][1] != "mf", item[0][2]))


def hot_error_beyond_error(method: str = "auc-ns") -> list[tuple[str, str, int, float]]:
    """OHR - (1 - precision) in every column: 0 where the lists hold nothing but hot items.

    Then OHR says again what precision says, and falls when precision rises.
    """
    precision = dict(_columns("precision"))
    return [(*where, round(column[method] - (1 - precision[where][method]), 4)) for where, column in _columns("ohr")]
