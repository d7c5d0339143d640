"""The experiments of `evenhand reproduce`, ready for a page: ours beside the paper's, and what AUC-NS beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from page_text import ENCODERS, SETS, label, listed

from evenhand.experiments.results import Document, documents
from evenhand.paper.claims import REFERENCE, Claim, claims
from evenhand.paper.experiment import DEFAULT_METHODS, published_row
from evenhand.paper.published import LOWER_IS_BETTER, Cell, cells
from evenhand.paper.tables import NEAR, Pair, pair

SHOWN = ("precision@5", "ndcg@5", "ohr@5")
GOOD = ("as printed", "near")
"""Verdicts under which a number counts as reproduced."""

papers_row = cache(published_row)


@cache
def _printed(dataset: str, encoder: str) -> dict[tuple[str | None, str], Cell]:
    return {(c.method, f"{c.metric}@{c.k}"): c for c in cells("performance", dataset, encoder)}


@dataclass(frozen=True)
class Table:
    """One experiment over the methods."""

    name: str
    document: Document
    claims: Sequence[Claim]

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
        """ML-100K, MF; the honest protocol is named, the paper's own goes without saying."""
        honest = ", honest" if self.identity["protocol"] == "honest" else ""
        return f"{SETS[self.identity['dataset']]}, {ENCODERS[self.identity['encoder']]}{honest}"

    def mean(self, method: str, key: str) -> float | None:
        found: float | None = (self.entries.get(method) or {"metrics": {}})["metrics"].get(key, {}).get("mean")
        return found

    def pairs(self, method: str, keys: Sequence[str] = SHOWN) -> list[Pair]:
        """Our numbers of a row beside the paper's."""
        printed = _printed(self.identity["dataset"], self.identity["encoder"])
        return [pair(self.entries[method], key, printed.get((papers_row(method), key))) for key in keys]

    def papers(self) -> list[str]:
        """Rows that stand beside one of the paper's, in the order of the registry."""
        known = [*DEFAULT_METHODS, *(method for method in self.entries if method not in DEFAULT_METHODS)]
        return [method for method in known if method in self.entries and papers_row(method)]

    def reproduced(self) -> tuple[int, int]:
        """How many of the paper's rows come out as printed or near it, of how many."""
        kept = {papers_row(method) for method in self.papers() if self.verdict(method) in ("yes", "near")}
        return len(kept), len({papers_row(method) for method in self.papers()})

    def verdict(self, method: str) -> str:
        """Of the three metrics together: yes, near, open, or in which of them ours are better or worse."""
        found = {key: one.verdict for key, one in zip(SHOWN, self.pairs(method), strict=True)}
        sides = []
        for word in ("better", "worse"):
            keys = [key for key, one in found.items() if one in ("higher", "lower") and _side(key, one) == word]
            which = "all three" if len(keys) == len(SHOWN) else listed([label(key) for key in keys])
            sides += [f"{word} in {which}"] if keys else []
        if sides:
            return f"no: {', '.join(sides)}"
        wide = [label(key) for key, one in found.items() if one == "uncertain"]
        if wide:
            return f"open: interval of {listed(wide)} wider than ± {NEAR:.2f}".replace("0.", ".")
        return "yes" if set(found.values()) == {"as printed"} else "near"

    def against(self, key: str) -> dict[str, Claim]:
        """AUC-NS against each of the paper's other rows."""
        found = {claim.other: claim for claim in self.claims if claim.metric == key}
        rows = [row for row in self.papers() if row != REFERENCE and not set(":@") & set(row)]
        return {row: found[row] for row in rows if row in found}


@dataclass(frozen=True)
class Experiments:
    """Everything that `evenhand reproduce` left in a folder."""

    tables: Mapping[str, Table]

    @classmethod
    def read(cls, folder: Path) -> Experiments:
        found = documents(folder)
        return cls({name: Table(name, one, claims({name: one})) for name, one in found.items()})

    def overall(self, protocol: str = "paper", dataset: str | None = None) -> list[Table]:
        """The tables over the methods, in the order in which the page shows them."""
        order = [(name, encoder) for name in SETS for encoder in ENCODERS if dataset in (None, name)]
        mine = [one for one in self.tables.values() if one.identity["part"] == "overall"]
        mine = [one for one in mine if one.identity["protocol"] == protocol and REFERENCE in one.entries]
        keys = [(one.identity["dataset"], one.identity["encoder"]) for one in mine]
        return [mine[keys.index(key)] for key in order if key in keys]

    def sweep(self, part: str) -> Table | None:
        return next((one for one in self.tables.values() if one.identity["part"] == part), None)


def _side(key: str, verdict: str) -> str:
    lower_is_better = key.partition("@")[0] in LOWER_IS_BETTER
    return "better" if (verdict == "lower") == lower_is_better else "worse"
