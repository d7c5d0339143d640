"""The contest's files as values: who took part on a split, and how sure the differences between them are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.metrics.statistics import Interval, bootstrap_over_users, compare_metric, holm
from evenhand.metrics.users import UserMetrics
from evenhand.paper.reproduce.people import JUDGED, Runs, recall
from evenhand.paper.reproduce.record import WORK
from evenhand.utils.atomic import write_whole

AGAINST = ("ease", "als")
"""Whom every contender is compared with."""
KS = (5, 10)
DRAWS = 4000
"""Of the bootstrap: enough that the least p, times the number of contenders, is well below the level."""
LEVEL = 0.05
OVER_USERS, COST = "over_users.json", "cost.json"
"""What lies beside the contenders' own files."""
ORDER = (
    "ml-100k-paper", "ml-1m-paper", "ml-100k-random-0", "ml-100k-random-1", "ml-100k-random-2", "ml-100k-time"
)  # fmt: skip
Document = dict[str, Any]


@dataclass(frozen=True)
class Gap:
    """A contender minus one it is compared with, on one metric."""

    difference: float
    low: float
    high: float
    """95 % over users"""
    holm_p: float
    """The larger p of both tests, adjusted over the contenders of the split."""
    beyond: bool
    """Whether zero lies outside of both intervals, over users and over seeds, on the same side."""

    @property
    def side(self) -> int:
        """1 or −1: which way the difference goes beyond chance; 0 if it does not."""
        return 0 if not self.beyond or self.holm_p > LEVEL else 1 if self.difference > 0 else -1


@dataclass(frozen=True, eq=False)
class Field:
    """All contenders of one split."""

    name: str
    documents: Mapping[str, Document]
    """By contender, the best on validation first."""
    over_users: Document
    costs: Mapping[str, Document]
    """By contender, what one model took alone on one machine (benchmarks/contest_cost.py)."""

    def mean(self, contender: str, key: str) -> float | None:
        found: float | None = self.documents[contender]["metrics"][key]["mean"]
        return found

    def own(self, contender: str, key: str) -> dict[str, float] | None:
        """Mean and 95 % interval over users of one contender."""
        found: dict[str, float] | None = self.over_users["own"].get(contender, {}).get(key)
        return found

    @cached_property
    def gaps(self) -> dict[tuple[str, str, str], Gap]:
        """(contender, against, `ndcg@5`) → how they differ."""
        lines = self.over_users["against"]
        found = {}
        for against in AGAINST:
            for key in dict.fromkeys(line["metric"] for line in lines):
                family = [line for line in lines if (line["against"], line["metric"]) == (against, key)]
                adjusted = holm([line["p"] for line in family])
                for line, p in zip(family, adjusted, strict=True):
                    users = line["users"]
                    numbers = (users["difference"], users["low"], users["high"])
                    found[line["contender"], against, key] = Gap(*numbers, float(p), line["beyond"])
        return found


def contest_folder(results: Path) -> Path:
    """The contest's own folder, given that or the one that it lies in."""
    return results / "contest" if (results / "contest").is_dir() else results


def fields(results: Path, *, update: bool = False) -> list[Field]:
    """Every split of a results folder; with `update`, missing comparisons are computed and written down."""
    folder = contest_folder(results)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name != WORK)
    names.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return [field for name in names if (field := _field(folder, name, update)) is not None]


def _field(folder: Path, name: str, update: bool) -> Field | None:
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((folder / name).glob("*.json"))
        if path.name not in (OVER_USERS, COST)
    ]
    if not found:
        return None
    found.sort(key=lambda one: -one["validation"]["mean"])
    documents = {one["contender"]: one for one in found}
    path = folder / name / OVER_USERS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"own": {}, "against": []}
    if update:
        new = compared(documents, known, folder / WORK / name)
        if new != known:
            write_whole(path, (json.dumps(new, indent=1, allow_nan=False) + "\n").encode())
        known = new
    return Field(name, documents, known, _costs(folder / name / COST, documents))


def _costs(path: Path, documents: Mapping[str, Document]) -> dict[str, Document]:
    """Of the contenders as they are: what was measured with other values does not count."""
    found = json.loads(path.read_text(encoding="utf-8"))["contenders"] if path.exists() else {}
    values = {name: {**one["held"], **one["search"]["best"]} for name, one in documents.items()}
    return {name: cost for name, cost in found.items() if cost["values"] == values.get(name)}


