"""From a table of recommendations, of whatever system, to its metrics.

Oddities of the table are counted and become notes; everything after that works on arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.popularity import HotRule
from evenhand.data.reading.columns import source_label
from evenhand.data.reading.read import as_interactions
from evenhand.data.splits import Split, given_split
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.exposure import NO_ITEM
from evenhand.metrics.lists import ListColumns, ListTable, list_lengths, read_lists
from evenhand.metrics.slots import AnswerSheet, Slots
from evenhand.metrics.statistics import Summary, summarise
from evenhand.metrics.users import UserMetrics
from evenhand.utils.errors import InputError
from evenhand.utils.spread_arrays import total
from evenhand.utils.text import count
from evenhand.utils.world import World


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
