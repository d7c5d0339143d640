"""The same measures for parts of the users and of the items.

They are divided by popularity, activity, taste, or the columns of a file; that of the items may hold their titles, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.audit.measures import Draws, Get, Measured
from evenhand.audit.result import SliceRow
from evenhand.audit.sweep import Block, Reference, Terms, audience_of
from evenhand.data.reading.cleaning import codes_and_ids, looked_up
from evenhand.data.reading.columns import Column, source_label
from evenhand.data.reading.read import read_columns
from evenhand.metrics.catalogue import METRICS, SLICED
from evenhand.metrics.lists import Lists
from evenhand.metrics.slots import PARTS, Slots, by_part, pairs_by_part
from evenhand.metrics.statistics import Estimate
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

TASTE_SHARE = 0.2
"""Which part of the users has a niche taste, and which a blockbuster one."""
MOST_PARTS = 12
"""An attribute with more values than this has its rarer ones together."""
OTHERS, MISSING = "all others", "not given"
_QUARTERS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, eq=False)
class Division:
    by: str
    labels: tuple[str, ...]
    part: np.ndarray
    """int16 [n]: which label; −1 for none of them."""

    def sizes(self, among: np.ndarray | None = None) -> np.ndarray:
        """How many are in each part, of those marked."""
        part = self.part if among is None else self.part[among]
        return np.bincount(part[part >= 0], minlength=len(self.labels))


def by_popularity(reference: Reference) -> Division:
    ends = {0: " (most popular)", PARTS - 1: " (least popular)"}
    labels = tuple(f"decile {part + 1}{ends.get(part, '')}" for part in range(PARTS))
    return Division("item popularity", labels, reference.items.decile.astype(np.int16))


def by_activity(reference: Reference, audience: np.ndarray) -> Division:
    """Quarters of the audience by their number of train items; equal numbers stay together."""
    activity = reference.known.activity
    here = activity[audience & (activity > 0)]
    ends = np.unique(np.quantile(here, _QUARTERS, method="inverted_cdf")) if len(here) else np.zeros(0)
    part = np.searchsorted(ends, activity).astype(np.int16)
    begins = [int(here.min()), *(int(end) + 1 for end in ends[:-1])] if len(here) else []
    labels = [_span(begin, int(end)) for begin, end in zip(begins, ends, strict=True)]
    # Beyond the most active user of the audience nobody is looked at.
    part[part >= len(labels)] = -1
    part[activity == 0] = len(labels)
    return Division("user activity", (*labels, "no train items"), part)


def _span(begin: int, end: int) -> str:
    return f"{begin}–{end} train items" if end > begin else f"{begin} train item{'s' * (begin > 1)}"


def by_taste(reference: Reference, audience: np.ndarray) -> Division:
    """Niche, diverse and blockbuster, by the share of hot items in the history.

    Niche is the fifth of the audience with the smallest shares, blockbuster the fifth with the largest,
    both with whoever ties with its last; where the two would meet in one number, those users are diverse.
    """
    share = reference.taste
    here = np.sort(share[audience & ~np.isnan(share)])
    fifth = int(np.ceil(TASTE_SHARE * len(here)))
    low, high = (here[fifth - 1], here[-fifth]) if len(here) else (0.0, 1.0)
    part = np.ones(len(share), dtype=np.int16)
    part[(share <= low) & (share < high)] = 0
    part[(share >= high) & (share > low)] = 2
    part[np.isnan(share)] = -1
    labels = (f"niche (at most {100 * low:.0f} % hot)", "diverse", f"blockbuster (at least {100 * high:.0f} % hot)")
    return Division("taste", labels, part)


def by_values(by: str, values: list[str | None]) -> Division:
    """One part a value; many numbers are cut into quarters, of many texts the most frequent stand alone."""
    numbers = _numbers(values)
    if numbers is not None and len(np.unique(numbers[~np.isnan(numbers)])) > MOST_PARTS:
        return _quarters(by, numbers)
    texts = np.array([MISSING if value is None else value for value in values], dtype=object)
    found, code, counts = np.unique(texts.astype(str), return_inverse=True, return_counts=True)
    if len(found) <= MOST_PARTS:
        return Division(by, tuple(found.tolist()), code.astype(np.int16))
    kept = np.sort(np.argsort(-counts, kind="stable")[: MOST_PARTS - 1])
    place = np.full(len(found), len(kept), dtype=np.int16)
    place[kept] = np.arange(len(kept))
    return Division(by, (*found[kept].tolist(), OTHERS), place[code])


def _numbers(values: list[str | None]) -> np.ndarray | None:
    """The values as finite numbers, nan where there is none; None if any is something else."""
    try:
        numbers = np.array([np.nan if value is None else float(value) for value in values])
    except ValueError:
        return None
    given = np.array([value is not None for value in values], dtype=bool)
    return numbers if np.isfinite(numbers[given]).all() else None


def _quarters(by: str, numbers: np.ndarray) -> Division:
    """Quarters by size; equal numbers stay together, so that parts may be unequal or fewer."""
    given = ~np.isnan(numbers)
    ends = np.unique(np.quantile(numbers[given], _QUARTERS, method="inverted_cdf"))
    part = np.searchsorted(ends, numbers).astype(np.int16)
    part[~given] = len(ends)
    labels = []
    for which in range(len(ends)):
        low, high = numbers[part == which].min(), numbers[part == which].max()
        labels.append(f"{low:.12g}" if low == high else f"{low:.12g} to {high:.12g}")
    return Division(by, (*labels, MISSING), part)


@dataclass(frozen=True, eq=False)
class Attributes:
    users: tuple[Division, ...] = ()
    items: tuple[Division, ...] = ()
    titles: pa.Array | None = None
    """string [n_items], null where there is none."""
    notes: tuple[str, ...] = ()


def read_attributes(
    reference: Reference,
    users_file: Any,
    items_file: Any,
    title: str | None,
    slice_by: tuple[str, ...],
    reading: Mapping[str, Any],
) -> Attributes:
    """Every column to slice by is looked for in both files; where both have it, both are sliced."""
    if slice_by and users_file is None and items_file is None:
        raise InputError("--slice-by needs the file that holds the column: --users-file or --items-file.")
    if title is not None and items_file is None:
        raise InputError("--title needs the file that holds the titles: --items-file.")
    _refuse_unused(users_file, bool(slice_by), "--slice-by")
    _refuse_unused(items_file, bool(slice_by or title), "--slice-by or --title")
    wanted = tuple(dict.fromkeys(slice_by))
    notes: list[str] = []
    of_users = _texts(users_file, "user", wanted, reference, reading, notes)
    titles = () if title is None else (title,)
    of_items = _texts(items_file, "item", (*wanted, *titles), reference, reading, notes)
    for column in (*wanted, *titles):
        if column not in of_items and (column in titles or column not in of_users):
            files = (items_file,) if column in titles else (users_file, items_file)
            given = [source for source in files if source is not None]
            raise _no_column(column, "title" if column in titles else "slice_by", given)
    both = {column for column in wanted if column in of_users and column in of_items}
    return Attributes(
        tuple(by_values(_called(c, "user", both), of_users[c].to_pylist()) for c in wanted if c in of_users),
        tuple(by_values(_called(c, "item", both), of_items[c].to_pylist()) for c in wanted if c in of_items),
        None if title is None else of_items[title],
        tuple(notes),
    )


def _refuse_unused(source: Any, used: bool, option: str) -> None:
    if source is not None and not used:
        raise InputError(f"{source_label(source)} is read for nothing; name a column of it with {option}.")


def _no_column(column: str, role: str, sources: list[Any]) -> InputError:
    """What the files have instead; of two files, the one with a column of a similar name."""
    problems = []
    for source in sources:
        try:
            read_columns(source, [Column(role, "text", column, option=f"{role}= or --{role.replace('_', '-')}")])
        except InputError as problem:
            problems.append(problem)
    return next((one for one in problems if "did you mean" in str(one)), problems[0])


def _called(column: str, role: str, both: set[str]) -> str:
    return f"{role} {column}" if column in both else column


def _texts(
    source: Any, role: str, columns: Iterable[str], reference: Reference, reading: Mapping[str, Any], notes: list[str]
) -> dict[str, pa.Array]:
    """Of those columns that the file has: the text for every user or item of the vocabulary."""
    columns = list(dict.fromkeys(columns))
    if source is None or not columns:
        return {}
    table = _table(source, role, reading.get(role) or role, columns)
    codes, known = codes_and_ids(table["id"])
    first = np.unique(codes, return_index=True)[1]  # of repeated ids the first counts
    wanted = reference.known.user_ids if role == "user" else reference.known.item_ids
    place = looked_up(wanted, known)
    if place.null_count == len(wanted):
        raise InputError(
            f"no {role} of {source_label(source)} is in train ('{known[0]}' is not, '{wanted[0]}' would be)."
        )
    found = {}
    for column in table.column_names[1:]:
        values = pa.chunked_array(table[column].take(pa.array(first)).chunks, pa.string()).combine_chunks()
        found[column] = values.take(place)
        if found[column].null_count:
            absent = count(found[column].null_count, role)
            notes.append(f"The file of {role}s has no {column} for {absent} of the audit.")  # without its folder
    return found


def _table(source: Any, role: str, id_column: str, columns: list[str]) -> pa.Table:
    """The ids, called as in train or just user or item, and those of the columns that there are."""

    def wanted(name: str) -> list[Column]:
        ids = Column("id", "id", name, option=f"'{name}' in its header")
        return [ids, *(Column(column, "text") for column in columns)]

    try:
        return read_columns(source, wanted(role))
    except InputError:
        return read_columns(source, wanted(id_column))


class Slices:
    """Gathers, block by block, what the slices at one k need."""

    def __init__(self, reference: Reference, systems: Mapping[str, Lists], k: int, attributes: Attributes) -> None:
        self.reference, self.systems, self.k = reference, tuple(systems), k
        self.audience = audience_of(reference, systems)
        self.of_users = [by_activity(reference, self.audience), by_taste(reference, self.audience), *attributes.users]
        self.of_items = [by_popularity(reference), *attributes.items]
        self.metrics = [name for name in SLICED if reference.has_test or not METRICS[name].needs_test]
        self.moments = {
            (division.by, system, metric): np.zeros((6, len(division.labels)))
            for division in self.of_users
            for system in self.systems
            for metric in self.metrics
        }

    def watch(
        self, block: Block, terms: Mapping[str, Mapping[int, Terms]], lists: Mapping[str, Slots]
    ) -> dict[Any, np.ndarray]:
        """Adds up users' moments; returns the columns of the item slices, to be drawn with the others."""
        for division in self.of_users:
            part = division.part[block.everyone].astype(np.int64)
            for system in self.systems:
                for metric in self.metrics:
                    self._add(division, system, metric, part, terms[system][self.k])
        columns: dict[Any, np.ndarray] = {}
        wanted = block.sheet.truth if block.has_test else block.sheet.consumed
        assert wanted is not None
        for division in self.of_items:
            parts = len(division.labels)
            columns[division.by, "demand"] = pairs_by_part(wanted, block.sheet.users, division.part, parts)
            for system, found in lists.items():
                top, hits = found.top[:, : self.k], found.hits[:, : self.k]
                columns[division.by, system, "slots"] = by_part(top, top >= 0, division.part, parts)
                columns[division.by, system, "hits"] = by_part(top, hits, division.part, parts)
        return columns

    def _add(self, division: Division, system: str, metric: str, part: np.ndarray, terms: Terms) -> None:
        if metric == "popularity_lift":
            x, w = terms.sums["lift.shown"], terms.sums["lift.habit"]
        else:
            x, w = terms.values[metric], terms.weights[metric]
        here = part >= 0
        products = (x, w, x * x, x * w, w * w, w != 0)
        for row, column in zip(self.moments[division.by, system, metric], products, strict=True):
            row += np.bincount(part[here], column[here], minlength=len(row))

    def rows(self, draws: Draws) -> tuple[SliceRow, ...]:
        sides = (
            ("items", self.of_items, None, self._item_metrics),
            ("users", self.of_users, self.audience, self._user_metrics),
        )
        return tuple(
            SliceRow(division.by, of, label, int(size), system, self.k, measure(draws, division, system, part))
            for of, divisions, among, measure in sides
            for division in divisions
            for system in self.systems
            for part, (label, size) in enumerate(zip(division.labels, division.sizes(among), strict=True))
            if size
        )

    def _user_metrics(self, _: Draws, division: Division, system: str, part: int) -> dict[str, Estimate]:
        found = {}
        for metric in self.metrics:
            measured = ratio(*self.moments[division.by, system, metric][:, part].tolist())
            if metric == "popularity_lift":
                measured = replace(measured, value=measured.value - 1.0)
            found[metric] = measured.estimate(METRICS[metric].low, METRICS[metric].high)
        return found

    def _item_metrics(self, draws: Draws, division: Division, system: str, part: int) -> dict[str, Estimate]:
        demand = (division.by, "demand")
        slots, hits = ((division.by, system, name) for name in ("slots", "hits"))
        formulas: dict[str, Callable[[Get], Any]] = {
            "share_of_slots": lambda get: get(slots)[..., part] / get(slots).sum(axis=-1),
            "share_of_demand": lambda get: get(demand)[..., part] / get(demand).sum(axis=-1),
        }
        if self.reference.has_test:
            formulas["precision"] = lambda get: get(hits)[..., part] / get(slots)[..., part]
            formulas["recall"] = lambda get: get(hits)[..., part] / get(demand)[..., part]
        below = {"precision": draws.sum(slots)[part], "recall": draws.sum(demand)[part]}
        found = {}
        for name, formula in formulas.items():
            measured = draws.measure(formula)
            # Where few slots or wishes stand behind a share, they and not the users say how certain it is.
            found[name] = replace(measured, users=min(measured.users, below.get(name, math.inf))).estimate(0.0, 1.0)
        return found


def ratio(x: float, w: float, xx: float, xw: float, ww: float, n: float) -> Measured:
    """Σ x / Σ w with its standard error, from sums over n users and sums of products.

    >>> found = ratio(6.0, 3.0, 14.0, 6.0, 3.0, 3.0)  # the values 1, 2, 3
    >>> found.value, round(found.error, 4)
    (2.0, 0.5774)
    """
    if w == 0:
        return Measured(math.nan, math.nan, 0)
    value = x / w
    if n < 2:
        return Measured(value, math.nan, n)
    spread = max(xx - 2 * value * xw + value * value * ww, 0.0) * n / (n - 1)
    return Measured(value, math.sqrt(spread) / w, n)
