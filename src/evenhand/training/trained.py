"""Methods that are trained in epochs: any encoder with any sampler and any objective.

How such a method is fitted (what was left open is chosen on validation first), fitted again to everything, updated with
newer pairs, trained side by side with others, and what `--explain` says of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, share_vocabulary
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders import ENCODERS, MF, Encoder, describe_encoder
from evenhand.models.base import Model, described, from_description
from evenhand.models.factors import FactorModel
from evenhand.objectives import BPR, Objective
from evenhand.samplers import GroupSampler, Sampler
from evenhand.samplers.auc import dkw_bound
from evenhand.training.early_stopping import RACE_SHARE, STOPPING_K
from evenhand.training.estimates import FEWEST, Work, wire_of, work_of
from evenhand.training.method import PLAIN, Conditions, Fit, Method, RunOptions, metrics_json
from evenhand.training.run import train
from evenhand.training.settings import Settings, tried_regularisation
from evenhand.utils.errors import InputError
from evenhand.utils.memory import available_bytes, gigabytes
from evenhand.utils.world import World

_CONFIDENCE = 0.95
_VALIDATION = 0.1
"""The share of new pairs on which an update is stopped."""
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
    spreads: ClassVar[bool] = True

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
        return replace(self, settings=replace(filled, l2=None) if self._settles_l2(conditions) else filled)

    def closed(self) -> Self:
        l2 = self.encoder.l2 if self.settings.l2 is None and self.objective.lengths_matter else self.settings.l2
        return replace(self, objective=self.objective.closed(), settings=replace(self.settings, l2=l2))

    def forms(self, conditions: Conditions) -> list[Self]:
        """What to try on validation: the regularisation, or the objective's own parameter, where it was left open."""
        if conditions.protocol == "paper" or not conditions.split.validation:
            return [self]
        if self._settles_l2(conditions):
            tried = tried_regularisation(self.encoder, self.objective, self.settings, conditions.split.train)
            return [self.having(one) for one in tried]
        return [replace(self, objective=one) for one in self.objective.forms()]

    def _settles_l2(self, conditions: Conditions) -> bool:
        left_open = self.settings.l2 is None and not self.settings.weight_decay and self.objective.lengths_matter
        return left_open and conditions.protocol == "honest" and bool(conditions.split.validation)

    # ---- fitting

    def fit_under(self, conditions: Conditions, run: RunOptions = PLAIN) -> Fit:
        """What was left open is settled with the first seed, in a race; the others then have what did best."""
        forms = self.forms(conditions)
        if len(forms) == 1:
            return forms[0].fit_together(forms, conditions, run)[0]
        first, others = (replace(conditions, seeds=part) for part in (conditions.seeds[:1], conditions.seeds[1:]))
        room = World.current().agree(self.room_for(first))  # other processes may have more memory left, or less
        alike = len({one.shape() for one in forms}) == 1 and room >= len(forms)
        tried: list[Fit] = []
        best: list[float] = []
        for place, group in enumerate([forms] if alike else [[one] for one in forms]):
            tried += group[0]._fitted(group, first, run.within(f"form-{place}"), race=best)
            best = [] if alike else _best_so_far(best, tried[-1].history)
        values = [one.validation[0] if one.validation else -np.inf for one in tried]
        chosen, fit = forms[int(np.argmax(values))], tried[int(np.argmax(values))]
        seconds = sum(one.seconds for one in (tried[:1] if alike else tried))
        if others.seeds:
            (more,) = chosen.fit_together([chosen], others, run)
            fit, seconds = _joined(fit, more), seconds + more.seconds
        return replace(fit, seconds=seconds, notes=(*fit.notes, _settled(self, forms, values, chosen)), again=chosen)

    def fit_together(self, methods: Sequence[Self], conditions: Conditions, run: RunOptions = PLAIN) -> list[Fit]:
        return self._fitted(methods, conditions, run)

    def _fitted(
        self, methods: Sequence[Self], conditions: Conditions, run: RunOptions, race: Sequence[float] | None = None
    ) -> list[Fit]:
        """In a race only the best method counts, and others are given up once they are far behind."""
        if any(one.shape() != self.shape() for one in methods):
            raise ValueError("methods that are fitted together must agree in shape")
        each, alone = len(conditions.seeds), len(methods) == 1
        samplers = [one.sampler for one in methods for _ in range(each)]
        settings = [one.settings for one in methods for _ in range(each)]
        whole = train(
            conditions.split, self.encoder, self.sampler if alone else samplers, conditions.seeds * len(methods),
            self.settings if alone else settings, objective=self.objective, label=self.label,
            protocol=conditions.protocol, device=str(conditions.device), ks=conditions.k, hot=conditions.hot,
            on_epoch=run.on_epoch, checkpoints=run.checkpoints, resume=run.resume, race=race,
        )  # fmt: skip
        if alone:
            return [whole]
        return [_part(whole, slice(n * each, (n + 1) * each), one) for n, one in enumerate(methods)]

    def refit(self, fit: Fit, split: Split, *, device: str = "auto", run: RunOptions = PLAIN) -> Model:
        """Trained for as many epochs as were best on average."""
        one = cast(Trained, fit.again or self)
        everything: Any = split.everything
        mine = everything.mine if isinstance(everything, SpreadLog) else everything
        nothing = everything.take(np.zeros(len(mine), dtype=bool))
        whole: Any = type(split)(everything, None, nothing, f"{split.description}; refitted on all parts", split.notes)
        one = replace(one, settings=replace(one.settings, epochs=max(1, round(float(np.mean(fit.epochs))))))
        best = fit.model.seeds[fit.model.best]
        return one._going_on(whole, [best], fit.model.info["method"], device, run).model

    def update(
        self, model: Model, new: Interactions, *, epochs: int | None = None, device: str = "auto",
        run: RunOptions = PLAIN,
    ) -> Fit:  # fmt: skip
        """Trained further, on what it knew and on `new`, which should be what came in since.

        Users and items it did not know start at random; Adam starts afresh. A tenth of the new pairs decides when to
        stop.
        """
        if not isinstance(model, FactorModel):
            raise InputError("the model does not say how it was made, so it cannot be updated.")
        if isinstance(self.sampler, GroupSampler) and self.sampler.groups is not None:
            raise InputError("a model with a grouping of its own items cannot be updated; train it again.")
        parts, notes = share_vocabulary({"model": model.known, "new": new})
        known, newer = parts["model"], parts["new"]
        fresh = newer.take(~known.contains(newer.users, newer.items))
        if not len(fresh):
            raise InputError("the new data holds no pair that the model does not know already.")
        split = _hold_out(known, fresh)
        users, items = model.tables or model.vectors
        start = (
            _moved(users, model.known.user_ids, split.train.user_ids),
            _moved(items, model.known.item_ids, split.train.item_ids),
        )
        settings = replace(
            self.settings,
            epochs=self.settings.epochs if epochs is None else epochs,
            milestones=(),
            patience=min(10, self.settings.patience or 10),
            drop_last=False,
        )
        fit = replace(self, settings=settings)._going_on(split, model.seeds, self.asked, device, run, start)
        return replace(fit, notes=(*notes, *fit.notes))

    def _going_on(
        self, split: Split, seeds: Sequence[int], label: str | None, device: str, run: RunOptions,
        start: tuple[Tensor, Tensor] | None = None,
    ) -> Fit:  # fmt: skip
        """Train for production; where the same work was interrupted, it goes on."""
        return train(
            split, self.encoder, self.sampler, seeds, self.settings, objective=self.objective, label=label,
            device=device, on_epoch=run.on_epoch, start=start, checkpoints=run.checkpoints, resume="matching",
        )  # fmt: skip

    def explain(self, conditions: Conditions) -> str:
        work = self._work(conditions, len(conditions.seeds))
        said = [*_explained(work, conditions.device)]
        if work.ranks > 1:
            said += _over_ranks(work, conditions.split.train.popularity)
        return f"{self.label}: {'; '.join(said)}"

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


