"""The hyperparameters behind the paper's tables: as published, as released, and as a search found them.

The paper states those of its own method alone, and its released code differs from it; `assumed` names what had
to be filled in. With these numbers four of the methods it compares with (random, popular, dynamic and group
negatives) do well too. The five debiasing losses do not, and each gets what a small grid found best on a tenth
of ML-100K's train part; for ML-1M that was checked on a tenth of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
