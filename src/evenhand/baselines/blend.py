"""A blend: the scores of several methods added up, each part for what it is good at.

How much a part counts is found on held-out users (see `ensemble`), for lack of a validation part on a tenth of the
pairs. Finished parts are kept (`Workshop`), so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline
from evenhand.baselines.ease import EASE
from evenhand.baselines.ensemble import Shortlists, found_weights
from evenhand.data.describe import fingerprint
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, held_out_share
from evenhand.models.base import Model
from evenhand.models.blend_model import BlendModel, Part
from evenhand.models.factors import FactorModel
from evenhand.models.folder import load
from evenhand.models.vector_files import vectors_from
from evenhand.samplers import AUCSampler
from evenhand.training.checkpoints import discard
from evenhand.training.method import PLAIN, Fit, Method, RunOptions
from evenhand.training.trained import Trained
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError, StoppedError
from evenhand.utils.progress import subtask
from evenhand.utils.text import count

SIGNED = ("popular",)
"""Parts whose weight may be negative: popularity can be taken out as well as put in."""
_LARGEST = 2**30
"""Bytes up to which a fitted part is written; a larger one is fitted again."""


@dataclass(frozen=True)
class GivenVectors(Baseline):
    """Vectors from elsewhere: a model folder, an export or a .npz file, for users and items by their ids."""

    path: str

    @property
    def name(self) -> str:
        return "vectors"

    @property
    def label(self) -> str:
        return self.path

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FactorModel:
        return vectors_from(self.path, train)


@dataclass(frozen=True)
class Blend(Baseline):
    """`Σ_p share_p · s_p`, each part's scores of a user's new items with mean 0 and maximum 1."""

    parts: tuple[Method, ...] = (EASE(), ALS(), Trained(AUCSampler(), registered="auc-ns"))
    """Any methods, two or more."""
    shares: tuple[float, ...] | Literal["auto"] = "auto"
    """How much each part counts; "auto" finds it on what is held out."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.parts) < 1 or len(set(self.names)) < len(self.parts):
            raise InputError(f"a blend takes different parts joined by +, not '{'+'.join(self.names)}'.")
        shares, example = self.shares, "+".join(["1"] * len(self.parts))
        if shares == "auto":
            if any(part.name == "vectors" for part in self.parts):
                why = "vectors from elsewhere have seen the pairs on which shares are settled"
                raise InputError(f"{why}; give them, as in shares={example}.")
        elif len(shares) != len(self.parts) or not all(map(math.isfinite, shares)) or not any(shares):
            raise InputError(
                f"shares are one number a part, joined by + as in {example}, not '{self.parameters()['shares']}'."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part_name(part) for part in self.parts)

    def parameters(self) -> dict[str, Any]:
        shares = self.shares if self.shares == "auto" else "+".join(f"{share:g}" for share in self.shares)
        return {"parts": "+".join(self.names), "shares": shares}

    def description(self) -> dict[str, Any]:
        parts = [part.description() for part in self.parts]
        values = {"parts": parts, "shares": list(self.shares) if self.shares != "auto" else "auto"}
        return {"method": self.label, "rival": {"name": self.name, **values}}

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> Model:
        return self.settle(train, None, seed, torch.device(device))[0]

    def settle(
        self, train: Interactions, held: Interactions | None, seed: int, device: torch.device, run: RunOptions = PLAIN
    ) -> tuple[BlendModel, Blend]:
        if self.shares != "auto":
            return self._with_shares(self.shares, train, seed, device, run), self
        rest, held, again = held_apart(train, held)
        fits = self._fitted(rest, held, seed, device, run)
        signed = [part.name in SIGNED for part in self.parts]
        lists = Shortlists.of([fit.model for fit in fits], rest, held, signed)
        shares, _ = found_weights(lists, signed)
        taken = [n for n, share in enumerate(shares) if share]
        counting = tuple(shares[n] for n in taken)
        parts = tuple(lasting(fits[n].again or self.parts[n], fits[n].epochs) for n in taken)
        final = replace(self, parts=parts, shares=counting)
        if again:
            model = final._with_shares(counting, train, seed, device, run)
            return model.having(info={**model.info, "settled_on": lists.settled_on}), final
        info = final.info(self.label, dict(zip(self.names, shares, strict=True))) | {"settled_on": lists.settled_on}
        return blended([fits[n].model for n in taken], counting, train, seed, info), final

    def _with_shares(
        self, shares: Sequence[float], train: Interactions, seed: int, device: torch.device, run: RunOptions
    ) -> BlendModel:
        models = [fit.model for fit in self._fitted(train, None, seed, device, run)]
        return blended(models, shares, train, seed, self.info(self.label, dict(zip(self.names, shares, strict=True))))

    def _fitted(
        self, pairs: Interactions, held: Interactions | None, seed: int, device: torch.device, run: RunOptions
    ) -> list[Fit]:
        """Every part; what an earlier run finished is read again."""
        fits, kept = [], Workshop(run.checkpoints, pairs, _none_of(pairs) if held is None else held, seed)
        for part in self.parts:
            fits.append(kept.fitted(part, partial(fit_part, part, pairs, held, seed, device)))
            if run.on_epoch:
                run.on_epoch(len(fits), len(self.parts), {})
        return fits

    def info(self, label: str, settled: dict[str, float]) -> dict[str, Any]:
        """What the model says of itself: the parts with their shares, under the name that was asked for."""
        return {**self.description(), "method": label, "settled": settled}