def _settled(asked: Trained, forms: Sequence[Trained], values: Sequence[float], chosen: Trained) -> str:
    """How the parameter was found that was left open, in a sentence."""
    every = [one.parameters() for one in forms]
    open_ones = [name for name, value in every[0].items() if any(other[name] != value for other in every)]

    def spelled(one: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {one[name]:g}" for name in open_ones if one[name])

    tried = ", ".join(f"{spelled(one)} ({value:.4f})" for one, value in zip(every, values, strict=True))
    behind = "; what is far behind may have been given up early" if min(values) < RACE_SHARE * max(values) else ""
    return (
        f"{asked.label}: {spelled(chosen.parameters())} was chosen by NDCG@{STOPPING_K} on validation with the first "
        f"seed, out of {tried}{behind}."
    )


def _hold_out(known: Interactions, fresh: Interactions) -> Split:
    """What an update trains on, with a tenth of the new pairs for validation."""
    held = np.random.Generator(np.random.PCG64(0)).permutation(len(fresh)) < _VALIDATION * len(fresh)
    return Split(
        train=known.union(fresh.take(~held)),
        validation=fresh.take(held) if held.any() else None,
        test=fresh.take(np.zeros(len(fresh), dtype=bool)),
        description=f"an update with {len(fresh):,} new pairs, a tenth of them for validation",
    )


def _moved(table: Tensor, old_ids: pa.Array, new_ids: pa.Array) -> Tensor:
    """The rows of the old ids at their place among the new ids; rows of new ids are nan."""
    place = pc.index_in(old_ids.cast(new_ids.type), value_set=new_ids).to_numpy()
    moved = torch.full((table.shape[0], len(new_ids), table.shape[2]), torch.nan)
    moved[:, torch.from_numpy(place.astype(np.int64))] = table.to(moved.dtype)
    return moved


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
            history=tuple(_record_of(one, mine) for one in model.history if set(one["loss"][mine]) != {None}),
            metrics=metrics_json(results),
            tables=None if model.tables is None else (model.tables[0][mine], model.tables[1][mine]),
        ),
        results,
        validation,
        whole.epochs[mine],
        whole.seconds,
        whole.notes,
    )


