"""`compare`: several methods on one split, trained alike, in one table with error bars."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.baselines import Baseline
from evenhand.baselines.run import Challenger, fit_baseline
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, encoder_named
from evenhand.experiments.configuration import configuration
from evenhand.experiments.entrants import Entrant, Outcome, entrant
from evenhand.experiments.search_space import search_space
from evenhand.experiments.setup import Setup
from evenhand.experiments.tune import TuneResult
from evenhand.experiments.tune import tune as search
from evenhand.experiments.verdict import verdict
from evenhand.metrics.lists import list_lengths
from evenhand.metrics.statistics import Summary, summarise
from evenhand.metrics.users import METRICS
from evenhand.training.evaluation import Evaluator, Result, Results
from evenhand.training.run import seed_numbers, train, versions
from evenhand.training.settings import ProtocolName, Settings, resolve_device
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch

DEFAULT_METHODS = ("rns", "pns", "dns", "auc-ns")


@dataclass(frozen=True)
class Row:
    """One contender at one k; the encoder is None for baselines, both are for lists of unknown origin."""

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
    contenders: tuple[Entrant, ...]
    fits: Mapping[str, Outcome]
    """By the contender's label."""
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
            "configuration": configuration(self),
        }


def compare(
    split: Split,
    methods: Sequence[str | Entrant | Baseline] = DEFAULT_METHODS,
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
    tune: int = 0,
    held: Collection[str] = (),
) -> CompareResult:
    """Train every method with the same encoder, settings and seeds, and judge them on the same test part.

    Baselines (`ease`, `EASE(l2=300)`) are fitted on train and judged alike; a deterministic one has one value.
    `progress` is asked for a callback at the start of each contender, with its label. With a folder for
    `checkpoints`, `resume` goes on where an earlier call was interrupted; what had finished is not trained
    again. `tune` gives every contender the same number of trials first, with one seed and on validation, and
    each is then trained with what was best for it; parameters named in `held` are not searched.
    """
    contenders = [entrant(m) for m in methods]
    if not contenders:
        raise InputError("there is nothing to compare: name at least one method.")
    labels = [c.label for c in contenders]
    if len(set(labels)) != len(labels):
        raise InputError(f"every method can be named once only: {', '.join(labels)}.")
    encoder = encoder_named(encoder)
    ks = list_lengths(ks)
    settings = (settings or Settings()).under(protocol)
    rule = HotRule.parse(hot or protocol)
    numbers, where = seed_numbers(seeds), resolve_device(device)
    hot_mask = rule.mask(split)

    fits: dict[str, Outcome] = {}
    tuned: dict[str, TuneResult] = {}
    others: dict[str, list[Row]] = {name: [] for name in other_tests or {}}
    for place, one in enumerate(contenders):
        setup = Setup.of(one, encoder, settings, protocol, split.train)
        # The flags are the trained methods'; EASE has an l2 of its own.
        own = {} if isinstance(one, Challenger) else setup.parameters()
        fixed = {name: value for name, value in own.items() if name in held}
        if tune and search_space(setup, fixed):
            tuned[one.label] = search(
                split,
                one,
                encoder,
                trials=tune,
                settings=settings,
                protocol=protocol,
                fixed=fixed,
                storage=checkpoints / "trials.log" if checkpoints else None,
                device=device,
                on_trial=progress(f"{one.label}, trials") if progress else None,
            )
            setup = tuned[one.label].setup
            one = contenders[place] = setup.entrant
        on_epoch = progress(one.label) if progress else None
        if isinstance(one, Challenger):
            fits[one.label] = fit_baseline(split, one.baseline, numbers, protocol, where, hot_mask, ks, on_epoch)
            if on_epoch:
                on_epoch(1, 1, {})
        else:
            fits[one.label] = train(
                split,
                setup.encoder,
                one.sampler,
                numbers,
                setup.settings,
                protocol=protocol,
                device=device,
                ks=ks,
                hot=hot,
                on_epoch=on_epoch,
                checkpoints=checkpoints / f"{place:02d}" if checkpoints else None,
                resume=resume,
                objective=one.objective,
                label=one.label,
            )
        for name, part in (other_tests or {}).items():
            evaluator = Evaluator(part, split.consumed, hot_mask, ks)
            others[name] += rows_of(one, encoder, evaluator.results_by(fits[one.label].scorers))
    return CompareResult(
        rows=tuple(row for one in contenders for row in rows_of(one, encoder, fits[one.label].results)),
        sentence=verdict(contenders, fits, protocol, ks),
        contenders=tuple(contenders),
        fits=fits,
        other_tests={name: tuple(rows) for name, rows in others.items()},
        encoder=encoder,
        settings=settings,
        seeds=numbers,
        versions=versions(where),
        protocol=protocol,
        hot=rule,
        ks=ks,
        description=split.description,
        notes=tuple(dict.fromkeys(note for each in (fits, tuned) for found in each.values() for note in found.notes)),
        tuned=tuned,
    )


def rows_of(one: Entrant, encoder: Encoder, results: Results) -> list[Row]:
    """One row a k, summarised over the seeds."""
    used = None if isinstance(one, Challenger) else type(encoder).__name__.lower()
    return [Row(one.label, used, one.method, k, _summaries(found)) for k, found in results.items()]


def _summaries(found: Sequence[Result]) -> dict[str, Summary]:
    return {name: summarise([result.metrics[name] for result in found]) for name in METRICS}
