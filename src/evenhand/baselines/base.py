"""What a baseline is: a few checked parameters that, fitted to pairs, give a model.

A new one is a frozen dataclass with `fit_pairs`, a line of the registry (`evenhand.methods`) and ranges for a search.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch

from evenhand.data.describe import fingerprint
from evenhand.data.interactions import Interactions, check_times
from evenhand.data.splits import Split, share_vocabulary
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.models.item_weights import MOST_RECENCY, ItemTable, ItemWeightModel
from evenhand.training.method import PLAIN, Conditions, Fit, Method, RunOptions, metrics_json
from evenhand.training.run import versions
from evenhand.training.settings import resolve_device
from evenhand.utils.errors import InputError
from evenhand.utils.progress import working_time
from evenhand.utils.text import one_line

LARGEST = 10**9
"""Parameters beyond this are mistakes, and leave 32 bits when they are multiplied."""


@dataclass(frozen=True)
class Baseline(Method):
    """What a practitioner would pick instead. Subclasses add parameters and check them in `__post_init__`."""

    seeded: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> Model:
        """Learn from the pairs of `train`; ratings are not looked at. Tensors may stay on the device."""

    def settle(
        self, train: Interactions, held: Interactions | None, seed: int, device: torch.device, run: RunOptions = PLAIN
    ) -> tuple[Model, Baseline]:
        """The same, for one that has something to choose: on the pairs `held`, if there are any, else inside train.

        Returns the model, and the method that makes it again with nothing left to choose.
        """
        return self.fit_pairs(train, seed, device), self

    def description(self) -> dict[str, Any]:
        # "rival" is the name of the key in model folders, also those from before.
        return {"method": self.label, "rival": {"name": self.name, **self.parameters()}}

    def item_model(self, train: Interactions, table: ItemTable) -> ItemWeightModel:
        """A model whose users are what they interacted with, and whose items have weights for each other."""
        recency = float(getattr(self, "recency", 0))
        if recency:
            check_times(train, f"the recency of {self.name}")
        return ItemWeightModel(table, known=train, seen=train, info=self.description(), recency=recency)

    # ---- the contract

    def fit_under(self, conditions: Conditions, run: RunOptions = PLAIN) -> Fit:
        """Fitted to train alone; a run that was interrupted begins again."""
        split, seeds = conditions.split, conditions.seeds if self.seeded else conditions.seeds[:1]
        began = working_time()
        settled = [self.settle(split.train, split.validation, seed, conditions.device, run) for seed in seeds]
        models = [model for model, _ in settled]
        if conditions.device.type == "cuda":
            torch.cuda.synchronize(conditions.device)
        seconds = working_time() - began
        scorers = [one.scorer(one.best) for one in models]
        validation, results = conditions.validated(scorers), conditions.measured(scorers)
        models = [one.on_cpu() for one in models]
        best = 0 if validation is None else int(np.argmax(validation))
        model = stacked(models, seeds, best)
        info = {
            **model.info,
            "protocol": conditions.protocol,
            "split": split.description,
            "hot": conditions.hot.describe(),
            "fingerprint": {name: fingerprint(part) for name, part in split.parts().items()},
            "versions": versions(conditions.device),
        }
        per_seed = () if len(model.seeds) == len(models) else tuple(models)
        model = model.having(info=info, metrics=metrics_json(results), known=split.consumed)
        again = settled[best][1]
        users, there = (model.info.get("settled_on", {}).get(name, 0) for name in ("users", "of"))
        notes = split.notes
        if users < there:
            said = f"The shares of {model.info['method']} were found on a sample of {users:,} of {there:,} users."
            notes = (*notes, said)
        return Fit(model, results, validation, seconds=seconds, notes=notes, per_seed=per_seed, again=again)

    def refit(self, fit: Fit, split: Split, *, device: str = "auto", run: RunOptions = PLAIN) -> Model:
        everything, old = split.everything, fit.model
        again = cast(Baseline, fit.again or self)
        model, _ = again.settle(everything, None, old.seeds[old.best], resolve_device(device), run)
        info = {**old.info, "split": f"{split.description}; refitted on all parts"}
        return model.on_cpu().having(info=info)

    def update(
        self, model: Model, new: Interactions, *, epochs: int | None = None, device: str = "auto",
        run: RunOptions = PLAIN,
    ) -> Fit:  # fmt: skip
        """Fitted again, on what the model knew and on `new`: nothing has to be carried over."""
        if epochs is not None:
            raise InputError(f"--epochs has no effect on {self.label}; leave it out.")
        parts, notes = share_vocabulary({"model": model.known, "new": new})
        known, newer = parts["model"], parts["new"]
        if known.contains(newer.users, newer.items).all():
            raise InputError("the new data holds no pair that the model does not know already.")
        everything, where = known.union(newer), resolve_device(device)
        models = [self.settle(everything, None, seed, where, run)[0].on_cpu() for seed in model.seeds]
        info = {
            **model.info,
            "split": f"an update with {len(everything) - len(known):,} new pairs",
            "fingerprint": {"train": fingerprint(everything)},
            "versions": versions(where),
        }
        found = stacked(models, model.seeds, model.best).having(info=info, known=everything)
        return Fit(found, {}, None, notes=notes)

    def explain(self, conditions: Conditions) -> str:
        return f"{self.label}: fitted on train once; it is not trained in epochs"


def stacked(models: Sequence[Model], seeds: Sequence[int], best: int) -> Model:
    """All seeds in one model where that can hold them, as vectors can; else the best one."""
    vectors = [one.vectors for one in models if isinstance(one, FactorModel)]
    if len(vectors) < len(models):
        return models[best].having(seeds=(seeds[best],))
    users, items = (torch.cat([pair[side] for pair in vectors]).float() for side in (0, 1))
    return models[best].having(user_vectors=users, item_vectors=items, seeds=tuple(seeds), best=best)


@contextmanager
def solvable(baseline: Baseline) -> Iterator[None]:
    """Equations without a solution within the digits there are come of parameters that are no good."""
    try:
        yield
    except torch.linalg.LinAlgError as problem:  # type: ignore[attr-defined]
        raise InputError(f"'{baseline.label}' has no solution on this data; raise l2.") from problem


def check_integer(name: str, value: Any, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value}.")
    _check_size(name, value)


def check_number(name: str, value: Any, *, zero: bool) -> None:
    """A finite number, positive or (with `zero`) at least 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value < math.inf
    if not is_number or not value >= 0 or (value == 0 and not zero):
        raise InputError(f"{name} must be a {'number of at least 0' if zero else 'positive number'}, not {value}.")
    _check_size(name, value)


def check_recency(value: Any) -> None:
    check_number("recency", value, zero=True)
    if value > MOST_RECENCY:
        raise InputError(f"recency may be up to {MOST_RECENCY}, not {one_line(value, 30)}.")


def _check_size(name: str, value: float) -> None:
    if value > LARGEST:
        raise InputError(f"{name} may be up to {LARGEST:,}, not {one_line(value, 30)}.")