def _joined(one: Fit, more: Fit) -> Fit:
    """The fit of a method with some seeds and that with others, as one of all of them."""
    first, second = one.model, more.model
    assert isinstance(first, FactorModel)
    assert isinstance(second, FactorModel)
    validation = (*(one.validation or ()), *(more.validation or ()))
    results = {k: [*each, *more.results[k]] for k, each in one.results.items()}
    epochs = (*one.epochs, *more.epochs)
    tables = None
    if first.tables is not None and second.tables is not None:
        tables = (torch.cat([first.tables[0], second.tables[0]]), torch.cat([first.tables[1], second.tables[1]]))
    model = FactorModel(
        torch.cat([first.user_vectors, second.user_vectors]),
        torch.cat([first.item_vectors, second.item_vectors]),
        known=first.known,
        seeds=(*first.seeds, *second.seeds),
        best=int(np.argmax(validation)),
        info={**first.info, "chosen_epochs": list(epochs)},
        history=_side_by_side(first, second),
        metrics=metrics_json(results),
        tables=tables,
    )
    notes = tuple(dict.fromkeys((*one.notes, *more.notes)))
    return Fit(model, results, validation, epochs, one.seconds + more.seconds, notes)


def _side_by_side(first: Model, second: Model) -> tuple[Mapping[str, Any], ...]:
    """The histories of two models as one: a number per replica, None where it trained no more."""
    nothing = [None] * len(first.seeds), [None] * len(second.seeds)

    def beside(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for name, value in {**a, **b}.items() if isinstance(value, list)]
        return {name: [*a.get(name, nothing[0]), *b.get(name, nothing[1])] for name in names}

    joined = []
    for a, b in zip_longest(first.history, second.history, fillvalue=dict[str, Any]()):
        measured = beside(a.get("metrics", {}), b.get("metrics", {}))
        joined.append({**b, **a, **beside(a, b), "metrics": measured})
    return tuple(joined)


def _best_so_far(best: Sequence[float], history: Sequence[Mapping[str, Any]]) -> list[float]:
    """The best validation value after each epoch: of those that ran before, and of a run of one replica."""
    metrics = [record["metrics"] for record in history]
    values = [one[name][0] for one in metrics for name in one if name.startswith("ndcg@")]
    return list(np.maximum.accumulate([max(pair) for pair in zip_longest(best, values, fillvalue=-np.inf)]))


def _record_of(record: Mapping[str, Any], mine: slice) -> dict[str, Any]:
    """An epoch's record for some of the replicas."""
    cut = {name: value[mine] if isinstance(value, list) else value for name, value in record.items()}
    return {**cut, "metrics": {name: value[mine] for name, value in record.get("metrics", {}).items()}}


def _regularisation(work: Work) -> str:
    used = work.settings
    if used.weight_decay:
        return f"weight decay {used.weight_decay:g} on every row at every step"
    if used.l2 is None:
        values = ", ".join(f"{one:g}" for one in (*work.objective.l2_also_tried, *work.encoder.l2_tried))
        pulls = ", ".join(f"{one:g}" for one in work.encoder.pulls_tried)
        decays = "" if work.sparse else f", or of weight decays on every row of {pulls} over twice the pairs"
        tried = f"{values}{decays}"
        return f"L2 on the rows of a batch, alike for rare and popular items, that validation prefers of {tried}"
    if used.l2:
        return f"L2 {used.l2:g} on the rows of a batch, alike for rare and popular items"
    return "no L2" if work.objective.lengths_matter else "no L2, as cosines do not depend on lengths"


def _over_ranks(work: Work, popularity: np.ndarray) -> Iterator[str]:
    wire = wire_of(work, popularity)
    yield (
        f"{work.ranks} processes, each about {wire.positives:,.0f} positives a step and {wire.bytes:,.0f} bytes sent "
        f"for each of them"
    )
    if wire.positives < FEWEST:
        enough = work.ranks * FEWEST
        yield f"with so few they will mostly wait for each other: --batch {enough} gives each {FEWEST:,}"


def _explained(work: Work, device: torch.device) -> Iterator[str]:
    yield f"engine {work.engine}"
    yield f"{work.settings.positives:,} positives a step, {'sparse' if work.sparse else 'dense'} updates"
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
    each = " for each process" if work.ranks > 1 else ""
    yield f"memory about {gigabytes(work.total)}{each}{free} ({largest})"
