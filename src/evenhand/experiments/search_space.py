"""Where a search looks: the sensible range of every parameter, in one table.

A parameter is either searched by default (`RANGES`) or deliberately left as it is (`FIXED`, with the reason);
a test holds every registered method, baseline and encoder to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evenhand.baselines import ALS, EASE, GFCF, Blend, ItemKNN, Popular, Recipe
from evenhand.encoders import MF, LightGCN
from evenhand.methods import parse_value
from evenhand.objectives import BPR, BSL, IPS, MACR, PSL, AUCSoftmax, BCLoss, CausE, Reg, SLatK, Softmax
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    UniformSampler,
)
from evenhand.training.method import Method
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError, unknown


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; with `log` every order of magnitude counts the same."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(f"a range goes from a number up to a larger one, not {self}.")
        if self.log and self.low <= 0:
            raise InputError(f"a logarithmic range starts above 0, not {self}.")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise InputError(f"a range of whole numbers has whole ends, not {self}.")

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.tidy(self.low), self.tidy(self.high)

    def to_json(self) -> dict[str, Any]:
        low, high = self.ends
        return {"low": low, "high": high, "log": self.log, "integer": self.integer}

    def distribution(self) -> Any:
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.integer:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def tidy(self, value: float) -> float | int:
        """With four digits, so that what is trained is what a person can paste."""
        return int(value) if self.integer else min(max(float(f"{value:.4g}"), self.low), self.high)

    def nearest(self, value: Any) -> float | int:
        """The point of the range where a search starts that would like to start at `value`."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        inside = min(max(value, self.low), self.high) if number else self.low
        return int(inside) if self.integer else float(inside)

    def including(self, value: Any) -> Range:
        """Wide enough for `value`, where it is a number that may lie in such a range."""
        if self.nearest(value) == value or not isinstance(value, (int, float)) or (self.log and value <= 0):
            return self
        return replace(self, low=min(self.low, value), high=max(self.high, value))


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(map(repr, self.values))) != len(self.values):
            raise InputError(f"a choice is between two or more different values, not '{self}'.")

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def to_json(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def distribution(self) -> Any:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def tidy(self, value: Any) -> Any:
        return value

    def nearest(self, value: Any) -> Any:
        return value if value in self.values else self.values[0]

    def including(self, value: Any) -> Choice:
        return self if value in self.values else Choice((*self.values, value))


Space = Mapping[str, Range | Choice]

_SOFTMAX: Space = {"temperature": Range(0.05, 0.5, log=True)}

RANGES: Mapping[type, Space] = {
    Settings: {
        "lr": Range(3e-4, 0.05, log=True),
        "l2": Range(1e-6, 0.1, log=True),
        "weight_decay": Choice((0.0, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4)),
    },
    MF: {},
    LightGCN: {"layers": Range(1, 4, integer=True)},
    UniformSampler: {},
    PopularitySampler: {"exponent": Range(0, 1)},
    DynamicSampler: {"candidates": Range(2, 20, log=True, integer=True)},
    GroupSampler: {},
    BalancedSampler: {},
    AUCSampler: {
        "alpha": Range(0.5, 1),
        "beta": Range(1e-3, 1, log=True),
        "gamma": Range(1e-4, 0.5, log=True),
        "candidates": Range(2, 20, log=True, integer=True),
    },
    BPR: {},
    IPS: {"smoothing": Range(0, 1)},
    Reg: {"weight": Range(1e-3, 0.5, log=True)},
    MACR: {"item_weight": Range(1e-5, 0.1, log=True), "user_weight": Range(1e-5, 0.1, log=True)},
    CausE: {"weight": Range(1e-3, 10, log=True), "share": Range(0.02, 0.5, log=True)},
    BCLoss: {
        "tau1": Range(0.03, 0.3, log=True),
        "tau2": Range(0.03, 0.5, log=True),
        "weight": Range(0.1, 0.9),
        "warm_up": Range(1, 20, log=True, integer=True),
        "final": Choice(("inner", "cosine")),
    },
    Softmax: _SOFTMAX,
    PSL: _SOFTMAX,
    BSL: {**_SOFTMAX, "negative_weight": Range(0.8, 1.4)},
    SLatK: {**_SOFTMAX, "weight_temperature": Range(0.5, 3)},
    AUCSoftmax: {**_SOFTMAX, "alpha": Range(0.5, 1), "beta": Range(1e-3, 1, log=True)},
    Popular: {},
    ItemKNN: {
        "neighbours": Range(3, 1000, log=True, integer=True),
        "shrink": Range(0, 50),
        "norm": Choice(("cosine", "gram")),
        "item_exponent": Range(0.2, 0.7),
        "user_exponent": Range(0, 1.5),
        "power": Range(0.5, 2),
    },
    GFCF: {
        "factors": Range(16, 512, log=True, integer=True),
        "alpha": Range(-1, 2),
        "linear_exponent": Range(-0.2, 0.6),
        "spectral_exponent": Range(-0.2, 0.6),
        "eigen_power": Choice((0, 1, 2)),
    },
    EASE: {"l2": Range(10, 10_000, log=True)},
    Blend: {},
    Recipe: {},
    ALS: {
        "factors": Range(16, 1024, log=True, integer=True),
        "alpha": Range(0.5, 1000, log=True),
        "l2": Range(1, 1000, log=True),
        "nu": Range(0, 1),
    },
}
"""What a search varies by default."""

_SIZE = "the size of the model is a question of cost, and the same for everyone who is compared"
_COST = "more is better, and slower"
_PUBLISHED = "a variant for replications"
_TIMES = "it belongs to logs with times, where the recipe tries it"

_SOFTMAX_FIXED = {"shared": _COST, **dict.fromkeys(("similarity", "positive", "correction"), _PUBLISHED)}

FIXED: Mapping[type, Mapping[str, str]] = {
    Settings: {
        "epochs": "validation chooses the epoch",
        "batch": "it moves with lr, and decides the speed",
        "milestones": "validation chooses the epoch",
        "negatives": "it belongs to the objective, and decides the speed",
        "patience": "validation chooses the epoch",
        "average": "it belongs to the protocol",
        "drop_last": "it belongs to the protocol",
        "deterministic": "it does not change what is learned",
        "sampler_scores": _PUBLISHED,
        "updates": "it belongs to the size of the data",
        "engine": "it does not change what is learned",
        "eval_users": "it decides how exact the measure is, and the speed",
        "seconds": _COST,
    },
    MF: {"dim": _SIZE},
    LightGCN: {"dim": _SIZE},
    GroupSampler: {"groups": "it belongs to the data", "shares": "it is the method"},
    DynamicSampler: {"top": "1 is the published method"},
    AUCSampler: {
        "probes": _COST,
        "ecdf": _COST,
        "pool": _COST,
        "rule": "the printed one is the method",
        "inside": "of the exact rule",
    },
    MACR: {"c": "validation chooses it for every seed", "matrix": _PUBLISHED},
    BCLoss: {"margin": _PUBLISHED, "in_batch": _PUBLISHED},
    **dict.fromkeys((Softmax, BSL, AUCSoftmax), _SOFTMAX_FIXED),
    PSL: {**_SOFTMAX_FIXED, "activation": _PUBLISHED},
    SLatK: {**_SOFTMAX_FIXED, "k": "it is the list that counts", "refresh": _COST},
    ItemKNN: {"window": _TIMES, "recency": _TIMES},
    GFCF: {"recency": _TIMES},
    Popular: {"half_life": "it belongs to tests by time", "log": "it changes no list"},
    EASE: {
        "recency": _TIMES,
        "balance": "0 is the published method",
        "lift": "1 is the published method",
        "max_items": _COST,
    },
    ALS: {"iterations": _COST, "steps": _COST},
    Blend: dict.fromkeys(("parts", "shares"), "it settles its numbers itself"),
    Recipe: dict.fromkeys(("budget", "aim", "goal"), "it searches itself"),
}
"""What stays as it is, and why; `--range` searches the numbers among these too."""


def declared(*parts: type) -> tuple[dict[str, Range | Choice], dict[str, str]]:
    """What the tables say of these parts together: where each parameter is searched, or why it is not.

    >>> ranges, fixed = declared(AUCSampler, BPR)
    >>> str(ranges["beta"]), fixed["probes"]
    ('0.001..1:log', 'more is better, and slower')
    """
    ranges = {name: span for part in parts for name, span in RANGES.get(part, {}).items()}
    return ranges, {name: why for part in parts for name, why in FIXED.get(part, {}).items()}


def search_space(
    method: Method, fixed: Mapping[str, Any] | None = None, ranges: Space | None = None
) -> dict[str, Range | Choice]:
    """What a search for this method varies.

    These are the ranges of the table and the given ones, without what is `fixed` and what the method's text
    already says (`auc-ns:alpha=0.8`); nothing may be left.
    """
    fixed, ranges = fixed or {}, ranges or {}
    label, known = method.label, method.parameters()
    held = {*fixed, *method.named}
    for name in (*fixed, *ranges):
        if name not in known:
            raise unknown(f"parameter of '{label}'", name, known)
        if name in fixed and name in method.named and fixed[name] != known[name]:
            raise InputError(f"{name} is given twice, in '{label}' and as {fixed[name]}; leave one out.")
        if name in ranges and name in held:
            raise InputError(f"{name} cannot be both fixed and searched; leave one of them out.")
    # Of the two forms of L2 both are searched, unless one of them is asked for.
    if fixed.get("weight_decay", known.get("weight_decay")) or "weight_decay" in ranges:
        held.add("l2")
    elif "l2" in fixed or "l2" in ranges:
        held.add("weight_decay")
    objective = method.components().get("objective")
    if objective is not None and not objective.lengths_matter:
        held |= {"l2", "weight_decay"}
    tables = [RANGES.get(type(part), {}) for part in method.components().values()]
    space = {name: span.including(known[name]) for table in tables for name, span in table.items() if name not in held}
    space |= ranges
    for name, span in space.items():
        _check_ends(method, name, span)
    return space


def parse_range(text: str, method: Method) -> tuple[str, Range | Choice]:
    """`lr=1e-4..1e-2:log`, or `final=inner,cosine` for a choice.

    >>> from evenhand.methods import parse
    >>> parse_range("beta=0.001..1:log", parse("auc-ns"))
    ('beta', Range(low=0.001, high=1.0, log=True, integer=False))
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise InputError(f"--range is written key=low..high or key=low..high:log, not '{text}'.")
    if name not in method.parameters():
        raise unknown(f"parameter of '{method.label}'", name, method.parameters())
    low, dots, high = value.removesuffix(":log").partition("..")
    if not dots:
        return name, Choice(tuple(parse_value(one.strip()) for one in value.split(",")))
    try:
        ends = float(low), float(high)
    except ValueError:
        raise InputError(f"--range {text}: the ends of a range are numbers.") from None
    return name, Range(*ends, log=value.endswith(":log"), integer=method.is_integer(name))


def _check_ends(method: Method, name: str, span: Range | Choice) -> None:
    """A search over impossible values fails before the first trial."""
    if isinstance(span, Range) and isinstance(method.parameters()[name], (bool, tuple)):
        raise InputError(f"{name} is not a number, so a range makes no sense; list its values: {name}=a,b.")
    for end in span.ends:
        method.having({name: end})
