"""An experiment of the paper: what is asked for, checked against what was published; its data; and its rows.

Everything is understood before any work is done. `recipe` says with which hyperparameters a row is trained.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from evenhand.data.datasets.fetch import cache_folder
from evenhand.data.datasets.load import load_split
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, given_split
from evenhand.encoders import ENCODERS
from evenhand.methods import METHODS, parse
from evenhand.models.base import described
from evenhand.paper.published import (
    BASELINES,
    NEEDED,
    OWN,
    TUNED,
    Source,
    Tuned,
    cells,
    own_values,
    published_settings,
    tuned_for,
)
from evenhand.training.method import Method
from evenhand.training.settings import ProtocolName, Settings
from evenhand.utils.errors import InputError, unknown

SettingsName = Literal["paper", "released", "tuned"]
SWEEPS = ("alpha", "beta", "gamma")
PARTS = ("overall", *SWEEPS)
TABLES = {"overall": "performance", "errors": "errors", **{name: name for name in SWEEPS}}
"""A part → the published table that it stands beside. The errors are a second look at the overall runs."""
SWEEP_KS = (5, 10, 20)


@dataclass(frozen=True)
class Experiment:
    """One part of the paper's experiments. Its rows are recorded under one name."""

    part: str
    """overall (accuracy, bias and errors of every method), or the parameter that is swept"""
    dataset: str = "ml-100k"
    encoder: str = "mf"
    seeds: int = 10
    protocol: ProtocolName = "paper"
    settings: SettingsName = "paper"
    """The paper's table, the released code's suggestion, or what we found on validation for each method."""
    ks: tuple[int, ...] = (5, 10, 20)
    epochs: int | None = None
    """An upper limit; None leaves it to the settings."""
    until: int | None = None
    """Train until precision@5 on a tenth of train has not risen for this number of epochs, then as long on all."""

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("part", self.part, PARTS),
            ("protocol", self.protocol, get_args(ProtocolName)),
            ("settings", self.settings, get_args(SettingsName)),
        ):
            if value not in known:
                raise unknown(kind, value, known)
        if self.seeds < 1:
            raise InputError(f"--seeds takes a number of seeds from 1 on, not {self.seeds}.")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"--epochs takes a number from 1 on, not {self.epochs}.")
        if self.until is not None and self.until < 1:
            raise InputError(f"--until takes a number of epochs from 1 on, not {self.until}.")
        if self.until is not None and self.protocol != "paper":
            raise InputError("--until is for the paper protocol; the honest one stops on validation anyway.")
        for k in self.ks if self.part == "overall" else ():
            cells(TABLES[self.part], self.dataset, self.encoder, k=k)
        cells(TABLES[self.part], self.dataset, self.encoder)
        if self.settings != "tuned":
            published_settings(self.dataset, self.encoder, which=self.settings)
        elif self.part != "overall":
            raise InputError("a sweep is made with --settings paper or released; tuned is for overall.")

    @property
    def name(self) -> str:
        """overall-ml-100k-mf-paper-released"""
        return "-".join((self.part, self.dataset, self.encoder, self.protocol, self.settings))

    def identity(self) -> dict[str, Any]:
        """What the rows of one experiment must agree on, besides data and version."""
        return {**asdict(self), "ks": list(self.ks)}

    def command(self, one: str) -> str:
        """The command that makes one row; where the data lies is the reader's own affair."""
        chosen = "--methods" if self.part == "overall" else "--values"
        words = ["evenhand", "reproduce", self.part, "--dataset", self.dataset, "--encoder", self.encoder]
        words += [chosen, one, "--seeds", str(self.seeds), "--protocol", self.protocol]
        words += ["--settings", self.settings]
        if self.part == "overall" and self.ks != (5, 10, 20):
            words += ["--k", ",".join(map(str, self.ks))]
        for name, value in (("--epochs", self.epochs), ("--until", self.until)):
            words += [] if value is None else [name, str(value)]
        return shlex.join(words)


def swept_values(part: str, asked: str | None = None) -> tuple[str, ...]:
    """The published values of a sweep as they are written, or those asked for among them."""
    published = dict.fromkeys(cell.setting for cell in cells(part))
    if asked is None:
        return tuple(sorted(published, key=float))
    found = []
    for text in filter(None, map(str.strip, asked.split(","))):
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"--values takes numbers separated by commas, not '{text}'.") from None
        found.append(cells(part, setting=value)[0].setting)
    if not found:
        raise InputError("--values names no value; leave it out for all of them.")
    return tuple(sorted(set(found), key=float))


AUTHORS_FILES = ("paper_train.csv", "paper_test.csv")
"""Names under which the authors' split of a data set is looked for; columns user,item[,rating]."""
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.1


def load_published_split(dataset: str, data_dir: str | None, protocol: ProtocolName) -> Split:
    """Train and test as the paper had them; the honest protocol takes its validation part out of train.

    `data_dir/name`, `data_dir` and the cache folder are searched for the authors' two files. Where they are
    not, a random fifth of the pool is the test part.
    """
    if data_dir is not None and not Path(data_dir).expanduser().exists():
        raise InputError(f"--data-dir {data_dir} does not exist.")
    validation = VALIDATION_SHARE if protocol == "honest" else 0.0
    folder = _authors_folder(dataset, data_dir)
    if folder is None:
        return load_split(dataset, data_dir, test_part="random", test=TEST_SHARE, validation=validation)
    train, test = (
        read_interactions(str(folder / name), user="user", item="item", allow_small=True) for name in AUTHORS_FILES
    )
    split = given_split(train, test, validation=validation)
    return replace(split, description=f"the authors' split: {split.description}")


