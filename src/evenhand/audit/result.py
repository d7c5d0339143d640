"""What an audit found, as plain values, and as one JSON document and back.

The report and the gates are views of this. `--json` prints the document, `--save` keeps it and `--baseline` reads it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from evenhand.data.write import write_text
from evenhand.metrics.catalogue import CARD, METRICS
from evenhand.metrics.statistics import Estimate, brief
from evenhand.utils.errors import InputError
from evenhand.utils.text import as_json, html_table, json_text, one_line

FORMAT = 1


@dataclass(frozen=True)
class SystemRow:
    name: str
    k: int
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True)
class Contrast:
    """One metric of two systems on the same users: `value = a - b`, paired, with what speaks for it."""

    metric: str
    k: int
    a: str
    b: str
    difference: Estimate
    p: float
    """Holm-corrected over all contrasts at this k."""

    @property
    def beyond_uncertainty(self) -> bool:
        return self.p < 0.05


@dataclass(frozen=True)
class SliceRow:
    """Some metrics of one system at one k over a part of the users, or of the items."""

    by: str
    """What divides: "item popularity", "user activity", "taste", or the name of an attribute column."""
    of: str
    """"users" or "items"."""
    part: str
    """Which part: "decile 1 (most popular)", "niche", "drama", …"""
    size: int
    """How many users or items are in it."""
    name: str
    k: int
    metrics: Mapping[str, Estimate]


@dataclass(frozen=True)
class Exposure:
    """Where recommendations and demand go, by the items' popularity in train."""

    name: str
    k: int
    share: tuple[float, ...]
    """Of all recommended slots, the share of each popularity decile of items, the most popular first."""
    lorenz: tuple[tuple[float, float], ...]
    """Points (share of items, share of slots), least exposed items first, (0, 0) to (1, 1), at most 101."""


@dataclass(frozen=True)
class Confusion:
    """The paper's four-way picture, pooled over users: recommended or missed, wanted or not, hot or cold."""

    name: str
    k: int
    hits_hot: int
    hits_cold: int
    wrong_hot: int
    """Recommended, not wanted, hot: over-recommended hits."""
    wrong_cold: int
    missed_hot: int
    """Wanted, not recommended, hot."""
    missed_cold: int


@dataclass(frozen=True)
class Shown:
    """One item in an example: its id, its title where one is known, and how it stands."""

    item: str
    title: str | None
    hot: bool
    wanted: bool


@dataclass(frozen=True)
class Example:
    """One user: what they had, what they wanted, what each system showed them."""

    user: str
    why: str
    """Why this one is shown, such as "niche taste, most over-recommended hits"."""
    history: tuple[Shown, ...]
    wanted: tuple[Shown, ...]
    lists: Mapping[str, tuple[Shown, ...]]
    n_history: int | None = None
    """How many items the user had, of which `history` holds the first few."""
    n_wanted: int | None = None


@dataclass(frozen=True)
class Finding:
    """One plain sentence with its numbers, and whether it exceeds the uncertainty (None: nothing to test)."""

    sentence: str
    certain: bool | None


@dataclass(frozen=True)
class Change:
    """One metric of one system, now and in an earlier audit."""

    name: str
    k: int
    metric: str
    before: Estimate
    after: Estimate
    beyond_uncertainty: bool
    """Whether it moved further than both intervals together explain."""
    worse: bool | None
    """Whether it moved the wrong way; None where neither way is better, or it did not move."""


