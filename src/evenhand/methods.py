"""The one registry: every method by name, what it does, where it comes from, and how a text becomes one.

Adding a method is one file, one line in `REGISTRY`, and its ranges for a search. `name:key=value` is parsed here, once;
whatever comes after works with `Method` values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand.baselines import ALS, EASE, GFCF, Baseline, Blend, GivenVectors, ItemKNN, Popular, Recipe
from evenhand.baselines.recipe import FAST
from evenhand.encoders import MF, Encoder, encoder_named
from evenhand.models.base import Model
from evenhand.objectives import BPR, BSL, IPS, MACR, PSL, AUCSoftmax, BCLoss, CausE, Objective, Reg, SLatK, Softmax
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.training.method import Method, default_of, own_fields, wrong_types_reported
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.utils.errors import InputError, unknown

AnyMethod = str | Method | Sampler
"""What stands for a method in the library's functions: its text, a method, or a sampler with the usual loss."""


@dataclass(frozen=True)
class Entry:
    """A line of the registry: the dataclasses that a method is made of, and how it is made of their values."""

    name: str
    parts: tuple[type, ...]
    summary: str
    source: str
    make: Callable[[Mapping[str, Any]], Method] | None = None
    """For baselines; a trained method is made of its sampler and its objective."""

    def parameters(self) -> dict[str, Any]:
        """Parameter names and their defaults, those of a blend as they are written."""
        if self.name == "blend":
            return Blend().parameters()
        return {f.name: default_of(f) for part in self.parts for f in own_fields(part)}

    @property
    def is_trained(self) -> bool:
        """Whether it is trained in epochs, so that encoder, settings and the options of samplers concern it."""
        return self.make is None

    @property
    def sampler(self) -> type[Sampler]:
        return self.parts[0]

    @property
    def objective(self) -> type[Objective]:
        return self.parts[1]

    def method(self, values: Mapping[str, Any], encoder: Encoder, settings: Settings, asked: str | None) -> Method:
        if self.make is not None:
            return replace(self.make(values), asked=asked)
        sampler, objective = (
            part(**{f.name: values[f.name] for f in own_fields(part) if f.name in values}) for part in self.parts
        )
        return Trained(sampler, objective, encoder, settings, self.name, asked=asked)


def _trained(name: str, sampler: type[Sampler], summary: str, source: str, objective: type[Objective] = BPR) -> Entry:
    return Entry(name, (sampler, objective), summary, source)


def _baseline(name: str, baseline: type[Baseline], summary: str, source: str) -> Entry:
    return Entry(name, (baseline,), summary, source, lambda values: baseline(**values))


def _blend(values: Mapping[str, Any]) -> Blend:
    """From `parts=ease+als`, `shares=0.6+0.4` and `encoder=mf`."""
    given: dict[str, Any] = dict(values)
    if "parts" in given:
        given["parts"] = tuple(_blend_part(text.strip()) for text in str(given["parts"]).split("+"))
    if (encoder := given.pop("encoder", "auto")) != "auto":
        given["parts"] = tuple(part.with_encoder(encoder_named(encoder)) for part in given.get("parts", Blend().parts))
    if given.get("shares", "auto") != "auto":
        try:
            given["shares"] = tuple(float(text) for text in str(given["shares"]).split("+"))
        except ValueError:
            example = "+".join(["1"] * len(given.get("parts", Blend().parts)))
            said = f"shares are one number a part, joined by + as in {example}, not '{given['shares']}'."
            raise InputError(said) from None
    return Blend(**given)


def _blend_part(name: str) -> Method:
    if name in REGISTRY and name != "blend":
        return parse(name)
    if Path(name).expanduser().exists():
        return GivenVectors(name)
    raise unknown("part of a blend", name, [one for one in REGISTRY if one != "blend"])