def blended(
    models: Sequence[Model], shares: Sequence[float], train: Interactions, seed: int, info: dict[str, Any]
) -> BlendModel:
    parts = tuple(cast("Part", model) for model in models)
    return BlendModel(parts, tuple(shares), known=train, seeds=(seed,), info=info, fitted_to=train)


def held_apart(
    train: Interactions, held: Interactions | None, rule: str = "random"
) -> tuple[Interactions, Interactions, bool]:
    """What to fit to and what to settle shares on, and whether that was taken out of train, for lack of any."""
    return (train, held, False) if held is not None and len(held) else (*held_out_share(train, 0.1, rule), True)


def fit_part(
    part: Method,
    pairs: Interactions,
    held: Interactions | None,
    seed: int,
    device: torch.device,
    checkpoints: Path | None = None,
) -> Fit:
    """One part, fitted; what is trained stops on `held`, and goes on from its checkpoints."""
    split = Split(pairs, held if part.side_by_side else None, _none_of(pairs), "a part of a blend", ())
    with subtask(part.label) as on_epoch:
        return part.fit(
            split, seeds=(seed,), k=1, device=device, on_epoch=on_epoch,
            checkpoints=checkpoints, resume="matching",
        )  # fmt: skip


def _none_of(pairs: Interactions) -> Interactions:
    return pairs.take(np.zeros(len(pairs), dtype=bool))


def part_name(part: Method) -> str:
    """A part's label, with its encoder where that is not the usual one: `lightgcn/softmax`."""
    return part.label if part.encoder_name in (None, "mf") else f"{part.encoder_name}/{part.label}"


def lasting(part: Method, epochs: Sequence[int]) -> Method:
    """The part for as many epochs as were best, where there is nothing left to stop on."""
    return part.having({"epochs": max(1, round(float(np.mean(epochs)))), "seconds": None}) if epochs else part


class Workshop:
    """Finished parts by what they are, and the data and seed they were fitted to; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, pairs: Interactions, held: Interactions, seed: int) -> None:
        self.folder = folder
        self.fitted_to = [fingerprint(pairs), fingerprint(held), seed] if folder is not None else []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def find(self, method: Method) -> dict[str, Any] | None:
        """What is known of a part that an earlier run finished."""
        place = self._place(method)
        if place is None or not (place / "part.json").is_file():
            return None
        try:
            found = json.loads((place / "part.json").read_text(encoding="utf-8"))
            return found if isinstance(found, dict) and {"ndcg", "seconds", "epochs"} <= set(found) else None
        except (OSError, ValueError):
            return None

    def keep(self, method: Method, part: Part, record: dict[str, Any]) -> None:
        """Write a part, its record last: a part without one was not finished."""
        place = self._place(method)
        if place is None or sum(one.numel() * one.element_size() for one in part.tensors().values()) > _LARGEST:
            return
        part.on_cpu().save(place / "model", force=True)
        with atomic_file(place / "part.json") as path:
            path.write_text(json.dumps(record), encoding="utf-8")
        discard(place / "checkpoints")

    def checkpoints(self, method: Method) -> Path | None:
        """Where a part that is trained keeps its own."""
        place = self._place(method)
        return None if place is None else place / "checkpoints"

    def limited(self, method: Method, seconds: float) -> Method:
        """The method with so many seconds to train; where an earlier run had begun it, with those of that run."""
        place = self._place(method)
        if place is not None:
            begun = place / "seconds.json"
            try:
                seconds = float(json.loads(begun.read_text(encoding="utf-8")))
            except (OSError, TypeError, ValueError):
                place.mkdir(parents=True, exist_ok=True)
                with atomic_file(begun) as path:
                    path.write_text(json.dumps(seconds), encoding="utf-8")
        return method.having({"seconds": seconds})

    def load(self, method: Method) -> Part:
        """A part that an earlier run finished."""
        return cast("Part", load(cast("Path", self._place(method)) / "model"))

    def fitted(self, method: Method, fit: Callable[[Path | None], Fit]) -> Fit:
        """A part, read again where an earlier run finished it, else fitted and kept."""
        if (kept := self.find(method)) is not None:
            again = Trained.from_description(kept["again"]) if kept.get("again") else None
            return Fit(self.load(method), {}, None, epochs=tuple(kept["epochs"]), again=again)
        found = fit(self.checkpoints(method))
        record: dict[str, Any] = {"ndcg": None, "seconds": 0.0, "epochs": list(found.epochs)}
        if found.again is not None and found.again.side_by_side:  # it trains: what was left open is settled
            record["again"] = found.again.description()
        if "again" in record or found.again in (None, method):
            self.keep(method, cast("Part", found.model), record)
        return found

    def stopped(self, finished: int) -> StoppedError:
        """What a person reads who stopped it."""
        rest = "nothing was saved" if self.folder is None else "they are kept: go on with --resume"
        return StoppedError(f"stopped after {count(finished, 'part')}", rest)

    def _place(self, method: Method) -> Path | None:
        if self.folder is None:
            return None
        plain = method.having({"seconds": None}) if method.side_by_side else method
        text = json.dumps([plain.description(), *self.fitted_to], sort_keys=True, default=str)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
