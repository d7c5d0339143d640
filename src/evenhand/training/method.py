"""The one contract: a `Method` is fitted to a split and gives a `Fit`, which holds a `Model`.

Whatever can be asked for by name is a method: a trained one (encoder × sampler × objective), a baseline, a blend.
Commands, searches, blends, checkpoints and updates know nothing but what stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, SpreadSplit
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders import Encoder
from evenhand.metrics.lists import list_lengths
from evenhand.metrics.statistics import Summary, summarise
from evenhand.models.base import Model
from evenhand.models.topk import Score
from evenhand.training.early_stopping import STOPPING_K, evaluator_of
from evenhand.training.evaluation import Evaluator, Results, reported, users_within_reach
from evenhand.training.settings import ProtocolName, Resume, resolve_device
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.progress import OnEpoch, working_time

MOST_SEEDS = 10_000
_OWN = ("sampler", "objective", "baseline")
"""Parts whose parameters are written in a method's text; those of the others are options of the command line."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """What every method of a comparison shares: the split, the seeds, and how results are chosen and measured."""

    split: Split
    """Over several processes a `SpreadSplit`, which has all that training asks of one."""
    seeds: tuple[int, ...]
    protocol: ProtocolName
    k: tuple[int, ...]
    hot: HotRule
    device: torch.device

    @staticmethod
    def of(
        split: Split,
        seeds: int | Sequence[int] = 3,
        protocol: ProtocolName = "honest",
        k: int | Sequence[int] = (5, 10, 20),
        hot: str | HotRule | None = None,
        device: str | torch.device = "auto",
    ) -> Conditions:
        """Checked; under the paper's protocol, which has no validation part, that part joins train."""
        lengths = list_lengths(k)
        check_asked(split, protocol, lengths)
        numbers, where = seed_numbers(seeds), resolve_device(str(device))
        rule = hot if isinstance(hot, HotRule) else HotRule.parse(hot or protocol)
        held = 0 if split.validation is None else len(split.validation)
        if protocol == "paper" and held:
            note = f"The paper's protocol has no validation part: its {held:,} pairs joined train."
            split = Split(split.consumed, None, split.test, split.description, (*split.notes, note))
        elif not held and protocol == "honest":
            note = "There is no validation part, so nothing was chosen on validation."
            split = replace(split, notes=(*split.notes, note))
        users = split.test.active_users
        if protocol == "honest" and users > (sample := users_within_reach(split.test)):
            note = f"Test metrics are those of a sample of {sample:,} of {users:,} users, the same for every method."
            split = replace(split, notes=(*split.notes, note))
        return Conditions(split, numbers, protocol, lengths, rule, where)

    @cached_property
    def hot_items(self) -> np.ndarray:
        """bool [n_items], by `hot`."""
        return self.hot.mask(self.split)

    def measured(self, scorers: Sequence[Score], test: Interactions | None = None) -> Results:
        """Metrics on the test part, or another one, with what users already have left out; empty without one."""
        test = self.split.test if test is None else test
        if not len(test):
            return {}
        evaluator = Evaluator(test, self.split.consumed, self.hot_items, self.k, users_within_reach(test))
        return reported(evaluator.evaluate(scorers))

    def measured_model(self, model: Model) -> Results:
        """Metrics on the test part of the model's best replica; over several processes, of what each of them holds."""
        known: Any = model.known
        if not isinstance(known, SpreadLog):
            return self.measured([model.scorer(model.best)])
        split = SpreadSplit.of(self.split, known.world)
        users, items = (side[model.best : model.best + 1] for side in model.vectors)  # type: ignore[attr-defined]
        return reported(evaluator_of(split.test, split.consumed, self.hot_items, self.k)((users, items)))

    def validated(self, scorers: Sequence[Score]) -> tuple[float, ...] | None:
        """NDCG@10 on validation of each; None where nothing was held out for that."""
        held = self.split.validation
        if held is None or not len(held):
            return None
        k = min(STOPPING_K, self.split.n_items)
        scored = Evaluator(held, self.split.train, self.hot_items, (k,), users_within_reach(held)).evaluate(scorers)
        return tuple(one[k].mean("ndcg") for one in scored)


