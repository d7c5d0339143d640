"""From a table of recommendations, of whatever system, to its metrics.

This is the border of the room: ids become indices and rows become lists here once, oddities of the table
are counted and told, and everything after that works on arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.metrics.lists import Lists, count, list_lengths, read_lists
from evenhand.metrics.statistics import Summary, summarise
from evenhand.metrics.users import METRICS, NO_ITEM, UserMetrics, score_lists
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from evenhand.data.popularity import HotRule
    from evenhand.data.splits import Split


@dataclass(frozen=True, eq=False)
class EvaluationRow:
    """The metrics at one k."""

    k: int
    metrics: Mapping[str, Summary]
    """Every name of `METRICS`, summarised over seeds."""
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
        import pyarrow as pa

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
    name: str = "recommendations",
) -> Evaluation:
    """Judge recommendations against the test part of a split.

    `recs` is a csv, tsv or parquet file or any Arrow-speaking table with columns `user`, `item` and `rank`
    (ascending) or, without one, `score` (descending; ties in order of occurrence). With a column `seed`
    each seed is evaluated and the metrics are summarised over them. `hot` is a hot/cold rule: honest,
    paper, a share, a least number of train interactions, or a `HotRule`.

    Every user with a test item counts: without recommendations, as an empty list. Items outside the split
    stay in the list as misses, and are cold. Users outside the split are dropped. Of an item that a list
    repeats, the first occurrence counts.
    """
    from evenhand.data.popularity import HotRule

    ks = list_lengths(k)
    users = np.flatnonzero(split.test.activity)
    if not len(users):
        raise InputError("the test part of the split is empty, so there is nothing to evaluate against.")
    rule = hot if isinstance(hot, HotRule) else HotRule.parse(hot)
    is_hot = rule.mask(split)
    by_seed, notes = read_lists(recs, split.test)
    found: list[dict[int, UserMetrics]] = []
    odd: Counter[str] = Counter()
    for lists in by_seed.values():
        top = lists.top(users, max(ks))
        found.append(score_lists(top, users, split.test, is_hot, ks, consumed=split.consumed))
        odd.update(_oddities(lists, users, top, split))
    return Evaluation(
        name=name,
        rows=tuple(_row(n, [metrics[n] for metrics in found]) for n in ks),
        seeds=tuple(by_seed),
        hot=rule.describe(),
        notes=(*notes, *_notes(odd, len(users), max(ks), len(by_seed))),
    )


def _row(k: int, per_seed: list[UserMetrics]) -> EvaluationRow:
    metrics = {metric: summarise([one.mean(metric) for one in per_seed]) for metric in METRICS}
    return EvaluationRow(k, metrics, tuple(per_seed))


def _oddities(lists: Lists, users: np.ndarray, top: np.ndarray, split: Split) -> dict[str, int]:
    """How often one seed's lists are not what one expects of lists for these users."""
    length = np.count_nonzero(top != NO_ITEM, axis=1)
    listed = np.unique(lists.users)
    return {
        "empty": int((length == 0).sum()),
        "short": int(((length > 0) & (length < top.shape[1])).sum()),
        "unjudged": int((split.test.activity[listed] == 0).sum()),
        "consumed": int(split.consumed.contains(users[:, None], top).sum()),
    }


def _notes(odd: Mapping[str, int], n_users: int, k: int, n_seeds: int) -> list[str]:
    over = f", over {n_seeds} seeds" if n_seeds > 1 else ""
    users = count(n_users, "test user")
    told = {
        "empty": f"Counted as empty: the lists of {odd['empty']:,} of {users} without recommendations{over}.",
        "short": f"Counted empty slots as misses in {count(odd['short'], 'list')} shorter than {k}{over}.",
        "unjudged": f"Left out {count(odd['unjudged'], 'list')} of users without a test item{over}.",
        "consumed": f"Counted as misses {count(odd['consumed'], 'recommendation')} "
        f"of what the user has in train or validation already{over}.",
    }
    return [sentence for what, sentence in told.items() if odd[what]]


def evaluate_named(recs: Any, split: Split, k: int | Iterable[int], hot: Any = "honest") -> list[Evaluation]:
    """One evaluation for each value of the column `name`, as `compare` writes it; one in all without it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from evenhand.data.reading.read import Column, read_columns
    from evenhand.metrics.lists import COLUMNS

    table = read_columns(recs, [*COLUMNS, Column("name", "id")])
    plain = pa.table(
        {
            column: values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
            for column, values in zip(table.column_names, table.columns, strict=True)
        }
    )
    if "name" not in plain.column_names:
        return [evaluate(recs, split, k, hot)]
    names = pc.unique(plain["name"]).to_pylist()
    ks = list_lengths(k)
    return [evaluate(plain.filter(pc.equal(plain["name"], name)), split, ks, hot, name=str(name)) for name in names]
