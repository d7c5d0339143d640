"""Methods that are trained in epochs: any encoder with any sampler and any objective."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import ENCODERS, MF, Encoder, describe_encoder
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.objectives import BPR, Objective
from evenhand.samplers import Sampler
from evenhand.samplers.auc import dkw_bound
from evenhand.training.memory_estimate import Work, work_of
from evenhand.training.method import Conditions, Fit, Method, metrics_json
from evenhand.training.run import refitted, train
from evenhand.training.settings import Settings
from evenhand.training.update import updated
from evenhand.utils.description import described, from_description
from evenhand.utils.errors import InputError
from evenhand.utils.memory import available_bytes, gigabytes
from evenhand.utils.progress import OnEpoch

_CONFIDENCE = 0.95
_USABLE = 0.5
"""The share of the free memory that a run of several trials may plan with."""


@dataclass(frozen=True)
class Trained(Method):
    """An encoder whose vectors are learned with the negatives of a sampler, by the loss of an objective."""

    sampler: Sampler
    objective: Objective = BPR()  # noqa: RUF009  (frozen)
    encoder: Encoder = MF()  # noqa: RUF009
    settings: Settings = Settings()  # noqa: RUF009
    registered: str = ""
    """Its name in the registry; empty for a sampler from elsewhere."""

    side_by_side: ClassVar[bool] = True

    @property
    def name(self) -> str:
        loss = "" if type(self.objective) is BPR else f" with {type(self.objective).__name__}"
        return self.registered or f"{type(self.sampler).__name__}{loss}"

    @property
    def encoder_name(self) -> str:
        return type(self.encoder).__name__.lower()

    def components(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("sampler", "objective", "encoder", "settings")}

    def having(self, values: Mapping[str, Any]) -> Self:
        """A weight decay takes the place of the L2 on a batch's rows."""
        return super().having({"l2": 0.0, **values} if values.get("weight_decay") else values)

    def _with(self, parts: Mapping[str, Any]) -> Self:
        return replace(self, **parts)

    def with_encoder(self, encoder: Encoder) -> Self:
        return replace(self, encoder=encoder)

    def description(self) -> dict[str, Any]:
        return {
            "encoder": describe_encoder(self.encoder),
            "method": self.label,
            "sampler": described(self.sampler),
            "objective": described(self.objective),
            "settings": asdict(self.settings),
        }

    @staticmethod
    def from_description(info: Mapping[str, Any]) -> Trained:
        """The method that made a model, from what its folder says."""
        try:
            values = dict(info["encoder"])
            encoder = ENCODERS[values.pop("name")](**values)
            if any(type(value) is not int for value in values.values()):
                raise TypeError("a size that is none")
            sampler = from_description(Sampler, info["sampler"])
            objective = from_description(Objective, info["objective"])
            known = {f.name for f in fields(Settings)}
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in info["settings"].items()
                if name in known
            }
            label = info["method"] if isinstance(info.get("method"), str) else None
            return Trained(sampler, objective, encoder, Settings(**given), asked=label)
        except InputError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise InputError("the model does not say how it was trained, so it cannot be updated.") from problem

    def configuration(self) -> dict[str, Any]:
        values = asdict(self.sampler)
        if values.get("groups") is not None:
            # A number for every item of the catalogue belongs in the file it came from.
            values["groups"] = {"groups": len(set(values["groups"])), "items": len(values["groups"])}
        return {"sampler": values}

    def under(self, conditions: Conditions) -> Self:
        filled = self.settings.under(conditions.protocol, self.encoder, conditions.split.train, self.objective)
        return replace(self, settings=filled)

    # ---- fitting

    def fit_under(
        self,
        conditions: Conditions,
        *,
        on_epoch: OnEpoch | None = None,
        checkpoints: Path | None = None,
        resume: bool = False,
    ) -> Fit:
        (only,) = self.fit_together([self], conditions, on_epoch=on_epoch, checkpoints=checkpoints, resume=resume)
        return only

    def fit_together(
        self,
        methods: Sequence[Self],
        conditions: Conditions,
        *,
        on_epoch: OnEpoch | None = None,
        checkpoints: Path | None = None,
        resume: bool = False,
    ) -> list[Fit]:
        each = len(conditions.seeds)
        alone = len(methods) == 1
        whole = train(
            conditions.split,
            self.encoder,
            self.sampler if alone else [one.sampler for one in methods for _ in range(each)],
            conditions.seeds * len(methods),
            self.settings if alone else [one.settings for one in methods for _ in range(each)],
            objective=self.objective,
            label=self.label,
            protocol=conditions.protocol,
            device=str(conditions.device),
            ks=conditions.k,
            hot=conditions.hot,
            on_epoch=on_epoch,
            checkpoints=checkpoints,
            resume=resume,
        )
        if alone:
            return [whole]
        return [_part(whole, slice(n * each, (n + 1) * each), one) for n, one in enumerate(methods)]

    def refit(
        self,
        fit: Fit,
        split: Split,
        *,
        device: str = "auto",
        on_epoch: OnEpoch | None = None,
        checkpoints: Path | None = None,
    ) -> Model:
        return refitted(
            fit, split, self.encoder, self.sampler, self.settings,
            objective=self.objective, device=device, on_epoch=on_epoch, checkpoints=checkpoints,
        )  # fmt: skip

    def update(
        self,
        model: Model,
        new: Interactions,
        *,
        epochs: int | None = None,
        device: str = "auto",
        on_epoch: OnEpoch | None = None,
        checkpoints: Path | None = None,
    ) -> Fit:
        if not isinstance(model, FactorModel):
            raise InputError("the model does not say how it was made, so it cannot be updated.")
        settings = replace(
            self.settings,
            epochs=self.settings.epochs if epochs is None else epochs,
            milestones=(),
            patience=self.settings.patience or 10,
            drop_last=False,
        )
        return updated(
            model, new, self.encoder, self.sampler, settings,
            objective=self.objective, label=self.asked, device=device, on_epoch=on_epoch, checkpoints=checkpoints,
        )  # fmt: skip

    def explain(self, conditions: Conditions) -> str:
        work = self._work(conditions, len(conditions.seeds))
        return f"{self.label}: {'; '.join(_explained(work, conditions.device))}"

    # ---- several at once

    def shape(self) -> Hashable:
        drawn = tuple(getattr(self.sampler, name) for name in self.sampler.structural)
        settings = replace(self.settings, lr=1.0, weight_decay=None, l2=None)
        return type(self.sampler), drawn, self.objective, self.encoder, settings

    def room_for(self, conditions: Conditions) -> int:
        left = available_bytes(conditions.device)
        if left is None:
            return 1
        one, two = (self._work(conditions, replicas).total for replicas in (1, 2))
        return max(1, 1 + int((_USABLE * left - one) // (two - one)))

    @property
    def same_length(self) -> bool:
        return self.settings.patience is None

    def _work(self, conditions: Conditions, replicas: int) -> Work:
        split = conditions.split
        held_out = split.test if conditions.protocol == "paper" else split.validation
        samplers = [self.sampler] * replicas
        return work_of(split.train, held_out, self.encoder, samplers, self.settings, self.objective, conditions.device)


def _part(whole: Fit, mine: slice, method: Trained) -> Fit:
    """The seeds of one method out of a run of several; times are those of the run."""
    model = whole.model
    assert isinstance(model, FactorModel)
    results = {k: each[mine] for k, each in whole.results.items()}
    validation = None if whole.validation is None else whole.validation[mine]
    info = {key: value for key, value in model.info.items() if key != "replicas"}
    return Fit(
        FactorModel(
            model.user_vectors[mine],
            model.item_vectors[mine],
            known=model.known,
            seeds=model.seeds[mine],
            best=0 if validation is None else int(np.argmax(validation)),
            info={**info, **method.description(), "chosen_epochs": list(whole.epochs[mine])},
            history=tuple(_record_of(record, mine) for record in model.history),
            metrics=metrics_json(results),
            tables=None if model.tables is None else (model.tables[0][mine], model.tables[1][mine]),
        ),
        results,
        validation,
        whole.epochs[mine],
        whole.seconds,
        whole.notes,
    )


def _record_of(record: Mapping[str, Any], mine: slice) -> dict[str, Any]:
    """An epoch's record for some of the replicas."""
    cut = {name: value[mine] if isinstance(value, list) else value for name, value in record.items()}
    return {**cut, "metrics": {name: value[mine] for name, value in record.get("metrics", {}).items()}}


def _regularisation(work: Work) -> str:
    used = work.settings
    if used.weight_decay:
        return f"weight decay {used.weight_decay:g} on every row at every step"
    if used.l2:
        return f"L2 {used.l2:g} on the rows of a batch, alike for rare and popular items"
    return "no L2" if work.objective.lengths_matter else "no L2, as cosines do not depend on lengths"


def _explained(work: Work, device: torch.device) -> Iterator[str]:
    yield f"engine {work.engine}"
    yield f"{'sparse' if work.sparse else 'dense'} updates"
    yield _regularisation(work)
    if work.draws == 0:
        yield f"exact ranks among {work.n_items:,} items"
    elif work.draws is not None:
        yield (
            f"ranks from {work.draws} draws, off by at most {dkw_bound(work.draws, _CONFIDENCE):.2f} "
            f"with {_CONFIDENCE:.0%} confidence"
        )
    needs = sorted(work.needs().items(), key=lambda need: -need[1])[:3]
    largest = ", ".join(f"{what} {gigabytes(size)}" for what, size in needs)
    left = available_bytes(device)
    free = "" if left is None else f" of {gigabytes(left)} free"
    yield f"memory about {gigabytes(work.total)}{free} ({largest})"
