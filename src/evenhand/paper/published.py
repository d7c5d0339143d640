"""The paper's published tables, cell by cell, as they were printed, and the hyperparameters behind them.

`published.csv` was transcribed by `scripts/transcribe_paper.py`, with what is known to be wrong in it. Of
hyperparameters the paper states those of its own method alone, with which the five debiasing losses do badly; each of
these gets what a small grid found best on a tenth of train.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

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


def cell(*asked: Any, **named: Any) -> Cell:
    """The one cell that agrees with all that is given; the arguments are those of `cells`."""
    found = cells(*asked, **named)
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


Source = Literal["paper", "released"]

_FLAGS = {"dim": 32, "epochs": 500, "candidates": 5, "probes": 10}
"""Defaults of the released code, which the paper does not mention."""
_RELEASED: dict[tuple[str, str], dict[str, Any]] = {
    ("ml-100k", "mf"): {"alpha": 0.6, "beta": 0.025},
    ("ml-100k", "lightgcn"): {"batch": 1024, "weight_decay": 1e-5, "beta": 0.025},
    ("ml-1m", "mf"): {"alpha": 0.6, "beta": 0.025},
    ("ml-1m", "lightgcn"): {"lr": 1e-3, "beta": 0.025},
}
"""Where the last released suggestion differs from the paper's table. It has no row for Yahoo!-R3."""
_LAYERS = {"ml-100k": 2, "ml-1m": 2, "yahoo-r3": 3}
_TRAINING = ("batch", "lr", "weight_decay", "milestones")
OWN = ("alpha", "beta", "gamma", "candidates", "probes")


@dataclass(frozen=True)
class PublishedSettings:
    """The numbers of one run; None where they do not apply or nobody has said them."""

    dim: int
    batch: int
    lr: float
    weight_decay: float
    epochs: int
    """The most that were run; the best one on test was reported."""
    milestones: tuple[int, ...]
    """After these epochs the learning rate falls to a tenth."""
    layers: int | None
    """Of LightGCN."""
    alpha: float | None
    beta: float | None
    gamma: float | None
    candidates: int | None
    probes: int | None
    assumed: tuple[str, ...]
    """Which of these the source does not state: they are the released code's defaults, or AUC-NS' numbers."""


def published_settings(
    dataset: str, encoder: str, method: str = "auc-ns", which: Source = "paper"
) -> PublishedSettings:
    """The settings of a row of the tables.

    The paper states them for its own method only; for another method they are AUC-NS' numbers for the
    training loop, all of them assumed, and nothing for the method itself.

    >>> published_settings("ml-100k", "lightgcn").batch
    128
    >>> published_settings("ml-100k", "lightgcn", which="released").batch
    1024
    """
    if which not in ("paper", "released"):
        raise unknown("source of settings", which, ("paper", "released"))
    cells("performance", dataset, encoder, method)  # an error that names the nearest, if there is no such row
    found = {c.metric: c for c in cells("settings", dataset, encoder)}
    values: dict[str, Any] = {name: found[name].value for name in ("lr", "weight_decay", *OWN[:3])}
    values["batch"] = int(found["batch"].value)
    values["milestones"] = tuple(int(epoch) for epoch in found["lr_decay"].setting.split(",") if epoch)
    values |= _FLAGS | {"layers": _LAYERS[dataset] if encoder == "lightgcn" else None}
    assumed = [*_FLAGS, *(["layers"] if encoder == "lightgcn" else [])]
    if which == "released":
        if (dataset, encoder) not in _RELEASED:
            raise InputError(f"the released code suggests nothing for {dataset}; ask for which='paper'.")
        values |= _RELEASED[dataset, encoder]
        assumed = []
    if method != "auc-ns":
        values |= dict.fromkeys(OWN)
        assumed = [*(name for name in assumed if name not in OWN), *_TRAINING]
    return PublishedSettings(**values, assumed=tuple(sorted(assumed)))


SOURCE = "chosen on a validation tenth of ML-100K's train part with MF (docs/methods.md)"
LIGHTER = f"{SOURCE}, with a tenth of the weight decay, which a validation tenth of ML-1M's preferred"
SEARCHED = "found by 12 trials on a validation tenth of ML-1M's train part (docs/beyond.md)"
NEEDED = ("ips-cn", "samreg", "macr", "cause", "bc-loss")
"""Rows of the paper that are trained with these numbers whatever the settings asked for."""


@dataclass(frozen=True)
class Tuned:
    """The training loop's numbers for one method, and those of its own parameters that are not defaults."""

    lr: float
    weight_decay: float
    own: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1024
    epochs: int = 100
    source: str = SOURCE


_ON_ML_100K: Mapping[str, Tuned] = {
    "rns": Tuned(0.003, 1e-5),
    "ips-cn": Tuned(0.001, 0.0),
    "ips-cn:smoothing=0.5": Tuned(0.001, 1e-5),
    "macr": Tuned(0.003, 1e-5, {"item_weight": 0.01, "user_weight": 0.01}),
    "cause": Tuned(0.003, 1e-5, {"weight": 0.05}),
    "samreg": Tuned(0.003, 1e-4),
    "samreg@rns": Tuned(0.003, 1e-5),
    "bc-loss": Tuned(0.01, 1e-4, {"tau1": 0.15}),
}
_CARRIED: Mapping[str, Tuned] = {
    name: replace(numbers, epochs=500)
    for name, numbers in _ON_ML_100K.items()
    if name.partition(":")[0].partition("@")[0] in NEEDED
}


def _lighter(*names: str) -> dict[str, Tuned]:
    return {
        name: replace(_CARRIED[name], weight_decay=round(_CARRIED[name].weight_decay / 10, 9), source=LIGHTER)
        for name in names
    }


_BC_ON_ML_1M = {"tau1": 0.15, "tau2": 0.04, "weight": 0.23, "warm_up": 7, "final": "cosine"}
TUNED: Mapping[tuple[str, str], Mapping[str, Tuned]] = {
    ("ml-100k", "mf"): _ON_ML_100K,
    ("ml-1m", "mf"): {
        **_CARRIED,
        **_lighter("cause", "samreg"),
        "bc-loss": Tuned(0.011, 2e-6, _BC_ON_ML_1M, batch=4096, epochs=500, source=SEARCHED),
    },
    ("ml-1m", "lightgcn"): {**_CARRIED, **_lighter("macr", "cause", "samreg")},
}
"""(dataset, encoder) → method as asked for → numbers; ML-100K's are docs/methods.md's first table."""

BASELINES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "ml-100k": {"ease": {"l2": 400}, "als": {"factors": 128, "alpha": 2, "l2": 30}},
    "ml-1m": {"ease": {"l2": 980}, "als": {"factors": 34, "alpha": 2.3, "l2": 5.5}},
}
"""dataset → baseline → parameters, found on validation (docs/baselines.md); the first l2 is the literature's."""


def tuned_for(dataset: str, encoder: str, asked: str) -> Tuned | None:
    """What was found for a method as it was asked for, with parameters or without; None if nothing."""
    table = TUNED.get((dataset, encoder), {})
    return table.get(asked) or table.get(asked.partition(":")[0])


def own_values(asked: str) -> Mapping[str, Any]:
    """A method's own parameters as found with MF on ML-100K, for want of anything nearer elsewhere."""
    found = tuned_for("ml-100k", "mf", asked)
    return found.own if found else {}
