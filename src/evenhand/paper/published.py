"""The paper's published tables, cell by cell, as they were printed, with what is known to be wrong in them.

`published.csv` was transcribed from the paper's source by `scripts/transcribe_paper.py`.
"""

from __future__ import annotations

import csv
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from evenhand.utils.errors import InputError, unknown

FILE = Path(__file__).with_name("published.csv")
LOWER_IS_BETTER = ("ohr", "ocr", "uhr", "ucr", "mse", "fpr", "fnr")


@dataclass(frozen=True)
class Cell:
    """One printed number. What does not apply to a cell is empty."""

    table: str
    """performance (top 5, 10, 20), errors (MSE, FPR, FNR), alpha, beta, gamma (sweeps), datasets, settings"""
    dataset: str
    encoder: str
    method: str
    k: str
    parameter: str
    """What is swept, or what `setting` belongs to."""
    setting: str
    metric: str
    text: str
    """The number as printed: "0.4620"."""
    mark: str
    """bold (called best), underline (called second) or empty"""
    errata: str = ""
    """Why the cell cannot be right, or cannot be right together with another; empty for most."""

    @property
    def value(self) -> float:
        return float(self.text)

    @property
    def key(self) -> tuple[str, ...]:
        """Where the cell stands: everything but what is printed in it."""
        return astuple(self)[:8]


COLUMNS = tuple("value" if f.name == "text" else f.name for f in fields(Cell))
_KEYS = COLUMNS[:8]


@cache
def all_cells() -> tuple[Cell, ...]:
    """Every cell of every table, in the order of the paper."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        assert tuple(next(rows)) == COLUMNS
        return tuple(Cell(*row) for row in rows)


def cells(
    table: str | None = None,
    dataset: str | None = None,
    encoder: str | None = None,
    method: str | None = None,
    k: int | str | None = None,
    parameter: str | None = None,
    setting: float | str | None = None,
    metric: str | None = None,
) -> tuple[Cell, ...]:
    """The cells that agree with all that is given; at least one, or an error that offers the nearest.

    >>> [c.text for c in cells("performance", "ml-100k", "mf", "auc-ns", 5, metric="precision")]
    ['0.4324']
    >>> [c.value for c in cells("beta", setting=0.01, metric="hot_share")]
    [0.2709]
    """
    asked = (table, dataset, encoder, method, k, parameter, setting, metric)
    wanted = {n: _written(v) for n, v in zip(_KEYS, asked, strict=True) if v is not None}
    found = all_cells()
    for n, (name, value) in enumerate(wanted.items()):
        left = tuple(cell for cell in found if getattr(cell, name) == value)
        if not left:
            raise _missing(name, value, dict(list(wanted.items())[:n]), found)
        found = left
    return found


def cell(
    table: str,
    dataset: str | None = None,
    encoder: str | None = None,
    method: str | None = None,
    k: int | str | None = None,
    parameter: str | None = None,
    setting: float | str | None = None,
    metric: str | None = None,
) -> Cell:
    """The one cell that agrees with all that is given."""
    found = cells(table, dataset, encoder, method, k, parameter, setting, metric)
    if len(found) > 1:
        open_ = [n for n in _KEYS if len({getattr(c, n) for c in found}) > 1]
        raise InputError(f"{len(found)} published cells fit; say which {' and '.join(open_)} is meant.")
    return found[0]


def _written(value: float | str) -> str:
    """A key as the file has it: 5 is "5", 0.010 is "0.01"."""
    return value.lower() if isinstance(value, str) else f"{value:g}"


def _missing(name: str, value: str, before: dict[str, str], found: tuple[Cell, ...]) -> InputError:
    known = {getattr(c, name) for c in found} - {""}
    where = f"the published cells with {', '.join(f'{n} {v}' for n, v in before.items())}"
    if not known:
        return InputError(f"there is no {name} in {where}; leave '{name}' out.")
    try:
        nearest, ordered = min(known, key=lambda k: abs(float(k) - float(value))), sorted(known, key=float)
    except ValueError:
        return unknown(name, value, known)
    return InputError(f"unknown {name} '{value}'; the nearest is {nearest}. Known: {', '.join(ordered)}.")
