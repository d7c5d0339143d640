"""The one registry of training methods: a name → a sampler, its defaults, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from evenhand.errors import InputError, unknown
from evenhand.samplers import (
    AUCSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)


@dataclass(frozen=True)
class Method:
    """A row of a comparison table."""

    name: str
    sampler: type[Sampler]
    summary: str
    source: str

    def parameters(self) -> dict[str, Any]:
        """Parameter names and their defaults."""
        return {f.name: f.default for f in fields(self.sampler)}


METHODS: Mapping[str, Method] = {
    m.name: m
    for m in (
        Method("rns", UniformSampler, "uniform negatives", "Rendle et al. 2009"),
        Method("pns", PopularitySampler, "negatives ∝ popularity^0.75", "Mikolov et al. 2013"),
        Method("dns", DynamicSampler, "the hardest of a few random negatives", "Zhang et al. 2013"),
        Method("fairstatic", GroupSampler, "negatives by group shares, hot and cold", "Chen et al. 2023"),
        Method("auc-ns", AUCSampler, "the negative that most raises the partial AUC", "Liu et al. 2023"),
    )
}


@dataclass(frozen=True)
class Contender:
    """A method as asked for: its label, and the sampler with all parameters filled in."""

    label: str
    method: str
    sampler: Sampler


def contender(text: str, shared: Mapping[str, Any] | None = None) -> Contender:
    """Parse `name:key=value:key=value`. `shared` are values for every method that knows the key.

    >>> contender("dns:candidates=2").sampler
    DynamicSampler(candidates=2)
    """
    name, *assignments = text.strip().split(":")
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    method = METHODS[name]
    known = method.parameters()
    values = {key: value for key, value in (shared or {}).items() if key in known and value is not None}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(
                f"'{text}': parameters are written name:key=value, but '{assignment}' has no '='."
            )
        if key not in known:
            raise (
                unknown(f"parameter of '{name}'", key, known)
                if known
                else InputError(f"method '{name}' has no parameters, but '{key}' was given.")
            )
        values[key] = parse_value(key, value)
    try:
        return Contender(text.strip(), name, method.sampler(**values))
    except TypeError:
        words = [f"{key}={value}" for key, value in values.items() if isinstance(value, str)]
        raise InputError(f"'{text}': {', '.join(words) or 'a value'} is not a number.") from None


def parse_value(key: str, text: str) -> Any:
    """A number where it reads as one, else the text itself ("auto", "exact")."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def label_of(sampler: Sampler) -> str:
    """The method's name for a sampler object, with the parameters that differ from its defaults."""
    for method in METHODS.values():
        if type(sampler) is method.sampler:
            changed = [
                f"{name}={getattr(sampler, name)}"
                for name, default in method.parameters().items()
                if getattr(sampler, name) != default and name != "groups"
            ]
            return ":".join([method.name, *changed])
    return type(sampler).__name__


def described(sampler: Sampler) -> dict[str, Any]:
    """A sampler as JSON values; `from_description` makes it again."""
    name = next((m.name for m in METHODS.values() if type(sampler) is m.sampler), type(sampler).__name__)
    return {"method": name, "parameters": {f.name: getattr(sampler, f.name) for f in fields(sampler)}}


def from_description(description: Mapping[str, Any]) -> Sampler:
    """The sampler that `described` wrote down."""
    name = description["method"]
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    parameters = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description["parameters"].items()
    }
    return METHODS[name].sampler(**parameters)