REGISTRY: Mapping[str, Entry] = {
    one.name: one
    for one in (
        _trained("rns", UniformSampler, "uniform negatives", "Rendle et al. 2009"),
        _trained("pns", PopularitySampler, "negatives ∝ popularity^0.75", "Mikolov et al. 2013"),
        _trained("dns", DynamicSampler, "the hardest of a few random negatives", "Zhang et al. 2013"),
        _trained("fairstatic", GroupSampler, "negatives by group shares, hot and cold", "Chen et al. 2023"),
        _trained("ips-cn", UniformSampler, "positives weigh by clipped inverse popularity", "Gruson et al. 2019", IPS),
        _trained("samreg", BalancedSampler, "balanced pairs, popularity decorrelated", "Boratto et al. 2021", Reg),
        _trained("macr", UniformSampler, "an item's own pull is learned and taken out", "Wei et al. 2021", MACR),
        _trained("cause", UniformSampler, "a sample even over items steers", "Bonner & Vasile 2018", CausE),
        _trained("bc-loss", UniformSampler, "margins where popularity predicts badly", "Zhang et al. 2022", BCLoss),
        _trained("softmax", UniformSampler, "a positive against many shared negatives", "Wu et al. 2024", Softmax),
        _trained("psl", UniformSampler, "softmax with gentler activations", "Yang et al. 2024", PSL),
        _trained("slatk", UniformSampler, "softmax for the top k", "Yang et al. 2025", SLatK),
        _trained("bsl", UniformSampler, "softmax with a weight on the negatives", "Wu et al. 2024", BSL),
        _trained("auc-softmax", UniformSampler, "softmax over likely true negatives", "evenhand", AUCSoftmax),
        _trained("auc-ns", AUCSampler, "the negative that most raises the partial AUC", "Liu et al. 2023"),
        _baseline("popular", Popular, "the items that most users interacted with, for everyone", "–"),
        _baseline("itemknn", ItemKNN, "items like those the user interacted with", "Sarwar et al. 2001"),
        _baseline("gfcf", GFCF, "two steps along the graph, and its smoothest directions", "Shen et al. 2021"),
        _baseline("ease", EASE, "a linear item-to-item model in closed form", "Steck 2019"),
        _baseline("als", ALS, "matrix factorisation over all cells", "Hu et al. 2008"),
        Entry("blend", (Blend,), "ease, als and auc-ns, each user's scores added up", "evenhand", _blend),
        _baseline("recipe", Recipe, "the best blend that a budget of time allows", "evenhand"),
    )
}
METHODS: Mapping[str, Entry] = {name: one for name, one in REGISTRY.items() if one.is_trained}
BASELINES: Mapping[str, Entry] = {name: one for name, one in REGISTRY.items() if not one.is_trained}
RECIPES = {"best": "recipe", "fast": f"recipe:budget={FAST:g}"}
"""Presets that need no tuning: the most accurate we know, and the first answer."""


def parse(
    text: str,
    encoder: str | Encoder = "mf",
    settings: Settings | None = None,
    *,
    objective: Objective | None = None,
    shared: Mapping[str, Any] | None = None,
) -> Method:
    """`name:key=value:key=value` as a method.

    `name@other` is the objective of one method with the negatives of another. `shared` are values for every trained
    method that knows the key; `encoder` and `settings` are for what is trained.

    >>> parse("dns:candidates=2").sampler, parse("ease:l2=300")
    (DynamicSampler(candidates=2), EASE(l2=300, balance=0, max_items='all'))
    """
    asked = text.strip()
    entry = registered(asked.partition(":")[0])
    values = {key: value for key, value in (shared or {}).items() if value is not None} if entry.is_trained else {}
    values |= _assigned(asked, entry)
    with wrong_types_reported(asked, values):
        found = entry.method(values, encoder_named(encoder), settings or Settings(), asked)
    return found if objective is None else with_objective(found, objective)


