"""From recommendation lists to every metric: of a table of whatever system, or of arrays.

Training asks after each epoch and an audit asks once, of the same functions. Values per user are kept because the
tests for a difference resample users. Oddities of a table are counted and become notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.reading.columns import source_label
from evenhand.data.reading.read import as_interactions
from evenhand.data.splits import Split, given_split
from evenhand.metrics.catalogue import METRICS, RATES, SUMS, named
from evenhand.metrics.formulas import NO_ITEM, UNKNOWN_ITEM, exposure_counts, share
from evenhand.metrics.lists import ListColumns, ListTable, list_lengths, read_lists
from evenhand.metrics.slots import AnswerSheet, Slots
from evenhand.metrics.statistics import Summary, summarise
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import gather_columns, total
from evenhand.utils.text import count
from evenhand.utils.world import World

_COUNTS = "items.slots"
"""The name under which the items' slots are stored."""


@dataclass(frozen=True, eq=False)
class UserMetrics:
    """The metrics of n users at one k; arrays are aligned with `users`. What is not there is undefined."""

    k: int
    users: np.ndarray
    """The users' indices. Only users with a test item are here."""
    values: Mapping[str, np.ndarray]
    """The metrics that have a value per user: float64 [n], nan for a user who does not count."""
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The columns behind rates and formulas of sums: [n] or [n, 10]."""
    items: Mapping[str, np.ndarray] = field(default_factory=dict)
    """One entry, `items.slots`: int64 [n_items], in how many slots each item stands."""
    slots: Slots | None = None
    """The lists themselves; None for stored metrics."""

    @staticmethod
    def of(slots: Slots, k: int) -> UserMetrics:
        """Every metric, computed when it is asked for."""
        per_user = {name: metric.of_user for name, metric in METRICS.items() if metric.of_user is not None}
        return UserMetrics(
            k,
            slots.sheet.users,
            _Lazy(per_user, lambda name: per_user[name](slots, k)),
            _Lazy(SUMS, lambda name: SUMS[name](slots, k)),
            _Lazy((_COUNTS,), lambda _: exposure_counts(slots.top[:, :k], slots.sheet.truth.n_items)),
            slots,
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but k as named arrays, to be stored; `from_arrays` reads them back."""
        stored = {"users": self.users} | {f"value.{name}": array for name, array in self.values.items()}
        for name, array in self.sums.items():
            rate, _, side = name.partition(".")
            stored[f"{side}.{rate}" if rate in RATES else f"sum.{name}"] = array
        return stored | dict(self.items)

    @staticmethod
    def from_arrays(k: int, arrays: Mapping[str, np.ndarray]) -> UserMetrics:
        def under(prefix: str, end: str = "") -> dict[str, np.ndarray]:
            return {n.removeprefix(prefix) + end: a for n, a in arrays.items() if n.startswith(prefix)}

        sums = under("sum.") | under("above.", ".above") | under("below.", ".below")
        items = {_COUNTS: arrays[_COUNTS]} if _COUNTS in arrays else {}
        return UserMetrics(k, arrays["users"], under("value."), sums, items)

    def gathered(self, world: World, order: np.ndarray | slice = slice(None)) -> UserMetrics:
        """The metrics of all ranks' users, rank by rank or in an `order` of those; what counts items is added up."""
        if world.size == 1:
            return self
        arrays = self.arrays()
        added = {name: total(world, arrays.pop(name)) for name in self.items}
        of_users = {name: column[order] for name, column in gather_columns(world, arrays).items()}
        return UserMetrics.from_arrays(self.k, of_users | added)

    def per_user(self, name: str) -> np.ndarray:
        """One value per user: an empty rate is 0 under its plain name and nan under `…_defined`."""
        metric = named(name)
        if metric.of_user is not None:
            return self.values[name]
        if metric.rate is None:
            raise InputError(f"{name} has no value per user: it is a number of all lists together.")
        above, below = (self.sums[f"{metric.rate}.{side}"] for side in ("above", "below"))
        return share(above, below, empty=np.nan if metric.average == "defined" else 0.0)

    @property
    def item_slots(self) -> np.ndarray:
        return self.items[_COUNTS]

    def mean(self, name: str) -> float:
        """The metric over all users; nan where it is undefined or there are no users."""
        metric = named(name)
        if not len(self.users):
            return np.nan
        try:
            if metric.of_user is not None or metric.rate is not None:
                counted = self.per_user(name)
                counted = counted[~np.isnan(counted)]
                return float(counted.mean()) if len(counted) else np.nan
            if metric.of_items is not None:
                return float(metric.of_items(self.item_slots)) if self.item_slots.any() else np.nan
            assert metric.of_sums is not None
            with np.errstate(divide="ignore", invalid="ignore"):
                found = float(metric.of_sums(lambda column: np.float64(self.sums[column].sum(axis=0))))
        except KeyError:  # stored by a version that did not know the metric
            return np.nan
        return found if np.isfinite(found) else np.nan

    def means(self) -> dict[str, float]:
        """Every metric of the catalogue by name."""
        return {name: self.mean(name) for name in METRICS}


