"""What an audit found, as plain values: the report, the gates and the JSON are views of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.metrics.catalogue import CARD, METRICS
from evenhand.metrics.statistics import Estimate as Estimate
from evenhand.metrics.statistics import brief
from evenhand.utils.text import html_table


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
