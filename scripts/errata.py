"""What is wrong in the published tables, found by rules that each state why.

A rule looks at the printed cells alone (one, `_against_the_data`, at counts of the data sets) and names the
cells that break it. Three bounds hold for any recommender; the other rules say that two cells cannot both be
right, or that a number is out of line. `RULES` has a sentence for each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from evenhand.paper.published import LOWER_IS_BETTER, Cell

Key = tuple[str, ...]
Found = Iterator[tuple[Cell, str]]
Rows = Mapping[tuple[str, str, str, int], Mapping[str, Cell]]

HALF_DIGIT = 0.5e-4
"""How far a printed number may be from the computed one."""

RULES = {
    "bound": "no recommender can have these numbers together (`ndcg_floor`, F1 ≤ harmonic mean of P and R, "
    "R ≤ 2 - UHR - UCR)",
    "f1": "F1 over the harmonic mean of P and R is more than 5 % off its median over the data set and k",
    "fpr": "FPR is 1 - precision@5 and FNR is 1 - recall@5 by definition, and the two tables disagree",
    "repeat": "the whole row is the row of another encoder",
    "equal": "two different metrics of a row are the same number: a slip, or chance",
    "jump": "UHR or UCR is more than .01 above or .3 below what shorter lists have",
    "mark": "bold is not the best of its column, or underlined not the second best",
    "data": "the data set has another number",
}
COUNTED = {("ml-100k", "hot_items"): 253, ("ml-1m", "items"): 3706, ("ml-1m", "hot_items"): 556}
"""Where the authors' split, counted with their own rule for hot items, differs from the printed table."""


def find_errata(cells: Sequence[Cell]) -> dict[Key, str]:
    """The reason or reasons, "; " between them, by the key of the cell."""
    rows = performance_rows(cells)
    reasons: dict[Key, list[str]] = defaultdict(list)
    for rule in (_bounds, _f1_out_of_line, _equal_metrics, _jumps):
        for cell, reason in rule(rows):
            reasons[cell.key].append(reason)
    errors = [cell for cell in cells if cell.table == "errors"]
    for cell, reason in (
        *_against_precision(errors, rows),
        *_repeated_rows(errors),
        *_wrong_marks(cells),
        *_against_the_data(cells),
    ):
        reasons[cell.key].append(reason)
    return {key: "; ".join(said) for key, said in reasons.items()}


