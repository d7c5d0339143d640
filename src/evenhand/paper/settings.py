"""With which numbers the paper's runs were made: as its table has them, or as the released code suggests.

The two disagree on some, and neither states all; `assumed` names what had to be filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evenhand.paper.published import cells
from evenhand.utils.errors import InputError, unknown

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
_OWN = ("alpha", "beta", "gamma", "candidates", "probes")


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


def settings(dataset: str, encoder: str, method: str = "auc-ns", which: Source = "paper") -> PublishedSettings:
    """The settings of a row of the tables.

    The paper states them for its own method only; for another method they are AUC-NS' numbers for the
    training loop, all of them assumed, and nothing for the method itself.

    >>> settings("ml-100k", "lightgcn").batch, settings("ml-100k", "lightgcn", which="released").batch
    (128, 1024)
    """
    if which not in ("paper", "released"):
        raise unknown("source of settings", which, ("paper", "released"))
    cells("performance", dataset, encoder, method)  # an error that names the nearest, if there is no such row
    found = {c.metric: c for c in cells("settings", dataset, encoder)}
    values: dict[str, Any] = {name: found[name].value for name in ("lr", "weight_decay", *_OWN[:3])}
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
        values |= dict.fromkeys(_OWN)
        assumed = [*(name for name in assumed if name not in _OWN), *_TRAINING]
    return PublishedSettings(**values, assumed=tuple(sorted(assumed)))