def _authors_folder(dataset: str, data_dir: str | None) -> Path | None:
    places = [cache_folder() / dataset]
    if data_dir is not None:
        root = Path(data_dir).expanduser()
        places = [root / dataset, root, *places]
    return next((place for place in places if all((place / name).is_file() for name in AUTHORS_FILES)), None)


DEFAULT_METHODS = (
    *(name for name in METHODS if name in {cell.method for cell in cells("performance")}),
    *("dns:candidates=2", "ease", "als"),
)
"""The paper's ten rows, DNS with the other pool it may have had, and what needs no negatives at all."""


@dataclass(frozen=True)
class Recipe:
    """One row: a method with all its hyperparameters."""

    method: Method
    source: str
    """Where the numbers come from, in words."""

    @property
    def label(self) -> str:
        return self.method.label

    def to_json(self) -> dict[str, Any]:
        """All the numbers, as they were used."""
        parts = self.method.components()
        if "baseline" in parts:
            return {"rival": self.method.parameters(), "source": self.source}
        return {
            "encoder": asdict(parts["encoder"]),
            "training": asdict(parts["settings"]),
            "sampler": described(parts["sampler"]),
            "objective": described(parts["objective"]),
            "source": self.source,
        }


def published_row(label: str) -> str | None:
    """The row of the paper that a method stands beside, whatever its parameters or negatives; None if none.

    >>> published_row("dns:candidates=2"), published_row("samreg@rns"), published_row("ease")
    ('dns', 'samreg', None)
    """
    name = label.partition(":")[0].partition("@")[0]
    return name if name in {cell.method for cell in cells("performance")} else None


def recipe(experiment: Experiment, asked: str) -> Recipe:
    """The row of a method or baseline as it was asked for: `name:key=value` overrules every other source."""
    one = parse(asked)
    if one.encoder_name is None:
        return _baseline(experiment, one)
    row = published_row(one.label)
    if row is None:
        raise InputError(f"'{one.label}' is no row of the paper; `evenhand compare` takes it.")
    tuned = tuned_for(experiment.dataset, experiment.encoder, one.label)
    if experiment.settings == "tuned" and tuned is None:
        known = TUNED.get((experiment.dataset, experiment.encoder), {})
        there = f"; there is {', '.join(known)}" if known else ""
        where = f"{experiment.dataset} with {experiment.encoder}"
        raise InputError(f"nothing was tuned for '{one.label}' on {where}{there}; use --settings paper.")
    if tuned is not None and (experiment.settings == "tuned" or row in NEEDED):
        return _tuned(experiment, one, tuned)
    return _published(experiment, one, row)


def swept(experiment: Experiment, value: str) -> Recipe:
    """AUC-NS with one of its parameters at this value and the others as published."""
    base = recipe(experiment, "auc-ns")
    return replace(base, method=replace(base.method.having({experiment.part: float(value)}), asked=value))


def _published(experiment: Experiment, one: Method, row: str) -> Recipe:
    which: Source = "released" if experiment.settings == "released" else "paper"
    numbers = published_settings(experiment.dataset, experiment.encoder, row, which)
    own = {name: getattr(numbers, name) for name in OWN} | dict(own_values(one.label))
    by = "the paper's table" if which == "paper" else "the released code"
    source = f"{by}, for AUC-NS" if row == "auc-ns" else f"{by}; stated for AUC-NS, assumed for the rest"
    settings = Settings(
        epochs=experiment.epochs or numbers.epochs,
        batch=numbers.batch,
        lr=numbers.lr,
        weight_decay=numbers.weight_decay,
        milestones=numbers.milestones,
        # What is held at a high rate until its milestones may not be compared before.
        patience=None if numbers.milestones else Settings.patience,
    )
    return Recipe(_trained(experiment, one, own, settings), source)


def _tuned(experiment: Experiment, one: Method, tuned: Tuned) -> Recipe:
    epochs = min(experiment.epochs or tuned.epochs, tuned.epochs)
    settings = Settings(epochs=epochs, batch=tuned.batch, lr=tuned.lr, weight_decay=tuned.weight_decay)
    return Recipe(_trained(experiment, one, tuned.own, settings), tuned.source)


def _baseline(experiment: Experiment, one: Method) -> Recipe:
    found = BASELINES.get(experiment.dataset, {}).get(one.name, {})
    values = {name: value for name, value in found.items() if name not in one.named}
    source = "docs/baselines.md" if values else "as asked for" if one.named else "its defaults"
    return Recipe(one.having(values), source)


def _trained(experiment: Experiment, one: Method, own: Mapping[str, Any], settings: Settings) -> Method:
    """The method with these values of its own, and the published size of the model; single epochs count."""
    numbers, kind = published_settings(experiment.dataset, experiment.encoder), ENCODERS[experiment.encoder]
    encoder = kind(**{f.name: getattr(numbers, f.name) for f in fields(kind)})
    return parse(one.label, encoder, replace(settings, average=False).under(experiment.protocol), shared=own)
