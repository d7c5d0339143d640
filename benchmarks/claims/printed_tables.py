"""The paper's claims against the paper's own cells, as the tables of docs/claims.md.

A *column* is one metric of one data set, encoder and k over the ten methods: eighteen columns per metric.

.venv/bin/python benchmarks/claims/printed_tables.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from evenhand.paper.experiment import DEFAULT_METHODS
from evenhand.paper.published import LOWER_IS_BETTER, all_cells, cells

METRICS = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr")


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


def places() -> None:
    print("| metric | best | second | third or worse | the columns that are not best |\n|---|---|---|---|---|")
    for metric in METRICS:
        found = standings(metric)
        rest = [s for s in found if s.place > 1]
        named = ", ".join(f"{s.dataset} {s.encoder} top {s.k} ({s.best})" for s in rest)
        worse = sum(s.place > 2 for s in found)
        print(
            f"| {metric} | {sum(s.place == 1 for s in found)} | {sum(s.place == 2 for s in found)} | {worse} "
            f"| {named if len(rest) < 4 else f'{len(rest)} of 18'} |"
        )


METHODS = [name for name in DEFAULT_METHODS if name not in ("dns:candidates=2", "ease", "als")]


def lower_hot_rate() -> None:
    print("\n| against | OHR lower | ML-100K, ML-1M | Yahoo!-R3 | worst difference |\n|---|---|---|---|---|")
    for other in METHODS:
        if other == "auc-ns":
            continue
        found = better_than(other, "ohr")
        films = [one for one in found if one[0] != "yahoo-r3"]
        yahoo = [one for one in found if one[0] == "yahoo-r3"]
        wins = [f"{sum(one[3] > 0 for one in part)} of {len(part)}" for part in (found, films, yahoo)]
        worst = min(found, key=lambda one: one[3])
        print(f"| `{other}` | {' | '.join(wins)} | {worst[3]:+.4f} ({worst[0]} {worst[1]} top {worst[2]}) |")


def main() -> None:
    places()
    lower_hot_rate()
    print("\n| method | median of abs(OHR - (1 - precision)) | largest |\n|---|---|---|")
    for method in METHODS:
        gaps = [abs(one[3]) for one in hot_error_beyond_error(method)]
        print(f"| `{method}` | {median(gaps):.4f} | {max(gaps):.4f} |")
    reasons = [reason.split(":")[0] for c in all_cells() for reason in c.errata.split("; ") if reason]
    print("\nerrata:", {rule: reasons.count(rule) for rule in sorted(set(reasons))})
    print(f"cells {len(all_cells())}, with errata {sum(bool(c.errata) for c in all_cells())}")


if __name__ == "__main__":
    main()