def method_of(
    asked: AnyMethod,
    encoder: str | Encoder = "mf",
    settings: Settings | None = None,
    objective: Objective | None = None,
) -> Method:
    """A method by its text, by a sampler (of evenhand or not), or a method itself, which has its own encoder."""
    if isinstance(asked, str):
        return parse(asked, encoder, settings, objective=objective)
    if isinstance(asked, Sampler):
        return trained(asked, objective or BPR(), encoder_named(encoder), settings or Settings())
    if not isinstance(asked, Method):
        raise InputError(f"a method is a name, a sampler or a baseline, not {type(asked).__name__}.")
    if objective is not None:
        return with_objective(asked, objective)
    if isinstance(asked, Trained) and not asked.registered:
        return replace(asked, registered=trained(asked.sampler, asked.objective).registered)
    return asked


def trained(
    sampler: Sampler,
    objective: Objective | None = None,
    encoder: Encoder = MF(),  # noqa: B008  (frozen)
    settings: Settings = Settings(),  # noqa: B008
) -> Trained:
    """Any sampler with any objective, under the name that the registry has for the two.

    >>> trained(AUCSampler(alpha=0.6)).label
    'auc-ns:alpha=0.6'
    """
    objective = objective or BPR()
    kinds = (type(sampler), type(objective))
    name = next((one.name for one in METHODS.values() if one.parts == kinds), None)
    if name is None:
        # The objective of one method and the sampler of another, if the registry has both.
        loss = next((one.name for one in METHODS.values() if one.objective is kinds[1]), None)
        drawn = next((one.name for one in METHODS.values() if one.parts == (kinds[0], BPR)), None)
        name = f"{loss}@{drawn}" if loss and drawn else ""
    return Trained(sampler, objective, encoder, settings, name)


def with_objective(method: Method, objective: Objective) -> Method:
    if not isinstance(method, Trained):
        raise InputError(f"'{method.label}' is not trained, so it takes no objective.")
    return trained(method.sampler, objective, method.encoder, method.settings)


def registered(name: str) -> Entry:
    """An entry by name; `name@other` is the objective of one with the sampler of the other."""
    names = name.split("@")
    if "@" in name and (baselines := [one for one in names if one in BASELINES]):
        raise InputError(f"'{name}': {baselines[0]} is a baseline, which has no negatives to choose.")
    for one in names if len(names) == 2 else (name,):
        if one not in REGISTRY:
            raise unknown("method", one, REGISTRY)
    if len(names) == 1:
        return REGISTRY[name]
    loss, drawn = (METHODS[one] for one in names)
    if drawn.objective is not BPR and drawn.sampler is UniformSampler:
        raise InputError(f"'{name}': {drawn.name} is an objective with plain random negatives; write @rns.")
    summary, source = f"{loss.summary}; {drawn.summary}", f"{loss.source}; {drawn.source}"
    return Entry(name, (drawn.sampler, loss.objective), summary, source)


def with_negatives(texts: Sequence[str], sampler: str) -> list[str]:
    """Every trained method's text with the negatives of another: `ips-cn` as `ips-cn@dns`."""
    drawn = [one for one in METHODS.values() if one.objective is BPR or one.sampler is not UniformSampler]
    if sampler not in [one.name for one in drawn]:
        raise unknown("sampler", sampler, [one.name for one in drawn])
    found = [_drawing(text.strip(), sampler) for text in texts if text.strip()]
    alike: dict[Any, str] = {}
    for one in (parse(text) for text in found if registered(text.partition(":")[0]).is_trained):
        first = alike.setdefault(tuple(one.components().values()), one.label)
        if first != one.label:
            raise InputError(f"with --sampler {sampler}, {first} and {one.label} are the same; name one of them.")
    if found and not alike:
        raise InputError(f"--sampler has no effect on {', '.join(found)}; leave it out.")
    return found