@dataclass(frozen=True)
class RunOptions:
    """How a fit reports its progress and survives an interruption."""

    on_epoch: OnEpoch | None = None
    """Called after each epoch or step."""
    checkpoints: Path | None = None
    """A folder for what is finished; a refit and an update go on where the same work was interrupted."""
    resume: Resume = False
    """Whether a fit goes on from the newest checkpoint there."""

    def within(self, name: str) -> RunOptions:
        """The same with a folder inside that one."""
        return replace(self, checkpoints=self.checkpoints and self.checkpoints / name)


PLAIN = RunOptions()


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted method: the model, with what a comparison needs beside it."""

    model: Model
    results: Results
    """Metrics on test: looked at once (honest), or at the best epochs (paper). Empty without a test part."""
    validation: tuple[float, ...] | None
    """Validation NDCG@10 of each seed; None where nothing was held out for that."""
    epochs: tuple[int, ...] = ()
    """The chosen epoch of each seed, counted from 1; empty for what is not trained in epochs."""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    per_seed: tuple[Model, ...] = ()
    """One model per seed, where `model` can hold only the best of them."""
    again: Method | None = None
    """The method with nothing left to choose, for a fit to everything; None: the method itself."""

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """One record per epoch."""
        return self.model.history

    @property
    def scorers(self) -> list[Score]:
        """What scores items for users by index, one per seed."""
        if self.per_seed:
            return [one.scorer(one.best) for one in self.per_seed]
        return [self.model.scorer(place) for place in range(len(self.model.seeds))]

    @property
    def vectors(self) -> tuple[Tensor, Tensor] | None:
        """[R, n_users, d] and [R, n_items, d], of models that are made of vectors."""
        return self.model.vectors if self.model.kind == "vectors" else None  # type: ignore[attr-defined]

    def at(self, k: int) -> dict[str, Summary]:
        """Every metric on test at one cutoff: `fit.at(10)["ndcg"].mean`."""
        if k not in self.results:
            known = ", ".join(map(str, self.results)) or "none"
            raise InputError(f"nothing was measured at k = {k}; there is {known}.")
        return summaries(self.results)[k]

    def lists(self, k: int) -> pa.Table:
        """The k best items of every user by the best seed, as a table."""
        return self.model.recommend(k=k)


@dataclass(frozen=True)
class Method(ABC):
    """What can be fitted to a split. Subclasses are frozen dataclasses that check their fields."""

    asked: str | None = field(default=None, kw_only=True, compare=False, repr=False)
    """The text that a person wrote for it, which stays its label whatever a search changes."""

    seeded: ClassVar[bool] = True
    """Whether two seeds give two results; what is deterministic is fitted once."""
    side_by_side: ClassVar[bool] = False
    """Whether seeds, and the trials of a search, can train as replicas of one run."""
    spreads: ClassVar[bool] = False
    """Whether several processes can fit it together."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As the registry calls it."""

    @property
    def label(self) -> str:
        """As it was asked for; else the name, with the parameters that differ from their defaults."""
        return self.asked or self.text(dict.fromkeys(self.named))

    @property
    def encoder_name(self) -> str | None:
        """The encoder of what is trained in epochs; None for the rest."""
        return None

    # ---- parameters

    def components(self) -> dict[str, Any]:
        """The dataclasses that its parameters belong to, by what they are."""
        return {"baseline": self}

    def parameters(self) -> dict[str, Any]:
        """Every parameter by name, with its present value."""
        return {f.name: getattr(part, f.name) for part in self.components().values() for f in own_fields(part)}

    @property
    def named(self) -> tuple[str, ...]:
        """Parameters named in its text; a search leaves them alone."""
        if self.asked is not None:
            return tuple(text.partition("=")[0] for text in self.asked.split(":")[1:])
        own = (part for kind, part in self.components().items() if kind in _OWN)
        return tuple(f.name for part in own for f in own_fields(part) if getattr(part, f.name) != default_of(f))

    def is_integer(self, name: str) -> bool:
        """Whether a parameter counts something."""
        types = {f.name: str(f.type) for part in self.components().values() for f in own_fields(part)}
        return types[name].startswith("int")

    def having(self, values: Mapping[str, Any]) -> Self:
        """The same with other values, checked; the label stays as it was asked for."""
        known = self.parameters()
        for name in values:
            if name not in known:
                raise unknown(f"parameter of '{self.label}'", name, known)
        with wrong_types_reported(self.label, values):
            return self._with({kind: _changed(part, values) for kind, part in self.components().items()})

    def _with(self, parts: Mapping[str, Any]) -> Self:
        found: Self = parts["baseline"]
        return found

    def text(self, names: Mapping[str, Any] | None = None) -> str:
        """The method with the values of these parameters and of `named`, as one would ask for it again."""
        values = self._values({*(names or {}), *self.named} - {"groups"}, own=True)
        return ":".join([self.name, *(f"{name}={value}" for name, value in values.items())])

    def flags(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """The same for encoder and settings, as options of the command line."""
        values = self._values(set(names), own=False)
        flags = {
            f"--{name.replace('_', '-')}": ",".join(map(str, value)) if isinstance(value, tuple) else value
            for name, value in values.items()
        }
        return flags if self.encoder_name in (None, "mf") else {"--encoder": self.encoder_name, **flags}

    def _values(self, names: set[str], own: bool) -> dict[str, Any]:
        groups = [part for kind, part in self.components().items() if (kind in _OWN) == own]
        here = {f.name for part in groups for f in own_fields(part)}
        return {name: value for name, value in self.parameters().items() if name in here & names}

    def with_encoder(self, encoder: Encoder) -> Self:
        """The same with another encoder, where it has one."""
        return self

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What a model folder says of it, in JSON values, so that a later version can make it again."""

    def configuration(self) -> dict[str, Any]:
        """Its parameters as the record of a comparison shows them."""
        return {"parameters": self.parameters()}

    def under(self, conditions: Conditions) -> Self:
        """With everything filled in that it leaves to the protocol, the encoder or the data."""
        return self

    def closed(self) -> Self:
        """With the usual values for what a fit would settle on validation, as a search has values of its own."""
        return self

    # ---- fitting

    def fit(
        self,
        split: Split,
        *,
        seeds: int | Sequence[int] = 3,
        protocol: ProtocolName = "honest",
        k: int | Sequence[int] = (5, 10, 20),
        hot: str | HotRule | None = None,
        device: str | torch.device = "auto",
        on_epoch: OnEpoch | None = None,
        checkpoints: Path | None = None,
        resume: Resume = False,
    ) -> Fit:
        """Fit to train, choose on validation, look at test once (or, in the paper's protocol, each epoch)."""
        conditions = Conditions.of(split, seeds, protocol, k, hot, device)
        return self.fit_under(conditions, RunOptions(on_epoch, checkpoints, resume))

    @abstractmethod
    def fit_under(self, conditions: Conditions, run: RunOptions = PLAIN) -> Fit:
        """The same under conditions that several methods share."""

    @abstractmethod
    def refit(self, fit: Fit, split: Split, *, device: str = "auto", run: RunOptions = PLAIN) -> Model:
        """A model for production: fitted to every part, as `fit` found it best, with the seed that recommends."""

    def for_production(self, fit: Fit, conditions: Conditions, run: RunOptions = PLAIN) -> Fit:
        """The same fitted to everything; a test part that was given stays out, and is measured with that model."""
        model = self.refit(fit, conditions.split, device=str(conditions.device), run=run.within("refit"))
        if conditions.split.how != "given" or not len(conditions.split.test):
            return replace(fit, model=model.having(metrics=fit.model.metrics))
        results = conditions.measured_model(model)
        return replace(fit, model=model.having(metrics=metrics_json(results)), results=results)

    @abstractmethod
    def update(
        self, model: Model, new: Interactions, *, epochs: int | None = None, device: str = "auto",
        run: RunOptions = PLAIN,
    ) -> Fit:  # fmt: skip
        """The method's `model`, made of what it knew and of `new`; new users and items join."""

    def work(self, train: Interactions) -> float:
        """Seconds of one core that a fit in closed form takes, roughly; measured at 800,000 pairs × 41,000 items."""
        return 0.0

    @abstractmethod
    def explain(self, conditions: Conditions) -> str:
        """What fitting it will take, in one line."""

    # ---- several at once

    def shape(self) -> Hashable | None:
        """Methods of equal shape train as replicas of one run; None: it trains alone."""
        return None

    def room_for(self, conditions: Conditions) -> int:
        """How many replicas memory has room for; at least one."""
        return 1

    @property
    def same_length(self) -> bool:
        """Whether all replicas of a run train equally long, so that none waits for another."""
        return False

    def fit_together(self, methods: Sequence[Self], conditions: Conditions, run: RunOptions = PLAIN) -> list[Fit]:
        """Fit methods of one shape, of which this is the first, with all seeds each; each as if it were alone."""
        (only,) = methods
        return [only.fit_under(conditions, run)]


def refitted_fit(method: Method, fit: Fit, conditions: Conditions, run: RunOptions = PLAIN) -> Fit:
    """The fit with every seed's model fitted again to train + validation as was found best, and evaluated on test.

    Validation values and chosen epochs stay those of the choice.
    """
    split, began = conditions.split, working_time()
    nothing = split.test.take(np.zeros(len(split.test), dtype=bool))
    known = replace(split, test=nothing)
    seeds = conditions.seeds if method.seeded else conditions.seeds[:1]
    models = []
    for place, seed in enumerate(seeds):
        # The model of this seed stands for the one that would recommend.
        one = fit.per_seed[place].having(seeds=(seed,)) if fit.per_seed else fit.model.having(best=place)
        own = RunOptions(checkpoints=run.within(f"refit-{seed}").checkpoints)
        models.append(method.refit(replace(fit, model=one), known, device=str(conditions.device), run=own))
    results = conditions.measured([one.scorer(one.best) for one in models])
    best = 0 if fit.validation is None else int(np.argmax(fit.validation))
    info = {"split": f"{split.description}; refitted on train and validation"}
    model = models[best].having(
        metrics=metrics_json(results), info={**fit.model.info, **info}, history=fit.model.history
    )
    seconds = fit.seconds + working_time() - began
    return replace(fit, model=model, results=results, seconds=seconds, per_seed=tuple(models))


def own_fields(part: Any) -> list[Any]:
    """The dataclass fields that are parameters."""
    return [f for f in fields(part) if f.name != "asked"]


def default_of(one: Any) -> Any:
    """The default of a dataclass field."""
    return one.default_factory() if callable(one.default_factory) else one.default


def summaries(results: Results) -> dict[int, dict[str, Summary]]:
    """k → metric → its mean and spread over the seeds."""
    return {
        k: {name: summarise([one.metrics[name] for one in found]) for name in found[0].metrics}
        for k, found in results.items()
    }


def metrics_json(results: Results) -> dict[str, Any]:
    """The same as a model folder writes it."""
    return {str(k): {name: one.to_json() for name, one in each.items()} for k, each in summaries(results).items()}


def check_asked(split: Split, protocol: ProtocolName, k: tuple[int, ...]) -> None:
    """Refuse what cannot be trained on or measured."""
    if not isinstance(split, Split | SpreadSplit):
        raise InputError(f"training needs a split, not {type(split).__name__}; make one with data.split().")
    if protocol not in ("honest", "paper"):
        raise unknown("protocol", protocol, ("honest", "paper"))
    # Without a test part, as in an update or a refit, no lists are evaluated.
    if (len(split.test) or protocol == "paper") and max(k) > split.n_items:
        raise InputError(f"k = {max(k)} is more than the catalogue's {split.n_items:,} items.")


def seed_numbers(seeds: int | Sequence[int], *, repeatable: bool = False) -> tuple[int, ...]:
    """A number of seeds means 0, 1, 2…; one may be repeated only where replicas differ otherwise."""
    if isinstance(seeds, int) and seeds > MOST_SEEDS:
        raise InputError(f"there may be up to {MOST_SEEDS:,} seeds.")
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers or (len(set(numbers)) != len(numbers) and not repeatable):
        raise InputError("seeds must be at least one, and all different.")
    return numbers


@contextmanager
def wrong_types_reported(text: str, values: Mapping[str, Any]) -> Iterator[None]:
    """A text where a number belongs is a person's mistake, whichever comparison it trips."""
    try:
        yield
    except TypeError:
        words = [f"{key}={value}" for key, value in values.items() if isinstance(value, str)]
        raise InputError(f"'{text}': {', '.join(words) or 'a value'} is not a number.") from None


def _changed(part: Any, values: Mapping[str, Any]) -> Any:
    own = {f.name: values[f.name] for f in own_fields(part) if f.name in values}
    return replace(part, **own) if own else part
