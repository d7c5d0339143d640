"""With which numbers a row is trained, and where each of them comes from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from evenhand.baselines.run import Challenger
from evenhand.encoders import ENCODERS, Encoder
from evenhand.experiments.entrants import Entrant, entrant
from evenhand.methods import METHODS, Contender
from evenhand.paper.published import cells
from evenhand.paper.reproduce.request import Request
from evenhand.paper.reproduce.tuned import BASELINES, NEEDED, TUNED, Tuned, own_values, tuned_for
from evenhand.paper.settings import PublishedSettings, Source
from evenhand.paper.settings import settings as published_settings
from evenhand.samplers import Sampler
from evenhand.training.settings import Settings
from evenhand.utils.description import described
from evenhand.utils.errors import InputError

DEFAULT_METHODS = (*METHODS, "dns:candidates=2", "ease", "als")
"""The paper's ten rows, DNS with the other pool it may have had, and what needs no negatives at all."""
_OWN = ("alpha", "beta", "gamma", "candidates", "probes")


@dataclass(frozen=True)
class Recipe:
    """One row: who, on which encoder, with which numbers."""

    entrant: Entrant
    encoder: Encoder | None
    settings: Settings | None
    """Encoder and settings are None for a baseline, which is not trained."""
    source: str
    """Where the numbers come from, in words."""

    @property
    def label(self) -> str:
        return self.entrant.label

    def to_json(self) -> dict[str, Any]:
        """All the numbers, as they were used."""
        if isinstance(self.entrant, Challenger):
            return {"rival": asdict(self.entrant.baseline), "source": self.source}
        assert self.encoder is not None
        assert self.settings is not None
        return {
            "encoder": asdict(self.encoder),
            "training": asdict(self.settings),
            "sampler": described(self.entrant.sampler),
            "objective": described(self.entrant.objective),
            "source": self.source,
        }


def published_row(label: str) -> str | None:
    """The row of the paper that a method stands beside, whatever its parameters or negatives; None if none.

    >>> published_row("dns:candidates=2"), published_row("samreg@rns"), published_row("ease")
    ('dns', 'samreg', None)
    """
    name = label.partition(":")[0].partition("@")[0]
    return name if name in {cell.method for cell in cells("performance")} else None


def recipe(request: Request, asked: str) -> Recipe:
    """The row of a method or baseline as it was asked for: `name:key=value` overrules every other source."""
    one = entrant(asked)
    if isinstance(one, Challenger):
        return _baseline(request, one)
    row = published_row(one.label)
    assert row is not None, "every training method is a row of the paper"
    tuned = tuned_for(request.dataset, request.encoder, one.label)
    if request.settings == "tuned" and tuned is None:
        known = TUNED.get((request.dataset, request.encoder), {})
        there = f"; there is {', '.join(known)}" if known else ""
        where = f"{request.dataset} with {request.encoder}"
        raise InputError(f"nothing was tuned for '{one.label}' on {where}{there}; use --settings paper.")
    if tuned is not None and (request.settings == "tuned" or row in NEEDED):
        return _tuned(request, one, tuned)
    return _published(request, one, row)


def swept(request: Request, value: str) -> Recipe:
    """AUC-NS with one of its parameters at this value and the others as published."""
    base = recipe(request, "auc-ns")
    assert isinstance(base.entrant, Contender)
    sampler: Sampler = replace(base.entrant.sampler, **{request.part: float(value)})
    return replace(base, entrant=Contender(value, "auc-ns", sampler))


def _published(request: Request, one: Contender, row: str) -> Recipe:
    which: Source = "released" if request.settings == "released" else "paper"
    numbers = published_settings(request.dataset, request.encoder, row, which)
    own = {name: getattr(numbers, name) for name in _OWN} | dict(own_values(one.label))
    by = "the paper's table" if which == "paper" else "the released code"
    source = f"{by}, for AUC-NS" if row == "auc-ns" else f"{by}; stated for AUC-NS, assumed for the rest"
    return Recipe(
        entrant(one.label, own),
        _encoder(request, numbers),
        Settings(
            epochs=request.epochs or numbers.epochs,
            batch=numbers.batch,
            lr=numbers.lr,
            weight_decay=numbers.weight_decay,
            milestones=numbers.milestones,
            # What is held at a high rate until its milestones may not be judged before.
            patience=None if numbers.milestones else Settings.patience,
        ).under(request.protocol),
        source,
    )


def _tuned(request: Request, one: Contender, tuned: Tuned) -> Recipe:
    numbers = published_settings(request.dataset, request.encoder)
    return Recipe(
        entrant(one.label, tuned.own),
        _encoder(request, numbers),
        Settings(
            epochs=min(request.epochs or tuned.epochs, tuned.epochs),
            batch=tuned.batch,
            lr=tuned.lr,
            weight_decay=tuned.weight_decay,
        ).under(request.protocol),
        tuned.source,
    )


def _baseline(request: Request, one: Challenger) -> Recipe:
    named = {text.partition("=")[0] for text in one.label.split(":")[1:]}
    found = BASELINES.get(request.dataset, {}).get(one.method, {})
    values = {name: value for name, value in found.items() if name not in named}
    source = "docs/baselines.md" if values else "as asked for" if named else "its defaults"
    return Recipe(replace(one, baseline=replace(one.baseline, **values)), None, None, source)


def _encoder(request: Request, numbers: PublishedSettings) -> Encoder:
    kind = ENCODERS[request.encoder]
    given: dict[str, Any] = {"dim": numbers.dim, "layers": numbers.layers}
    return kind(**{f.name: given[f.name] for f in fields(kind) if given.get(f.name) is not None})