@dataclass(frozen=True, eq=False)
class Audit:
    """Recommendations against train and, where there is one, test."""

    systems: tuple[str, ...]
    ks: tuple[int, ...]
    k: int
    """The k that findings, slices, exposure and examples speak of."""
    data: Mapping[str, Any]
    """What was audited: users, items, interactions, test_interactions, hot_rule, hot_items, judged_users."""
    notes: tuple[str, ...]
    """Everything odd that was met and decided, one sentence each."""
    findings: tuple[Finding, ...]
    rows: tuple[SystemRow, ...]
    contrasts: tuple[Contrast, ...]
    slices: tuple[SliceRow, ...]
    demand: Mapping[str, tuple[float, ...]]
    """Share of each popularity decile in "train" and, with a test part, in "test"."""
    exposure: tuple[Exposure, ...]
    confusion: tuple[Confusion, ...]
    """Empty without a test part."""
    examples: tuple[Example, ...]
    changes: tuple[Change, ...] = ()
    """Against an earlier audit, where one was given: every metric that both have."""

    def __repr__(self) -> str:
        test = "" if self.data.get("test_interactions") is None else " and test"
        ks = ", ".join(map(str, self.ks))
        return f"Audit({', '.join(self.systems)}; top {ks}; against train{test})"

    def _repr_html_(self) -> str:
        """The findings and the figures at `k`, for a notebook."""
        rows = [
            {f"top {self.k}": row.name}
            | {
                f"{METRICS[name].title} {METRICS[name].arrow}": brief(row.metrics[name])
                for name in CARD
                if name in row.metrics
            }
            for row in self.rows
            if row.k == self.k
        ]
        return html_table(repr(self), rows, [*(finding.sentence for finding in self.findings), *self.notes])

    def row(self, name: str, k: int) -> SystemRow:
        return next(row for row in self.rows if row.name == name and row.k == k)


def to_json(audit: Audit) -> dict[str, Any]:
    """Plain values; an undefined number is null. `rows` are as in `compare` and `evaluate`."""
    document = {
        "evenhand_audit": FORMAT,
        "rows": [
            {
                "name": row.name,
                "encoder": None,
                "method": None,
                "k": row.k,
                "metrics": {
                    name: {"mean": one.value, "std": None, "values": [one.value], "low": one.low, "high": one.high}
                    for name, one in row.metrics.items()
                }
                | {"mse": None},
            }
            for row in audit.rows
        ],
        "systems": list(audit.systems),
        "ks": list(audit.ks),
        "k": audit.k,
        "data": dict(audit.data),
        "notes": list(audit.notes),
        "demand": {name: list(shares) for name, shares in audit.demand.items()},
    }
    for name in ("findings", "contrasts", "slices", "exposure", "confusion", "examples", "changes"):
        document[name] = [asdict(one) for one in getattr(audit, name)]
    plain: dict[str, Any] = as_json(document)
    return plain


def from_json(document: Mapping[str, Any]) -> Audit:
    if document.get("evenhand_audit") != FORMAT:
        raise InputError("this is not the JSON of an audit; write one with `evenhand audit --save`.")
    try:
        rows = [
            {
                "name": row["name"],
                "k": row["k"],
                "metrics": {
                    name: {"value": metric["mean"], "low": metric["low"], "high": metric["high"]}
                    for name, metric in row["metrics"].items()
                    if metric is not None
                },
            }
            for row in document["rows"]
        ]
        found: Audit = _built({one.name: document[one.name] for one in fields(Audit)} | {"rows": rows}, Audit)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise InputError(f"the JSON of the audit is not whole ({one_line(problem)}); write it again.") from None
    return found


def read_audit(path: Path) -> Audit:
    """An audit from a file that `--save` or `--json` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}.") from problem
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; give a file written with `evenhand audit --save`.") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is not the JSON of an audit; write one with `evenhand audit --save`.")
    return from_json(document)


def save_audit(audit: Audit, path: str | Path) -> None:
    write_text(Path(path), json_text(to_json(audit)) + "\n")


def _built(value: Any, kind: Any) -> Any:
    """A value out of JSON, with all that is in it, as the type that a dataclass states; null as a number is NaN.

    >>> _built({"value": 0.5, "low": None, "high": None}, Estimate)
    Estimate(value=0.5, low=None, high=None)
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:  # with None
        return None if value is None else _built(value, inside[0])
    if origin is tuple and isinstance(value, list):
        kinds = inside[:1] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(_built(one, of) for one, of in zip(value, kinds, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        return {name: _built(one, inside[1]) for name, one in value.items()}
    if is_dataclass(kind) and isinstance(value, Mapping):
        hints, made = get_type_hints(kind), cast("Any", kind)
        return made(**{name: _built(one, hints[name]) for name, one in value.items()})
    if kind is float and value is None:
        return math.nan
    allowed = (int, float) if kind is float else kind
    fits = origin is None and isinstance(value, allowed) and isinstance(value, bool) == (kind is bool)
    # In JSON a whole number may have any number of digits; as a float it may not.
    if not fits or (kind in (int, float) and abs(value) > sys.float_info.max):
        raise TypeError("a value of the wrong type")
    return value
