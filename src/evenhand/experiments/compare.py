"""`compare`: several methods on one split, trained alike, in one table with error bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.data.hot import HotRule
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import Encoder
from evenhand.errors import InputError
from evenhand.experiments.configuration import configuration
from evenhand.experiments.verdict import verdict
from evenhand.methods import Contender, contender
from evenhand.metrics.statistics import Summary, summarise
from evenhand.metrics.users import METRICS
from evenhand.training.progress import OnEpoch
from evenhand.training.run import Fit, resolve_encoder, train
from evenhand.training.selection import Evaluator, Result, Results
from evenhand.training.settings import ProtocolName, Settings

DEFAULT_METHODS = ("rns", "pns", "dns", "auc-ns")


@dataclass(frozen=True)
class Row:
    """One contender at one k; encoder and method are None for lists of unknown origin."""

    name: str
    encoder: str | None
    method: str | None
    k: int
    metrics: Mapping[str, Summary]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoder": self.encoder,
            "method": self.method,
            "k": self.k,
            "metrics": {name: value.to_json() for name, value in self.metrics.items()},
        }


@dataclass(frozen=True, eq=False)
class CompareResult:
    """The rows of every contender, what they rest on, and the sentence that sums them up."""

    rows: tuple[Row, ...]
    sentence: str
    contenders: tuple[Contender, ...]
    fits: Mapping[str, Fit]
    """By the contender's label."""
    other_tests: Mapping[str, tuple[Row, ...]]
    """The same models on further test parts."""
    encoder: Encoder
    settings: Settings
    protocol: ProtocolName
    hot: HotRule
    ks: tuple[int, ...]
    description: str
    """How the data was split."""
    notes: tuple[str, ...]

    def row(self, name: str, k: int) -> Row:
        for row in self.rows:
            if (row.name, row.k) == (name, k):
                return row
        raise InputError(f"there is no row '{name}' at k = {k}.")

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints; undefined numbers are null."""
        return {
            "protocol": self.protocol,
            "data": self.description,
            "rows": [row.to_json() for row in self.rows],
            "other_tests": {name: [row.to_json() for row in rows] for name, rows in self.other_tests.items()},
            "verdict": self.sentence,
            "notes": list(self.notes),
            "training": {
                label: {"seconds": round(fit.seconds, 2), "chosen_epochs": list(fit.epochs)}
                for label, fit in self.fits.items()
            },
            "configuration": configuration(self),
        }


def compare(
    split: Split,
    methods: Sequence[str | Contender] = DEFAULT_METHODS,
    encoder: str | Encoder = "mf",
    seeds: int | Sequence[int] = 3,
    settings: Settings | None = None,
    *,
    protocol: ProtocolName = "honest",
    ks: Sequence[int] = (5, 10, 20),
    hot: str | None = None,
    device: str = "auto",
    other_tests: Mapping[str, Interactions] | None = None,
    progress: Callable[[str], OnEpoch | None] | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> CompareResult:
    """Train every method with the same encoder, settings and seeds, and judge them on the same test part.

    `progress` is asked for a callback at the start of each contender, with its label. With a folder for
    `checkpoints`, `resume` goes on where an earlier call was interrupted; what had finished is not trained
    again.
    """
    contenders = [contender(m) if isinstance(m, str) else m for m in methods]
    if not contenders:
        raise InputError("there is nothing to compare: name at least one method.")
    labels = [c.label for c in contenders]
    if len(set(labels)) != len(labels):
        raise InputError(f"every method can be named once only: {', '.join(labels)}.")
    encoder = resolve_encoder(encoder)
    ks = tuple(sorted(set(ks)))
    settings = (settings or Settings()).under(protocol)
    rule = HotRule.parse(hot or protocol)

    fits: dict[str, Fit] = {}
    others: dict[str, list[Row]] = {name: [] for name in other_tests or {}}
    for place, one in enumerate(contenders):
        fits[one.label] = fitted = train(
            split,
            encoder,
            one.sampler,
            seeds,
            settings,
            protocol=protocol,
            device=device,
            ks=ks,
            hot=hot,
            on_epoch=progress(one.label) if progress else None,
            checkpoints=checkpoints / f"{place:02d}" if checkpoints else None,
            resume=resume,
            objective=one.objective,
        )
        for name, part in (other_tests or {}).items():
            evaluator = Evaluator(part, split.consumed, rule.mask(split), ks)
            others[name] += rows_of(one, encoder, evaluator.results(fitted.model.vectors))
    return CompareResult(
        rows=tuple(row for one in contenders for row in rows_of(one, encoder, fits[one.label].results)),
        sentence=verdict(contenders, fits, protocol, ks),
        contenders=tuple(contenders),
        fits=fits,
        other_tests={name: tuple(rows) for name, rows in others.items()},
        encoder=encoder,
        settings=settings,
        protocol=protocol,
        hot=rule,
        ks=ks,
        description=split.description,
        notes=tuple(dict.fromkeys(note for fitted in fits.values() for note in fitted.notes)),
    )


def rows_of(one: Contender, encoder: Encoder, results: Results) -> list[Row]:
    """One row a k, summarised over the seeds."""
    return [
        Row(one.label, type(encoder).__name__.lower(), one.method, k, _summaries(found))
        for k, found in results.items()
    ]


def _summaries(found: Sequence[Result]) -> dict[str, Summary]:
    return {name: summarise([result.metrics[name] for result in found]) for name in METRICS}