class _Lazy(Mapping[str, Any]):
    """Named values that are made each time they are asked for, so that none is kept in memory."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = tuple(names), make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def score_lists(
    top: np.ndarray,
    users: np.ndarray,
    truth: Interactions,
    hot: np.ndarray,
    ks: Sequence[int],
    consumed: Interactions | None = None,
) -> dict[int, UserMetrics]:
    """Score one list per user at each k of `ks`.

    `top` (int [n, kmax]) holds item indices by rank, without repeats in a row, with `NO_ITEM` in empty slots;
    `users` (int [n]) says whose row it is; `truth` is the test part; `hot` is bool [n_items]. `consumed` (train and
    validation) is what popularity is counted in and what `fpr_true` leaves out; without it all items outside the
    truth are negatives and metrics of popularity are undefined. Rows of users without test items are dropped, and
    users without a row are not looked at.
    """
    top, users, hot = np.asarray(top), np.asarray(users), np.asarray(hot, dtype=bool)
    _check(top, users, truth, hot, ks)
    with_test = truth.activity[users] > 0
    if not with_test.all():
        top, users = top[with_test], users[with_test]
    return score_sheet(top, AnswerSheet(users, truth, hot, consumed), ks)


def score_sheet(top: np.ndarray, sheet: AnswerSheet, ks: Sequence[int]) -> dict[int, UserMetrics]:
    """Score one list per user of the sheet, whose users have test items."""
    slots = Slots(sheet, top[:, : max(ks)])
    return {k: UserMetrics.of(slots, k) for k in ks}


def _check(top: np.ndarray, users: np.ndarray, truth: Interactions, hot: np.ndarray, ks: Sequence[int]) -> None:
    if top.ndim != 2 or users.shape != top.shape[:1]:
        raise InputError(f"top must be [n, k] with one user per row, but is {top.shape} for {users.shape} users.")
    if hot.shape != (truth.n_items,):
        raise InputError(f"hot must say yes or no for each of the {truth.n_items} items, but is {hot.shape}.")
    if not ks or min(ks) < 1:
        raise InputError(f"k must be one or more numbers from 1 up, not {list(ks)}.")
    if max(ks) > top.shape[1]:
        raise InputError(f"k = {max(ks)} needs lists of that length, but these have {top.shape[1]} slots.")
    if top.size and not UNKNOWN_ITEM <= top.min() <= top.max() < truth.n_items:
        raise InputError(f"top holds item indices outside {UNKNOWN_ITEM}…{truth.n_items - 1}.")
    if users.size and not 0 <= users.min() <= users.max() < truth.n_users:
        raise InputError(f"users must be indices in 0…{truth.n_users - 1}.")


@dataclass(frozen=True, eq=False)
class EvaluationRow:
    """The metrics at one k."""

    k: int
    metrics: Mapping[str, Summary]
    """Every metric of the catalogue, summarised over seeds."""
    per_seed: tuple[UserMetrics, ...]
    """One per seed, in the order of `Evaluation.seeds`; all over the same users, for paired tests."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found, one row per k."""

    name: str
    rows: tuple[EvaluationRow, ...]
    seeds: tuple[Any, ...]
    """The values of the column seed, ascending; (None,) without one."""
    hot: str
    """What counted as hot, in words."""
    notes: tuple[str, ...]
    """What a reader should know about the table, one sentence each."""

    def __repr__(self) -> str:
        shown = ", ".join(
            f"k = {row.k}: NDCG {row.metrics['ndcg'].mean:.4f}, OHR {row.metrics['ohr'].mean:.4f}" for row in self.rows
        )
        return f"Evaluation({self.name}; {shown})"

    def at(self, k: int) -> EvaluationRow:
        """The row of one k."""
        for row in self.rows:
            if row.k == k:
                return row
        raise InputError(f"k = {k} was not evaluated; there is {', '.join(str(row.k) for row in self.rows)}.")

    def to_table(self) -> pa.Table:
        """One line per k and metric: name, k, metric, mean, std, values (one per seed)."""
        cells = [(row.k, metric, found) for row in self.rows for metric, found in row.metrics.items()]
        return pa.table(
            {
                "name": pa.array([self.name] * len(cells), pa.string()),
                "k": pa.array([k for k, _, _ in cells], pa.int64()),
                "metric": pa.array([metric for _, metric, _ in cells], pa.string()),
                "mean": pa.array([found.mean for _, _, found in cells], pa.float64()),
                "std": pa.array([found.std for _, _, found in cells], pa.float64()),
                "values": pa.array([found.values for _, _, found in cells], pa.list_(pa.float64())),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """The document that `--json` prints; an undefined number is null. Plain lists have no `mse`."""
        return {
            "rows": [
                {
                    "name": self.name,
                    "encoder": None,
                    "method": None,
                    "k": row.k,
                    "metrics": {name: found.to_json() for name, found in row.metrics.items()} | {"mse": None},
                }
                for row in self.rows
            ],
            "hot": self.hot,
            "notes": list(self.notes),
        }


def evaluate(
    recs: Any,
    split: Split,
    k: int | Iterable[int] = (5, 10, 20),
    hot: str | float | HotRule = "honest",
    *,
    validation: Any = None,
    columns: Mapping[str, str] | None = None,
    name: str = "recommendations",
) -> Evaluation:
    """Score recommendations against the test part of a split.

    `recs` is a file or any Arrow-speaking table with columns `user`, `item` and `rank` or `score`; `metrics.lists`
    says what happens to each oddity of such a table. `columns` says what it calls them: {"user": "customer"}. With a
    column `seed` each seed is evaluated and the metrics are summarised over them. `hot` is a hot/cold rule: honest,
    paper, a share, a least number of train interactions, or a `HotRule`.

    Every user with a test item counts: without recommendations, as an empty list. What a user has in train or
    validation is known: it is a miss where a list repeats it. `validation` is that part, as `Interactions`, a file or
    a table, where the split has none.
    """
    if validation is not None:  # what users had by then, known to whoever recommends for test
        if split.validation is not None:
            raise InputError("the split has a validation part already; give no other one.")
        split = given_split(split.train, split.test, validation_part=as_interactions(validation))
    found = evaluate_named(recs, split, k, hot, columns=ListColumns.of(columns), name=name)
    if len(found) > 1:
        raise InputError(
            f"{source_label(recs)} holds lists of {len(found)} recommenders in its column 'name' "
            f"({', '.join(one.name for one in found[:3])}…); use evaluate_named, or give those of one at a time."
        )
    return found[0]


def evaluate_named(
    recs: Any,
    split: Split,
    k: int | Iterable[int] = (5, 10, 20),
    hot: str | float | HotRule = "honest",
    *,
    columns: ListColumns | None = None,
    name: str = "recommendations",
) -> list[Evaluation]:
    """One evaluation for each value of the column `name`, as `compare` writes it; without it one, called `name`."""
    ks, tables = list_lengths(k), read_lists(recs, columns)
    users = np.flatnonzero(split.test.activity)
    if not len(users):
        raise InputError("the test part of the split is empty, so there is nothing to evaluate against.")
    rule = HotRule.parse(hot)
    return [_one(table, split, users, rule, ks, own or name) for own, table in tables.items()]


def _one(
    table: ListTable, split: Split, users: np.ndarray, rule: HotRule, ks: tuple[int, ...], name: str
) -> Evaluation:
    by_seed, unknown = table.in_vocabulary(split.test, max(ks))
    found: list[dict[int, UserMetrics]] = []
    odd: Counter[str] = Counter()
    world = World.current()  # of several processes each scores a stretch of the users
    mine = np.array_split(users, world.size)[world.rank]
    sheet = AnswerSheet(mine, split.test, rule.mask(split), split.consumed)
    for lists in by_seed.values():
        slots = Slots(sheet, lists.top(mine, max(ks)))
        found.append({n: UserMetrics.of(slots, n).gathered(world) for n in ks})
        odd.update(_oddities(slots, world))
        odd["without_test"] += int((split.test.activity[lists.served] == 0).sum())
    sentences = [f"{note[0].upper()}{note[1:]}." for note in (*table.notes, *unknown)]
    return Evaluation(
        name=name,
        rows=tuple(_row(n, [metrics[n] for metrics in found]) for n in ks),
        seeds=tuple(by_seed),
        hot=rule.describe(),
        notes=(*sentences, *_notes(odd, len(users), max(ks), len(by_seed))),
    )


def _row(k: int, per_seed: list[UserMetrics]) -> EvaluationRow:
    metrics = {metric: summarise([one.mean(metric) for one in per_seed]) for metric in METRICS}
    return EvaluationRow(k, metrics, tuple(per_seed))


def _oddities(slots: Slots, world: World) -> dict[str, int]:
    """How often one seed's lists are not what one expects of lists for the users of all processes."""
    length = np.count_nonzero(slots.top != NO_ITEM, axis=1)
    short = (length > 0) & (length < slots.top.shape[1])
    found = np.array([(length == 0).sum(), short.sum(), slots.repeats.sum()])
    return dict(zip(("empty", "short", "consumed"), total(world, found).tolist(), strict=True))


def _notes(odd: Mapping[str, int], n_users: int, k: int, n_seeds: int) -> list[str]:
    over = f", over {n_seeds} seeds" if n_seeds > 1 else ""
    users = count(n_users, "test user")
    sentences = {
        "empty": f"Counted as empty: the lists of {odd['empty']:,} of {users} without recommendations{over}.",
        "short": f"Counted empty slots as misses in {count(odd['short'], 'list')} shorter than {k}{over}.",
        "without_test": f"Left out {count(odd['without_test'], 'list')} of users without a test item{over}.",
        "consumed": f"Counted as misses {count(odd['consumed'], 'recommendation')} "
        f"of what the user has in train or validation already{over}.",
    }
    return [sentence for what, sentence in sentences.items() if odd[what]]
