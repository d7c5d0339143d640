"""The audit in a few plain sentences, and a few users to look at.

Each sentence has its numbers and says whether chance could explain it; the first are about the winner. Rates are
pooled, as in the audit's tables, so that no sentence contradicts a number. Users are chosen by a rule that anybody can
check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.audit.measures import Measures
from evenhand.audit.result import Contrast, Example, Finding, Shown, SystemRow
from evenhand.audit.slices import by_taste
from evenhand.audit.sweep import Block, Reference, Terms, audience_of
from evenhand.metrics.catalogue import HEADLINE
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import Slots
from evenhand.metrics.statistics import LEAST_USERS, Estimate
from evenhand.utils.spread_arrays import exchange_arrays
from evenhand.utils.world import World

MOST_SHOWN = 20
"""At most this number of items of a history or of what was wanted."""
_TASTES = ("niche", "diverse", "blockbuster")
"""As `by_taste` numbers them."""


def find(
    rows: Sequence[SystemRow],
    contrasts: Sequence[Contrast],
    measures: Measures,
    systems: Sequence[str],
    k: int,
    demand: Mapping[str, Sequence[float]],
    n_items: int,
) -> tuple[Finding, ...]:
    """About the winner, and about it against the next best; the winner has the best NDCG or, without test, exposure."""
    metrics = {row.name: row.metrics for row in rows if row.k == k}
    order = sorted(systems, key=lambda name: _merit(metrics[name], measures.has_test), reverse=True)
    best, own = order[0], metrics[order[0]]
    exposure = _exposure(best, own, k, demand["test" if measures.has_test else "train"], n_items)
    if not measures.has_test:
        found = [exposure, _lift(best, own["popularity_lift"], k)]
    else:
        found = [exposure, _unwanted(best, own, k), _missed(best, own, measures, k)]
        if len(systems) == 1:
            found.append(_lift(best, own["popularity_lift"], k))
    if len(systems) > 1:
        between = {c.metric: _turned(c, best) for c in contrasts if c.k == k and {c.a, c.b} == {best, order[1]}}
        if measures.has_test:
            found.insert(0, _against(between["ndcg"], "NDCG", "is {} accurate"))
            found.append(_against(between["ohr_pooled"], "pooled OHR", "errs {} often in the hot items it shows"))
        else:
            found.append(_against(between[HEADLINE], "exposure gap", "strays {} from demand"))
    return tuple(one for one in found if one is not None)


def _merit(metrics: Mapping[str, Estimate], has_test: bool) -> float:
    value = metrics["ndcg"].value if has_test else -metrics[HEADLINE].value
    return -math.inf if math.isnan(value) else value


def _turned(contrast: Contrast, first: str) -> Contrast:
    """The contrast as `first` − the other."""
    if contrast.a == first:
        return contrast
    return replace(contrast, a=contrast.b, b=contrast.a, difference=_negated(contrast.difference))


def _exposure(name: str, own: Mapping[str, Estimate], k: int, demand: Sequence[float], n_items: int) -> Finding | None:
    share, gap, half = own["top_tenth_share"], own[HEADLINE], own["items_for_half"]
    if math.isnan(gap.value):
        return None
    return Finding(
        f"The most popular tenth of the items has {100 * demand[0]:.1f} % of the demand and gets {percent(share)} of "
        f"the top {k} of {name}; half of its slots go to {half.value:.0f} of {n_items:,} items. Exposure gap: "
        f"{percent(gap)} of the slots would have to go to other popularity tenths to follow demand.",
        None,
    )


def _unwanted(name: str, own: Mapping[str, Estimate], k: int) -> Finding | None:
    hot, cold = own["ohr_pooled"], own["ocr_pooled"]
    if math.isnan(hot.value):
        return None
    share = f"which make up {100 * own['aplt'].value:.1f} % of its lists"
    tail = "" if math.isnan(cold.value) else f"; of the cold ones, {share}, {percent(cold)}"
    return Finding(
        f"Of the hot items that {name} shows in its top {k}, {percent(hot)} were not wanted{tail} (pooled rates).", None
    )


def _missed(name: str, own: Mapping[str, Estimate], measures: Measures, k: int) -> Finding | None:
    hot, cold = own["uhr_pooled"], own["ucr_pooled"]
    if math.isnan(hot.value) or math.isnan(cold.value):
        return None
    gap = measures.swept.draws.measure(
        lambda get: (
            get((name, k, "ucr.above")) / get((name, k, "ucr.below"))
            - get((name, k, "uhr.above")) / get((name, k, "uhr.below"))
        )
    )
    enough = gap.users >= LEAST_USERS
    certain = enough and gap.p < 0.05
    worse = "cold" if gap.value > 0 else "hot"
    doubt = "the difference is within chance" if enough else "too few users to tell them apart"
    return Finding(
        f"{name} misses {percent(cold)} of the cold items that users wanted and {percent(hot)} of the hot ones: "
        f"{f'{worse} ones fare worse, beyond chance' if certain else doubt}.",
        certain,
    )


def _lift(name: str, lift: Estimate, k: int) -> Finding | None:
    if math.isnan(lift.value):
        return None
    certain = None
    if lift.low is not None and lift.high is not None:
        certain = lift.low > 0 or lift.high < 0
    way = "more" if lift.value >= 0 else "less"
    size = _negated(lift) if lift.value < 0 else lift
    doubt = {True: ", beyond chance", False: ", within chance", None: ""}[certain]
    return Finding(
        f"The top {k} of {name} is {percent(size)} {way} popular than what its users had before{doubt}.", certain
    )


def _negated(estimate: Estimate) -> Estimate:
    low, high = (None if end is None else -end for end in (estimate.high, estimate.low))
    return Estimate(-estimate.value, low, high)


def _against(contrast: Contrast, title: str, words: str) -> Finding | None:
    """`words` have a place for "more" or "less"."""
    gap, a, b = contrast.difference, contrast.a, contrast.b
    if math.isnan(gap.value):
        return None
    found = _negated(gap) if gap.value < 0 else gap
    span = "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"
    way = words.format("more" if gap.value >= 0 else "less")
    size = f"{found.value:.4f}{span} {title}@{contrast.k}"
    if contrast.beyond_uncertainty:
        return Finding(f"{a} {way} than {b}, by {size}, beyond chance ({_p(contrast.p)}, corrected).", True)
    if gap.value == 0:
        return Finding(f"{a} and {b} have the same {title}@{contrast.k}.", False)
    doubt = "too few users to tell" if math.isnan(contrast.p) else f"{_p(contrast.p)}, corrected"
    return Finding(f"That {a} {way} than {b}, by {size}, may be chance ({doubt}).", False)


def _p(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def percent(estimate: Estimate) -> str:
    """`58.1 % [57.0, 59.2]`.

    >>> percent(Estimate(0.581, 0.57, 0.592))
    '58.1 % [57.0, 59.2]'
    """
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:.1f} %"
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


class Examples:
    """Keeps, for the first system at one k, the few counts per user that examples are chosen by."""

    def __init__(self, reference: Reference, systems: Mapping[str, Lists], k: int, titles: pa.Array | None) -> None:
        self.reference, self.systems, self.k, self.titles = reference, systems, k, titles
        self.first = next(iter(systems))
        self.taste = by_taste(reference, audience_of(reference, systems)).part
        self.columns = {
            name: np.full(reference.n_users, np.nan, dtype=np.float32)
            for name in ("wrong_hot", "missed_cold", "hits", "shown")
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Slots]
    ) -> dict[Any, np.ndarray]:
        found = terms[self.first][self.k]
        served = found.weights["arp"] > 0
        rows = block.everyone[served]
        self.columns["shown"][rows] = found.values["arp"][served]
        if block.has_test:
            scored = served & block.with_test
            rows = block.everyone[scored]
            self.columns["wrong_hot"][rows] = found.sums["ohr.above"][scored]
            self.columns["missed_cold"][rows] = found.sums["ucr.above"][scored]
            self.columns["hits"][rows] = lists[self.first].hits[scored, : self.k].sum(axis=1)
        return {}

    def share(self, world: World) -> None:
        """What the other ranks saw, too."""
        for name, mine in self.columns.items():
            for others in exchange_arrays(world, [mine] * world.size):
                mine = np.where(np.isnan(mine), others, mine)
            self.columns[name] = mine

    def chosen(self) -> tuple[Example, ...]:
        """Up to four users, each the first by id among those the rule fits best, nobody twice."""
        has_list = np.logical_and.reduce([lists.served for lists in self.systems.values()])
        column = {name: np.where(has_list, values, np.nan) for name, values in self.columns.items()}
        shown, hits = column["shown"], column["hits"]
        middle = np.nanmedian(hits) if np.isfinite(hits).any() else 0.0
        with_test = [
            ("niche taste, most hot items shown that were not wanted", "niche", column["wrong_hot"]),
            ("most cold items wanted and missed", None, column["missed_cold"]),
            ("blockbuster taste, most hits", "blockbuster", hits),
            ("diverse taste, as many hits as the median user", "diverse", -np.abs(hits - middle)),
        ]
        without = [
            ("niche taste, most popular list", "niche", shown),
            ("blockbuster taste, least popular list", "blockbuster", -shown),
            ("diverse taste, most popular list", "diverse", shown),
        ]
        tastes = {None: self.taste >= -1} | {name: self.taste == n for n, name in enumerate(_TASTES)}
        found: dict[int, str] = {}
        for why, taste, merit in with_test if self.reference.has_test else without:
            merit = np.where(tastes[taste], merit, np.nan)
            merit[list(found)] = np.nan
            if np.isfinite(merit).any():
                found[int(np.nanargmax(merit))] = f"{why} (by {self.first}, top {self.k})"
        return tuple(self._example(user, why) for user, why in found.items())

    def _example(self, user: int, why: str) -> Example:
        known, hot, titles = self.reference.known, self.reference.hot, self.titles
        had, wanted = known.row(user), self.reference.test.row(user)
        tops = {name: one.top(np.array([user]), self.k)[0] for name, one in self.systems.items()}

        def shown(items: np.ndarray) -> tuple[Shown, ...]:
            names = [None] * len(items) if titles is None else titles.take(pa.array(items)).to_pylist()
            return tuple(
                Shown(str(known.item_ids[item]), name, bool(hot[item]), item in wanted)
                for item, name in zip(items.tolist(), names, strict=True)
            )

        return Example(
            user=str(known.user_ids[user]),
            why=why,
            history=shown(self._history(user)[:MOST_SHOWN]),
            wanted=shown(self._by_popularity(wanted)[:MOST_SHOWN]),
            # Known items alone: an unknown one has no id here any more.
            lists={name: shown(top[top >= 0]) for name, top in tops.items()},
            n_history=len(had),
            n_wanted=len(wanted),
        )

    def _history(self, user: int) -> np.ndarray:
        """The user's train items, latest first where times are known, else most popular first."""
        known = self.reference.known
        if known.timestamps is None:
            return self._by_popularity(known.row(user))
        when = known.timestamps[known.indptr[user] : known.indptr[user + 1]]
        return known.row(user)[np.argsort(-np.nan_to_num(when, nan=-np.inf), kind="stable")]

    def _by_popularity(self, items: np.ndarray) -> np.ndarray:
        return items[np.argsort(-self.reference.items.counts[items], kind="stable")]
