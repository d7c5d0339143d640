"""`compare`: several methods on one split, trained alike, in one table with error bars."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, describe_encoder, encoder_named
from evenhand.experiments.search_space import search_space
from evenhand.experiments.tune import TuneResult
from evenhand.experiments.tune import tune as search
from evenhand.experiments.verdict import verdict
from evenhand.methods import AnyMethod, method_of
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.statistics import Summary, summarise
from evenhand.training.evaluation import Results
from evenhand.training.method import Conditions, Fit, Method
from evenhand.training.run import versions
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch, tasks

DEFAULT_METHODS = ("rns", "pns", "dns", "auc-ns")


@dataclass(frozen=True)
class Row:
    """One method at one k; the encoder is None for baselines, both are for lists of unknown origin."""

    name: str
    encoder: str | None
    method: str | None
    k: int
    metrics: Mapping[str, Summary]

    def __getitem__(self, metric: str) -> Summary:
        return self.metrics[metric]

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
    """The rows of every method, what they rest on, and the sentence that sums them up."""

    rows: tuple[Row, ...]
    sentence: str
    methods: tuple[Method, ...]
    fits: Mapping[str, Fit]
    """By the method's label."""
    other_tests: Mapping[str, tuple[Row, ...]]
    """The same models on further test parts."""
    encoder: Encoder
    settings: Settings
    seeds: tuple[int, ...]
    versions: Mapping[str, str]
    protocol: ProtocolName
    hot: HotRule
    ks: tuple[int, ...]
    description: str
    """How the data was split."""
    notes: tuple[str, ...]
    tuned: Mapping[str, TuneResult] = field(default_factory=dict)
    """By label: what was chosen on validation, where that was asked for."""

    def __repr__(self) -> str:
        return f"CompareResult({', '.join(self.fits)}; protocol {self.protocol}; {self.sentence})"

    def __getitem__(self, name: str) -> Fit:
        """The fit of a method by its label: `result["dns"].at(10)["ndcg"].mean`."""
        if name not in self.fits:
            raise InputError(f"'{name}' was not compared; there is {', '.join(self.fits)}.")
        return self.fits[name]

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
            "tuned": {label: found.to_json() for label, found in self.tuned.items()},
            "configuration": self.configuration(),
        }

    def configuration(self) -> dict[str, Any]:
        """What the methods share, the parameters of each, and the versions at work: all that made the result."""
        return {
            "protocol": self.protocol,
            "split": self.description,
            "ks": list(self.ks),
            "hot": asdict(self.hot) | {"description": self.hot.describe()},
            "seeds": list(self.seeds),
            "encoder": describe_encoder(self.encoder),
            "settings": asdict(self.settings),
            "methods": {one.label: {"method": one.name, **one.configuration()} for one in self.methods},
            "versions": dict(self.versions),
        }


def compare(
    split: Split,
    methods: Sequence[AnyMethod] = DEFAULT_METHODS,
    encoder: str | Encoder = "mf",
    seeds: int | Sequence[int] = 3,
    settings: Settings | None = None,
    *,
    protocol: ProtocolName = "honest",
    k: int | Sequence[int] = (5, 10, 20),
    hot: str | HotRule | None = None,
    device: str = "auto",
    other_tests: Mapping[str, Interactions] | None = None,
    progress: bool | Callable[[str], OnEpoch | None] | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
    tune: int = 0,
    held: Collection[str] = (),
    ks: Sequence[int] | None = None,
) -> CompareResult:
    """Fit every method with the same encoder, settings and seeds, and evaluate them on the same test part.

    A method is a name, a sampler, or a method with an encoder and settings of its own; a deterministic one has one
    value. `progress` shows a bar, or is called at the start of each method with its label and returns what to call
    after each epoch. With a folder for `checkpoints`, `resume` goes on where an earlier call was interrupted; what had
    finished is not trained again. `tune` gives every method the same number of trials first, with one seed and on
    validation, and each is then trained with what was best for it; parameters named in `held` are not searched.
    `ks` is the former name of `k`.
    """
    if ks is not None:
        warnings.warn("compare(ks=) is called k= now.", DeprecationWarning, stacklevel=2)
    encoder = encoder_named(encoder)
    asked = [method_of(one, encoder, settings) for one in methods]
    if not asked:
        raise InputError("there is nothing to compare: name at least one method.")
    labels = [one.label for one in asked]
    if len(set(labels)) != len(labels):
        raise InputError(f"every method can be named once only: {', '.join(labels)}.")
    conditions = Conditions.of(split, seeds, protocol, k if ks is None else ks, hot, device)
    settings = (settings or Settings()).under(protocol)
    chosen = [one.under(conditions) for one in asked]
    bars = tasks(len(chosen) * (2 if tune else 1)) if progress is True else nullcontext(progress or None)
    fits: dict[str, Fit] = {}
    tuned: dict[str, TuneResult] = {}
    others: dict[str, list[Row]] = {name: [] for name in other_tests or {}}
    with bars as begin:
        for place, one in enumerate(chosen):
            # The options are those of trained methods; EASE has an l2 of its own.
            own = {} if one.encoder_name is None else one.parameters()
            fixed = {name: value for name, value in own.items() if name in held}
            if tune and search_space(one, fixed):
                found = tuned[one.label] = search(
                    split,
                    one,
                    trials=tune,
                    protocol=protocol,
                    fixed=fixed,
                    storage=checkpoints / "trials.log" if checkpoints else None,
                    device=device,
                    on_trial=begin(f"{one.label}, trials") if begin else None,
                )
                one = chosen[place] = found.chosen
            on_epoch = begin(one.label) if begin else None
            folder = checkpoints / f"{place:02d}" if checkpoints else None
            fit = fits[one.label] = one.fit_under(conditions, on_epoch=on_epoch, checkpoints=folder, resume=resume)
            if on_epoch and not fit.epochs:
                on_epoch(1, 1, {})
            for name, part in (other_tests or {}).items():
                others[name] += rows_of(one, conditions.measured(fit.scorers, part))
    return CompareResult(
        rows=tuple(row for one in chosen for row in rows_of(one, fits[one.label].results)),
        sentence=verdict(chosen, fits, protocol, conditions.k),
        methods=tuple(chosen),
        fits=fits,
        other_tests={name: tuple(rows) for name, rows in others.items()},
        encoder=encoder,
        settings=settings,
        seeds=conditions.seeds,
        versions=versions(conditions.device),
        protocol=protocol,
        hot=conditions.hot,
        ks=conditions.k,
        description=split.description,
        notes=tuple(dict.fromkeys(note for each in (fits, tuned) for found in each.values() for note in found.notes)),
        tuned=tuned,
    )


def rows_of(method: Method, results: Results) -> list[Row]:
    """One row per k, summarised over the seeds."""
    return [
        Row(
            method.label,
            method.encoder_name,
            method.name,
            k,
            {n: summarise([r.metrics[n] for r in found]) for n in METRICS},
        )
        for k, found in results.items()
    ]
