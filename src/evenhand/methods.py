"""The one registry of training methods: a name → a sampler, its defaults, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

from evenhand.objectives import BPR, IPS, MACR, BCLoss, CausE, Objective, Reg
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.utils.errors import InputError, unknown


@dataclass(frozen=True)
class Method:
    """A row of a comparison table: a way to choose negatives, and a loss."""

    name: str
    sampler: type[Sampler]
    summary: str
    source: str
    objective: type[Objective] = BPR

    def parameters(self) -> dict[str, Any]:
        """Parameter names and their defaults, the sampler's and the objective's."""
        return {f.name: f.default for part in (self.sampler, self.objective) for f in fields(part)}


METHODS: Mapping[str, Method] = {
    m.name: m
    for m in (
        Method("rns", UniformSampler, "uniform negatives", "Rendle et al. 2009"),
        Method("pns", PopularitySampler, "negatives ∝ popularity^0.75", "Mikolov et al. 2013"),
        Method("dns", DynamicSampler, "the hardest of a few random negatives", "Zhang et al. 2013"),
        Method("fairstatic", GroupSampler, "negatives by group shares, hot and cold", "Chen et al. 2023"),
        Method(
            "ips-cn",
            UniformSampler,
            "positives weigh by clipped inverse popularity",
            "Gruson et al. 2019",
            IPS,
        ),
        Method("samreg", BalancedSampler, "balanced pairs, popularity decorrelated", "Boratto et al. 2021", Reg),
        Method("macr", UniformSampler, "an item's own pull is learned and taken out", "Wei et al. 2021", MACR),
        Method("cause", UniformSampler, "a sample even over items steers", "Bonner & Vasile 2018", CausE),
        Method("bc-loss", UniformSampler, "margins where popularity predicts badly", "Zhang et al. 2022", BCLoss),
        Method("auc-ns", AUCSampler, "the negative that most raises the partial AUC", "Liu et al. 2023"),
    )
}


@dataclass(frozen=True)
class Contender:
    """A method as asked for: its label, and sampler and objective with all parameters filled in."""

    label: str
    method: str
    sampler: Sampler
    objective: Objective = BPR()  # noqa: RUF009  (frozen and without parameters)


def contender(text: str, shared: Mapping[str, Any] | None = None) -> Contender:
    """Parse `name:key=value:key=value`. `shared` are values for every method that knows the key.

    `name@other` is the objective of one method with the negatives of another.

    >>> contender("dns:candidates=2").sampler
    DynamicSampler(candidates=2)
    >>> contender("ips-cn@dns:smoothing=0.5:candidates=3")
    ... # doctest: +NORMALIZE_WHITESPACE
    Contender(label='ips-cn@dns:smoothing=0.5:candidates=3', method='ips-cn@dns',
              sampler=DynamicSampler(candidates=3), objective=IPS(smoothing=0.5))
    """
    asked = text.strip().partition(":")[0]
    method = named(asked)
    name, values = assigned(text, {asked: method}, shared)
    with wrong_types_told(text, values):
        return Contender(
            text.strip(),
            name,
            method.sampler(**_of(method.sampler, values)),
            method.objective(**_of(method.objective, values)),
        )


def trained_method(asked: str | Sampler) -> Contender:
    """A method by its text, or a sampler with the usual objective."""
    return contender(asked) if isinstance(asked, str) else Contender(label_of(asked), "", asked)


def named(name: str) -> Method:
    """A method by name; `name@other` is the objective of one with the sampler of the other."""
    objective, at, sampler = name.partition("@")
    for part in (objective, sampler) if at else (objective,):
        if part not in METHODS:
            raise unknown("method", part, METHODS)
    if not at:
        return METHODS[name]
    first, second = METHODS[objective], METHODS[sampler]
    if second.objective is not BPR and second.sampler is METHODS["rns"].sampler:
        raise InputError(f"'{name}': {sampler} is an objective with plain random negatives; write @rns.")
    summary = f"{first.summary}; {second.summary}"
    return Method(name, second.sampler, summary, f"{first.source}; {second.source}", first.objective)


class Parameterised(Protocol):
    """A line of a registry, of methods or of anything else that is asked for by name."""

    def parameters(self) -> dict[str, Any]: ...


def assigned(
    text: str, registry: Mapping[str, Parameterised], shared: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """Read `name:key=value:key=value`: the name, which the registry has, and values that its line knows."""
    name, *assignments = text.strip().split(":")
    if name not in registry:
        raise unknown("method", name, registry)
    known = registry[name].parameters()
    values = {key: value for key, value in (shared or {}).items() if key in known and value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"'{text}': parameters are written name:key=value, but '{assignment}' has no '='.")
        if key not in known:
            raise (
                unknown(f"parameter of '{name}'", key, known)
                if known
                else InputError(f"method '{name}' has no parameters, but '{key}' was given.")
            )
        values[key] = parse_value(key, value)
    return name, values


@contextmanager
def wrong_types_told(text: str, values: Mapping[str, Any]) -> Iterator[None]:
    """A text where a number belongs is a person's mistake, whichever comparison it trips."""
    try:
        yield
    except TypeError:
        words = [f"{key}={value}" for key, value in values.items() if isinstance(value, str)]
        raise InputError(f"'{text}': {', '.join(words) or 'a value'} is not a number.") from None


def _of(part: type[Sampler] | type[Objective], values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: values[f.name] for f in fields(part) if f.name in values}


def parse_value(key: str, text: str) -> Any:
    """A number or truth value where it reads as one, else the text itself ("auto", "exact")."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def label_of(sampler: Sampler, objective: Objective | None = None) -> str:
    """The method's name for a sampler and an objective, with the parameters that differ from its defaults."""
    objective = objective or BPR()
    for method in METHODS.values():
        if type(sampler) is method.sampler and type(objective) is method.objective:
            chosen = {f.name: getattr(part, f.name) for part in (sampler, objective) for f in fields(part)}
            changed = [
                f"{name}={chosen[name]}"
                for name, default in method.parameters().items()
                if chosen[name] != default and name != "groups"
            ]
            return ":".join([method.name, *changed])
    return f"{type(sampler).__name__} with {type(objective).__name__}"
