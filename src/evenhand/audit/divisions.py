"""How users and items are divided into slices: by popularity, activity, taste, or the columns of a file.

The file of the items may hold their titles, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.audit.reference import Reference
from evenhand.data.reading.columns import Column, source_label
from evenhand.metrics.exposure import PARTS
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

TASTE_SHARE = 0.2
"""Which part of the users has a niche taste, and which a blockbuster one."""
MOST_PARTS = 12
"""An attribute with more values than this has its rarer ones together."""
OTHERS, MISSING = "all others", "not given"


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
    quarters = (0.25, 0.5, 0.75, 1.0)
    ends = np.unique(np.quantile(here, quarters, method="inverted_cdf")) if len(here) else np.zeros(0)
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
    labels = (
        f"niche (at most {100 * low:.0f} % hot)",
        "diverse",
        f"blockbuster (at least {100 * high:.0f} % hot)",
    )
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
    ends = np.unique(np.quantile(numbers[given], (0.25, 0.5, 0.75, 1.0), method="inverted_cdf"))
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
    from evenhand.data.reading.read import read_columns

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
    source: Any,
    role: str,
    columns: Iterable[str],
    reference: Reference,
    reading: Mapping[str, Any],
    notes: list[str],
) -> dict[str, pa.Array]:
    """Of those columns that the file has: the text for every user or item of the vocabulary."""
    columns = list(dict.fromkeys(columns))
    if source is None or not columns:
        return {}
    table = _table(source, role, reading.get(role) or role, columns)
    ids = table["id"].combine_chunks()
    ids = ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids
    # Of repeated ids the first counts.
    codes, first = np.unique(np.asarray(ids.indices), return_index=True)
    known = ids.dictionary.take(pa.array(codes))
    wanted = reference.known.user_ids if role == "user" else reference.known.item_ids
    if known.type != wanted.type:
        known, wanted = known.cast(pa.string()), wanted.cast(pa.string())
    place = pc.index_in(wanted, value_set=known)
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
    from evenhand.data.reading.read import read_columns

    def wanted(name: str) -> list[Column]:
        ids = Column("id", "id", name, option=f"'{name}' in its header")
        return [ids, *(Column(column, "text") for column in columns)]

    try:
        return read_columns(source, wanted(role))
    except InputError:
        return read_columns(source, wanted(id_column))