def performance_rows(cells: Iterable[Cell]) -> Rows:
    """The rows of the three large tables: (dataset, encoder, method, k) → metric → cell."""
    rows: dict[tuple[str, str, str, int], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        if cell.table == "performance":
            rows[cell.dataset, cell.encoder, cell.method, int(cell.k)][cell.metric] = cell
    return rows


def harmonic(p: float, r: float) -> float:
    """2pr / (p + r). It is concave, so the mean of users' F1 is at most that of the mean P and R."""
    return 2 * p * r / (p + r)


def ndcg_floor(precision: float, k: int) -> float:
    """The least mean NDCG@k of lists with this mean precision.

    A list with h hits has at least the h smallest of the k discounts, over at most all of them; in between
    the sum is convex in h, so users who differ only raise it. All hits, or none:

    >>> ndcg_floor(1.0, 5), ndcg_floor(0.0, 5)
    (1.0, 0.0)
    """
    discounts = [1 / math.log2(rank + 1) for rank in range(k, 0, -1)]
    hits = precision * k
    whole = min(int(hits), k - 1)
    return (sum(discounts[:whole]) + (hits - whole) * discounts[whole]) / sum(discounts)


def _bounds(rows: Rows) -> Found:
    for (_, _, _, k), row in rows.items():
        p, r = row["precision"].value, row["recall"].value
        floor = ndcg_floor(p - HALF_DIGIT, k)
        if row["ndcg"].value + HALF_DIGIT < floor:
            yield row["ndcg"], f"bound: NDCG is at least {floor:.4f} at this precision"
        if row["f1"].value - HALF_DIGIT > harmonic(p + HALF_DIGIT, r + HALF_DIGIT):
            yield row["f1"], "bound: F1 is above the harmonic mean of precision and recall"
        most = 2 - row["uhr"].value - row["ucr"].value
        # Recall has its best epoch, the rates that of precision: a hundredth is room enough for that.
        if r > most + 0.01:
            yield row["uhr"], f"bound: recall {r:g} is above 2 - UHR - UCR = {most:.4f}"


def _f1_out_of_line(rows: Rows) -> Found:
    ratios: dict[tuple[str, int], dict[tuple[str, str, str, int], float]] = defaultdict(dict)
    for key, row in rows.items():
        whole = harmonic(row["precision"].value, row["recall"].value)
        ratios[key[0], key[3]][key] = row["f1"].value / whole
    for group in ratios.values():
        usual = median(group.values())
        for key, ratio in group.items():
            if abs(ratio / usual - 1) > 0.05:
                fitting = usual * rows[key]["f1"].value / ratio
                yield rows[key]["f1"], f"f1: its precision and recall go with about {fitting:.3f}"


def _equal_metrics(rows: Rows) -> Found:
    for row in rows.values():
        for cell in row.values():
            for other in row.values():
                if cell is not other and cell.value == other.value:
                    yield cell, f"equal: {other.metric.upper()} of the row is the same number"


def _jumps(rows: Rows) -> Found:
    for (*where, k), row in rows.items():
        dataset, encoder, method = where
        if k == 5:
            continue
        for metric in ("uhr", "ucr"):
            shorter = {n: rows[dataset, encoder, method, n][metric].value for n in (5, 10) if n < k}
            if not min(shorter.values()) - 0.3 < row[metric].value < max(shorter.values()) + 0.01:
                yield row[metric], f"jump: {shorter[k // 2]:g} in the top {k // 2}"


def _against_precision(errors: Iterable[Cell], rows: Rows) -> Found:
    for cell in errors:
        if cell.metric == "mse":
            continue
        metric = {"fpr": "precision", "fnr": "recall"}[cell.metric]
        by_definition = 1 - rows[cell.dataset, cell.encoder, cell.method, 5][metric].value
        if abs(cell.value - by_definition) > 3 * HALF_DIGIT:
            yield cell, f"fpr: 1 - {metric}@5 is {by_definition:.4f}"


def _repeated_rows(errors: Sequence[Cell]) -> Found:
    rows: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in errors:
        rows[cell.dataset, cell.encoder, cell.method].append(cell)
    for (dataset, encoder, method), row in rows.items():
        twin = rows[dataset, "mf", method]
        if encoder == "lightgcn" and [c.text for c in row] == [c.text for c in twin]:
            yield from ((cell, "repeat: the row is that of MF") for cell in row)


def _wrong_marks(cells: Iterable[Cell]) -> Found:
    """Marks within a column: all methods of a data set, encoder and k, or all settings of a sweep."""
    columns: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        columns[cell.table, cell.dataset, cell.encoder, cell.k, cell.metric].append(cell)
    for column in columns.values():
        if not any(cell.mark for cell in column):
            continue
        best_first = sorted({c.value for c in column}, reverse=column[0].metric not in LOWER_IS_BETTER)
        for cell in column:
            place = best_first.index(cell.value)
            says = {"bold": 0, "underline": 1}.get(cell.mark)
            if says is not None and place != says:
                yield cell, f"mark: {cell.mark}, but {_ordinal(place)} of its column"
            if not cell.mark and place < 1 + (cell.table in ("performance", "errors")):
                yield cell, f"mark: none, but {_ordinal(place)} of its column"


def _against_the_data(cells: Iterable[Cell]) -> Found:
    for cell in cells:
        counted = COUNTED.get((cell.dataset, cell.metric)) if cell.table == "datasets" else None
        if counted is not None:
            yield cell, f"data: the published split has {counted}"


def _ordinal(place: int) -> str:
    return ("best", "second", "third", "fourth")[place] if place < 4 else f"number {place + 1}"