def compared(documents: Mapping[str, Document], known: Document, people: Path) -> Document:
    """Intervals over users of everyone, and of everyone minus each of `AGAINST`.

    What is known of the same numbers stays, so that the users' own values need not be there for it.
    """
    marks = {name: _mark(one) for name, one in documents.items()}
    runs = _Recalled(people)
    own = {}
    for name, mark in marks.items():
        kept = known["own"].get(name)
        if kept is not None and kept["of"] == mark:
            own[name] = kept
        elif (mine := runs.of(name)) is not None:
            own[name] = {"of": mark, **_own(mine)}
    had: dict[tuple[str, str, str], list[Document]] = {}
    for line in known["against"]:
        had.setdefault((line["contender"], line["against"], line["of"]), []).append(line)
    lines: list[Document] = []
    for against in (name for name in AGAINST if name in marks):
        for name in (name for name in marks if name != against):
            mark = f"{marks[name]} {marks[against]}"
            if (name, against, mark) in had:
                lines += had[name, against, mark]
            elif (mine := runs.of(name)) is not None and (theirs := runs.of(against)) is not None:
                lines += [{**line, "of": mark} for line in _against(name, against, mine, theirs)]
    return {"draws": DRAWS, "own": own, "against": lines}


def together(results: Path, name: str, splits: Sequence[str]) -> dict[tuple[str, str], Gap]:
    """(against, `ndcg@5`) → one contender minus another over several splits of the same people.

    A user's value is the mean over seeds and splits, so that nobody counts as several. Holm's adjustment is
    over all lines. They are kept beside the results for when the users' own values are gone.
    """
    path = contest_folder(results) / "together.json"
    people = [_Recalled(contest_folder(results) / WORK / split) for split in splits]
    lines: list[Document] = []
    for against in AGAINST:
        pairs = [(runs.of(name), runs.of(against)) for runs in people]
        if all(a is not None and b is not None for a, b in pairs):
            for key in (f"{metric}@{k}" for k in KS for metric in JUDGED):
                a, b = (_of_everyone([pair[side] for pair in pairs], key) for side in (0, 1))
                if (found := bootstrap_over_users(a, b, draws=DRAWS)) is not None:
                    lines.append({"against": against, "metric": key, **_numbers(found)})
    if lines:
        write_whole(path, (json.dumps(lines, indent=1) + "\n").encode())
    elif path.exists():
        lines = json.loads(path.read_text(encoding="utf-8"))
    adjusted = holm([line["p"] for line in lines])
    return {
        (line["against"], line["metric"]): Gap(
            line["difference"], line["low"], line["high"], float(p), line["low"] > 0 or line["high"] < 0
        )
        for line, p in zip(lines, adjusted, strict=True)
    }


def _of_everyone(runs: Sequence[Runs | None], key: str) -> np.ndarray:
    """One value a user who is judged on every split."""
    metric, k = key.split("@")
    each: list[dict[int, float]] = []
    for one in runs:
        assert one is not None
        values = np.mean([seed.per_user(metric) for seed in one[int(k)]], axis=0)
        each.append(dict(zip(one[int(k)][0].users.tolist(), values.tolist(), strict=True)))
    everyone = sorted(set.intersection(*map(set, each)))
    return np.array([np.mean([found[user] for found in each]) for user in everyone])


class _Recalled:
    """Users' values, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, dict[str, Runs | None]()

    def of(self, name: str) -> Runs | None:
        if name not in self.found:
            self.found[name] = recall(self.folder, name)
        return self.found[name]


def _own(runs: Runs) -> dict[str, Any]:
    found = {}
    for k in KS:
        for metric in JUDGED:
            values = np.mean([one.per_user(metric) for one in runs[k]], axis=0)
            interval = bootstrap_over_users(values, np.zeros_like(values), draws=DRAWS)
            if interval is not None:
                found[f"{metric}@{k}"] = _numbers(interval)
    return found


def _against(name: str, against: str, mine: Runs, theirs: Runs) -> Iterator[Document]:
    for k in KS:
        a, b = _paired(mine[k], theirs[k])
        for metric in JUDGED:
            found = compare_metric(a, b, metric, draws=DRAWS)
            if found.users is not None:
                yield {
                    "contender": name,
                    "against": against,
                    "metric": f"{metric}@{k}",
                    "users": _numbers(found.users),
                    "seeds": None if found.seeds is None else _numbers(found.seeds),
                    "p": found.p,
                    "beyond": found.beyond_uncertainty,
                    "n_users": found.n_users,
                    "n_seeds": found.n_seeds,
                }


def _paired(a: Sequence[UserMetrics], b: Sequence[UserMetrics]) -> tuple[Sequence[UserMetrics], Sequence[UserMetrics]]:
    """Seeds that both have; what does not depend on the seed has one result, which stands for every seed."""
    seeds = max(len(a), len(b)) if 1 in (len(a), len(b)) else min(len(a), len(b))
    return [*a][:seeds] * (seeds // len(a) or 1), [*b][:seeds] * (seeds // len(b) or 1)


def _numbers(found: Interval) -> dict[str, float]:
    return {name: round(getattr(found, name), 6) for name in ("difference", "low", "high", "p")}


def _mark(document: Document) -> str:
    """Changes when a contender's numbers do."""
    text = json.dumps([document["data"], document["metrics"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
