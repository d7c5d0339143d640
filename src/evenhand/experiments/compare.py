"""`compare`: several methods on one split, trained alike, in one table with error bars; `compare_tests`: on several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, describe_encoder, encoder_named
from evenhand.experiments.search_space import search_space
from evenhand.experiments.tune import TuneResult
from evenhand.experiments.tune import tune as search
from evenhand.experiments.verdict import AIMS, Answer, aims_named, aims_sentence, answer, headline_k, kind_of, verdict
from evenhand.methods import AnyMethod, method_of
from evenhand.metrics.catalogue import CARD, METRICS
from evenhand.metrics.statistics import Summary, brief
from evenhand.training.evaluation import Results
from evenhand.training.method import Conditions, Fit, Method, RunOptions, refitted_fit, summaries
from evenhand.training.run import versions
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch, tasks
from evenhand.utils.text import html_table

DEFAULT_METHODS = ("popular", "itemknn", "gfcf", "als", "rns", "pns", "dns", "auc-ns")
"""What takes seconds, of which each leads on logs of another kind, beside what the paper trains."""


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
    answers: Mapping[str, Answer] = field(default_factory=dict)
    """By the kind of test: iid, shift, time, given, or the name of a further test part."""
    by_test: Mapping[str, CompareResult] = field(default_factory=dict)
    """Where several splits were compared: what was found on each; everything else is of the first."""
    refit: bool = False
    """Whether every method was fitted again to train + validation before it was evaluated."""

    def __repr__(self) -> str:
        return f"CompareResult({', '.join(self.fits)}; protocol {self.protocol}; {self.sentence})"

    def _repr_html_(self) -> str:
        """The table at the verdict's k, for a notebook."""
        k = headline_k(self.ks)
        rows = [
            {f"top {k}": row.name}
            | {f"{METRICS[name].title} {METRICS[name].arrow}": brief(row[name]) for name in CARD if name in row.metrics}
            for row in self.rows
            if row.k == k
        ]
        return html_table(self.sentence, rows, [f"protocol {self.protocol}; {self.description}", *self.notes])

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
            "tests": {name: one.to_json() | self._test_json(name) for name, one in self.answers.items()},
            "verdict": self.sentence,
            "notes": list(self.notes),
            "training": {
                label: {"seconds": round(fit.seconds, 2), "chosen_epochs": list(fit.epochs)}
                for label, fit in self.fits.items()
            },
            "tuned": {label: found.to_json() for label, found in self.tuned.items()},
            "configuration": self.configuration(),
        }

    def _test_json(self, name: str) -> dict[str, Any]:
        """The split behind an answer and, where it is not that of `rows`, its own rows."""
        one = self.by_test.get(name)
        if one is None or one.description == self.description:
            return {"split": self.description}
        return {"split": one.description, "rows": [row.to_json() for row in one.rows]}

    def configuration(self) -> dict[str, Any]:
        """What the methods share, the parameters of each, and the versions at work: all that made the result."""
        return {
            "protocol": self.protocol,
            "split": self.description,
            "refit": self.refit,
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
    refit: bool = False,
    ks: Sequence[int] | None = None,
) -> CompareResult:
    """Fit every method with the same encoder, settings and seeds, and evaluate them on the same test part.

    A method is a name, a sampler, or a method with an encoder and settings of its own; a deterministic one has one
    value. `progress` shows a bar, or is called at the start of each method with its label and returns what to call
    after each epoch. With a folder for `checkpoints`, `resume` goes on where an earlier call was interrupted; what had
    finished is not trained again. `tune` gives every method the same number of trials first, with one seed and on
    validation, and each is then trained with what was best for it; parameters named in `held` are not searched.
    With `refit` every method, once all is chosen, is fitted to train + validation and that is evaluated on test; the
    validation values stay those of the choice. `ks` is the former name of `k`.
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
    if refit and (protocol == "paper" or conditions.split.validation is None):
        raise InputError("a refit joins validation to train, and there is no validation part; leave it out.")
    chosen = [one.under(conditions) for one in asked]
    bars = tasks(len(chosen) * (2 if tune else 1)) if progress is True else nullcontext(progress or None)
    fits: dict[str, Fit] = {}
    tuned: dict[str, TuneResult] = {}
    others: dict[str, dict[str, Results]] = {name: {} for name in other_tests or {}}
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
            run = RunOptions(on_epoch, folder, resume)
            fit = one.fit_under(conditions, run)
            fit = fits[one.label] = refitted_fit(one, fit, conditions, run) if refit else fit
            if on_epoch and not fit.epochs:
                on_epoch(1, 1, {})
            for name, part in (other_tests or {}).items():
                others[name][one.label] = conditions.measured(fit.scorers, part)
    k_shown, validation = headline_k(conditions.k), {label: fit.validation for label, fit in fits.items()}
    kinds = {kind_of(split.how): {label: fit.results for label, fit in fits.items()}} | others
    # A further test has nothing held out that is like it.
    said = {
        kind: answer(kind, results, {} if kind in others else validation, k_shown) for kind, results in kinds.items()
    }
    answers = {kind: one for kind, one in said.items() if one is not None}
    return CompareResult(
        rows=tuple(row for one in chosen for row in rows_of(one, fits[one.label].results)),
        sentence=aims_sentence(answers) if len(answers) > 1 else verdict(chosen, fits, protocol, conditions.k),
        methods=tuple(chosen),
        fits=fits,
        other_tests={
            name: tuple(row for one in chosen for row in rows_of(one, of_test[one.label]))
            for name, of_test in others.items()
        },
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
        answers=answers,
        refit=refit,
    )


def compare_tests(
    data: Interactions | Mapping[str, Split],
    methods: Sequence[AnyMethod] = DEFAULT_METHODS,
    tests: str | Sequence[str] = ("iid", "shift"),
    *,
    checkpoints: Path | None = None,
    other_tests: Mapping[str, Interactions] | None = None,
    **options: Any,
) -> CompareResult:
    """The same methods by several kinds of test: *iid* (who predicts the log), *shift* (who finds each item its users)
    and *time* (who predicts what comes next). Every method is trained once for each split, and validation is drawn as
    the test is.

    `data` is a log, or the splits by the name of their test. The result is that of the first test, with the answers
    of all and a sentence that names the method for each aim; `by_test` holds the comparisons. `other_tests` belong to
    the first split; the other options are those of `compare`.
    """
    if isinstance(data, Interactions):
        data = {name: data.split(how=AIMS[name].how) for name in aims_named(tests)}
    aims_named(tuple(data))
    found: dict[str, CompareResult] = {}
    for name, split in data.items():
        own = checkpoints / name if checkpoints and found else checkpoints
        more = None if found else other_tests
        found[name] = compare(split, methods, checkpoints=own, other_tests=more, **options)
    first = next(iter(found.values()))
    answers = {name: one.answers[name] for name, one in found.items() if name in one.answers} | {
        name: one for name, one in first.answers.items() if name not in found
    }
    return replace(
        first,
        sentence=aims_sentence(answers) if len(answers) > 1 else first.sentence,
        answers=answers,
        by_test=found,
        notes=tuple(dict.fromkeys(note for one in found.values() for note in one.notes)),
    )


def rows_of(method: Method, results: Results) -> list[Row]:
    """One row per k, summarised over the seeds."""
    found = summaries(results)
    return [Row(method.label, method.encoder_name, method.name, k, metrics) for k, metrics in found.items()]
