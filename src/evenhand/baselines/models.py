"""Baselines as models: fitted and judged like a trained method, and kept in the same kind of folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from evenhand.baselines import BASELINES
from evenhand.baselines.base import Baseline
from evenhand.baselines.run import BaselineFit, challenger, fit_baseline
from evenhand.data.describe import fingerprint
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, share_vocabulary
from evenhand.metrics.statistics import summarise
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.training.run import seed_numbers, versions
from evenhand.training.settings import ProtocolName, resolve_device
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch


def fit_baseline_model(
    split: Split,
    method: str | Baseline,
    seeds: int | Sequence[int] = 3,
    *,
    protocol: ProtocolName = "honest",
    device: str = "auto",
    hot: str | None = None,
    ks: tuple[int, ...] = (5, 10, 20),
    on_step: OnEpoch | None = None,
) -> tuple[Model, BaselineFit]:
    """A baseline as a model, with its results: fitted on train, its seed chosen on validation, judged on test.

    What does not depend on a seed is fitted once, whatever `seeds` says.
    """
    one = challenger(method)
    where, numbers, rule = resolve_device(device), seed_numbers(seeds), HotRule.parse(hot or protocol)
    found = fit_baseline(split, one.baseline, numbers, protocol, where, rule.mask(split), ks, on_step)
    model = _stacked(found, numbers, found.known)
    info = {
        **one.baseline.info,
        "method": one.label,
        "protocol": protocol,
        "split": split.description,
        "hot": rule.describe(),
        "fingerprint": {name: fingerprint(part) for name, part in split.parts().items()},
        "versions": versions(where),
    }
    metrics = {
        str(k): {name: summarise([r.metrics[name] for r in results]).to_json() for name in results[0].metrics}
        for k, results in found.results.items()
    }
    return model.having(info=info, metrics=metrics), found


def refit_baseline(model: Model, split: Split, *, device: str = "auto") -> Model:
    """A model for production: the baseline of this one fitted on every part, with the seed that recommends."""
    everything = split.train.union(split.validation, split.test)
    fitted = _baseline_of(model).fit(everything, model.seeds[model.best], resolve_device(device))
    info = {**model.info, "split": f"{split.description}; refitted on all parts"}
    return fitted.model().having(info=info)


def update_baseline(model: Model, new: Interactions, *, device: str = "auto") -> tuple[Model, tuple[str, ...]]:
    """The baseline of a model fitted anew, on what the model knew and on `new`; with notes.

    Nothing has to be carried over: a baseline depends on its pairs, and on its seeds, alone.
    """
    baseline = _baseline_of(model)
    parts, notes = share_vocabulary({"model": model.known, "new": new})
    known, newer = parts["model"], parts["new"]
    if known.contains(newer.users, newer.items).all():
        raise InputError("the new data holds no pair that the model does not know already.")
    everything, where = known.union(newer), resolve_device(device)
    fitted = tuple(baseline.fit(everything, seed, where) for seed in model.seeds)
    found = BaselineFit(fitted, everything, model.best, {}, None, 0.0, notes)
    info = {**model.info, "split": f"an update with {len(everything) - len(known):,} new pairs"}
    return _stacked(found, model.seeds, everything).having(info=info), notes


def is_baseline_model(model: Model) -> bool:
    """Whether a baseline made this model, so that it can be fitted anew from its pairs."""
    return "rival" in model.info


def _baseline_of(model: Model) -> Baseline:
    try:
        values: dict[str, Any] = dict(model.info["rival"])
        name = values.pop("name", None)
        if name not in BASELINES:
            raise InputError(f"the model was made by '{name}', which is no baseline that evenhand knows.")
        return BASELINES[name].baseline(**values)
    except InputError:
        raise
    except (TypeError, ValueError) as problem:
        raise InputError("the model does not say how it was made, so it cannot be fitted anew.") from problem


def _stacked(found: BaselineFit, seeds: Sequence[int], known: Interactions) -> Model:
    """All seeds in one model; what does not depend on a seed has one."""
    vectors = found.vectors
    if vectors is None:
        return found.fitted[found.best].model(known).having(seeds=(seeds[found.best],))
    users, items = (side.to(torch.float32) for side in vectors)
    return FactorModel(users, items, known, tuple(seeds), best=found.best)
