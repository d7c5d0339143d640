"""Which result file answers a question, and how its numbers are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from evenhand.paper.errata import LOWER_IS_BETTER
from evenhand.paper.published import Cell, cells
from evenhand.paper.reproduce.claims import Claim
from evenhand.paper.reproduce.recipes import DEFAULT_METHODS, published_row
from evenhand.paper.reproduce.record import Document
from evenhand.paper.reproduce.request import SWEEPS, swept_values
from evenhand.paper.reproduce.table import Pair, pair, short

SETS = {"ml-100k": "ML-100K", "ml-1m": "ML-1M"}
ENCODERS = {"mf": "MF", "lightgcn": "LightGCN"}
SHOWN = ("precision@5", "ndcg@5", "ohr@5")
NAMES = {"precision": "precision", "ndcg": "NDCG", "ohr": "OHR"}
Answers = Mapping[str, list[Claim]]
"""The name of a file → what it says of the claims."""
GOOD = ("as printed", "near")
"""Verdicts under which a number counts as reproduced."""


papers_row = cache(published_row)


@cache
def _printed(dataset: str, encoder: str) -> dict[tuple[str | None, str], Cell]:
    return {(c.method, f"{c.metric}@{c.k}"): c for c in cells("performance", dataset, encoder)}


@dataclass(frozen=True)
class Table:
    """One result file of the large tables."""

    name: str
    document: Document

    @property
    def identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = self.document["identity"]
        return identity

    @property
    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = self.document["entries"]
        return entries

    @property
    def where(self) -> str:
        """ML-100K, MF"""
        return f"{SETS[self.identity['dataset']]}, {ENCODERS[self.identity['encoder']]}"

    def mean(self, label: str, key: str) -> float | None:
        """A row's metric; None where the row is missing or the metric undefined."""
        found: float | None = (self.entries.get(label) or {"metrics": {}})["metrics"].get(key, {}).get("mean")
        return found

    def pairs(self, label: str, keys: Sequence[str] = SHOWN) -> list[Pair]:
        """Our numbers of a row beside the paper's."""
        printed = _printed(self.identity["dataset"], self.identity["encoder"])
        row = papers_row(label)
        return [pair(self.entries[label], key, printed.get((row, key))) for key in keys]

    def papers(self) -> list[str]:
        """Rows that stand beside one of the paper's, in the order of the registry."""
        known = [*DEFAULT_METHODS, *(label for label in self.entries if label not in DEFAULT_METHODS)]
        return [label for label in known if label in self.entries and papers_row(label)]

    def reproduced(self) -> tuple[set[str], set[str]]:
        """Rows of the paper that one of ours meets, and all that we have."""
        asked = {papers_row(label) or "" for label in self.papers()}
        kept = {papers_row(label) or "" for label in self.papers() if self.holds(label)}
        return kept, asked

    def others(self) -> list[str]:
        return [label for label in self.entries if label not in self.papers()]

    def verdict(self, label: str) -> str:
        """Of the three metrics together: yes, near, or in which of them ours are better or worse."""
        found = {key: one.verdict for key, one in zip(SHOWN, self.pairs(label), strict=True)}
        if self.holds(label):
            return "yes" if set(found.values()) == {"as printed"} else "near"
        told = []
        for word in ("better", "worse"):
            side = [key for key, one in found.items() if one not in GOOD and _side(key, one) == word]
            which = "all three" if len(side) == len(SHOWN) else listed([upper(key) for key in side])
            told += [f"{word} in {which}"] if side else []
        return f"no: {', '.join(told)}"

    def holds(self, label: str) -> bool:
        """Whether all three are as printed or near."""
        return all(one.verdict in GOOD for one in self.pairs(label))


@dataclass(frozen=True)
class Results:
    """Every result file there is."""

    found: Mapping[str, Document]

    def table(self, dataset: str, encoder: str, protocol: str = "paper") -> Table | None:
        """The fullest file of the large table with this protocol, whatever its settings."""
        mine = {"part": "overall", "dataset": dataset, "encoder": encoder, "protocol": protocol}
        fitting = [
            Table(name, document)
            for name, document in self.found.items()
            if all(document["identity"][key] == value for key, value in mine.items())
            and "auc-ns" in document["entries"]
        ]
        return max(fitting, key=lambda one: len(one.entries), default=None)

    def tables(self, protocol: str = "paper", dataset: str | None = None) -> list[Table]:
        """In the order in which the page shows them."""
        asked = [
            self.table(name, encoder, protocol) for name in SETS for encoder in ENCODERS if dataset in (None, name)
        ]
        return [one for one in asked if one is not None]

    def sweep(self, part: str) -> Document | None:
        return next((one for one in self.found.values() if one["identity"]["part"] == part), None)

    def missing(self) -> Iterator[str]:
        """What a reader may look for on this page in vain."""
        wanted = [("ml-100k", encoder, how) for how in ("paper", "honest") for encoder in ENCODERS]
        wanted += [("ml-1m", encoder, "paper") for encoder in ENCODERS]
        for dataset, encoder, protocol in wanted:
            table = self.table(dataset, encoder, protocol)
            lacking = [row for row in DEFAULT_METHODS if table is None or row not in table.entries]
            name = f"{SETS[dataset]}, {ENCODERS[encoder]}, protocol {protocol}"
            yield from _lacking(name, lacking, len(DEFAULT_METHODS))
        for part in SWEEPS:
            document = self.sweep(part)
            values = swept_values(part)
            lacking = [value for value in values if document is None or value not in document["entries"]]
            yield from _lacking(f"the {part} sweep", lacking, len(values))


def _side(key: str, verdict: str) -> str:
    lower_is_better = key.partition("@")[0] in LOWER_IS_BETTER
    return "better" if (verdict == "lower") == lower_is_better else "worse"


def _lacking(name: str, rows: list[str], most: int) -> Iterator[str]:
    if rows:
        yield name if len(rows) == most else f"{', '.join(f'`{row}`' for row in rows)} of {name}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def details(summary: str, body: str) -> str:
    """A block that a reader opens."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body.strip()}\n\n</details>\n"


def upper(key: str) -> str:
    """ndcg@5 → NDCG@5"""
    name, _, k = key.partition("@")
    return f"{NAMES.get(name, name)}@{k}" if k else name


def signed(number: float) -> str:
    """+.0018"""
    sign = "−" if number < 0 else "+"
    return sign + short(abs(number))


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1] if words else "")))


def named(rows: Iterable[str]) -> str:
    """`a`, `b` and `c`"""
    return listed([f"`{row}`" for row in rows])


def number(value: float | None) -> str:
    return "–" if value is None else short(value)