def _drawing(text: str, sampler: str) -> str:
    name, colon, parameters = text.partition(":")
    objective, at, own = name.partition("@")
    if at and own != sampler:
        raise InputError(f"'{name}' and --sampler {sampler} name two samplers; leave one of them out.")
    known = METHODS.get(objective)
    if at or known is None or known.sampler is METHODS[sampler].sampler:
        return text
    return f"{objective}@{sampler}{colon}{parameters}"


def on_top_of(base: str, method: str | None, share: float | None, encoder: str = "mf") -> Blend:
    """A blend of a trained method with a baseline, or with vectors from elsewhere, which count by `share`."""
    method = method or "auc-ns"
    if method not in METHODS:
        raise InputError(f"--base takes a training method by its name alone, not '{method}'.")
    known = [name for name in BASELINES if name != "blend"]
    if base not in known and not Path(base).expanduser().exists():
        raise unknown("base", base, known)
    if share is not None and not 0 < share < 1:
        raise InputError(f"--base-share lies between 0 and 1, not {share:g}.")
    part: Method = parse(base) if base in known else GivenVectors(base)
    if share is None and base not in known:
        share = 0.5
    shares: Any = "auto" if share is None else (share, round(1 - share, 12))
    return Blend((part, parse(method, encoder)), shares)


def recipe_text(recipe: str, budget: str | None = None, aim: str | None = None, goal: str | None = None) -> str:
    """A recipe by its name and options, as a method's text.

    >>> recipe_text("best", "10m", aim="items")
    'recipe:budget=600:aim=items'
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    text = RECIPES[recipe] if budget is None else f"recipe:budget={seconds_of(budget):g}"
    given = (("aim", aim), ("goal", goal))
    return text + "".join(f":{name}={value}" for name, value in given if value is not None)


def seconds_of(text: str) -> float:
    """`90`, `90s`, `10m` or `1.5h` as seconds."""
    units = {"s": 1, "m": 60, "h": 3600}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise InputError(f"a budget is a time such as 90s, 10m or 1h, not '{text}'.")
    return seconds


def made_by(model: Model) -> Method:
    """The method that made a model, as its folder describes it."""
    return from_info(model.info)


def from_info(info: Mapping[str, Any]) -> Method:
    """The method that `description` wrote down."""
    if "rival" not in info:
        found = Trained.from_description(info)
        return replace(found, registered=trained(found.sampler, found.objective).registered)
    try:
        values: dict[str, Any] = dict(info["rival"])
        name, asked = values.pop("name", None), info.get("method")
        if name == "vectors":
            return GivenVectors(**values)
        if name not in BASELINES:
            raise InputError(f"the model was made by '{name}', which is no baseline that evenhand knows.")
        if name == "blend" and not isinstance(values.get("parts", ""), str):
            shares = values.get("shares", "auto")
            values["parts"] = tuple(from_info(part) for part in values["parts"])
            values["shares"] = shares if isinstance(shares, str) else tuple(shares)
            values.pop("encoder", None)  # of blends of version 0.1
            return Blend(**values, asked=asked if isinstance(asked, str) else None)
        return BASELINES[name].method(values, MF(), Settings(), asked if isinstance(asked, str) else None)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise InputError("the model does not say how it was made, so it cannot be fitted again.") from problem


def _assigned(text: str, entry: Entry) -> dict[str, Any]:
    """The values of `name:key=value:key=value`, whose keys the entry must know."""
    known, values = entry.parameters(), {}
    if entry.name == "blend":
        known = {**known, "encoder": "mf"}  # of the trained parts
    for assignment in text.split(":")[1:]:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise InputError(f"'{text}': parameters are written name:key=value, but '{assignment}' has no '='.")
        if key not in known:
            raise (
                unknown(f"parameter of '{entry.name}'", key, known)
                if known
                else InputError(f"method '{entry.name}' has no parameters, but '{key}' was given.")
            )
        values[key] = parse_value(value)
    return values


def parse_value(text: str) -> Any:
    """A number or truth value where it reads as one, else the text itself ("auto", "exact")."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
