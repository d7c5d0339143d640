"""Closed forms and vectors trained with AUC-optimal negatives in one list, each part for what it is good at.

What is left open is settled on held-out pairs: each part's few numbers, how long to train, and how much each
part counts. Where there is no validation part, a tenth of the pairs is held out for that, and every part that
counts is fitted again to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline
from evenhand.baselines.ease import EASE
from evenhand.baselines.itemknn import ItemKNN
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, held_out_share
from evenhand.encoders import ENCODERS, MF
from evenhand.models.blend_model import BlendModel, Part, standardised
from evenhand.models.factors import FactorModel
from evenhand.models.topk import Score
from evenhand.models.vector_files import vectors_from
from evenhand.samplers import AUCSampler
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Method
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.progress import OnEpoch, subtask

HELD_OUT = 0.1
"""Share of the pairs on which everything is settled where there is no validation part."""
CLOSED: dict[str, tuple[Baseline, ...]] = {
    "ease": tuple(EASE(l2=l2, balance=balance) for l2 in (150, 400, 1000) for balance in (0, 0.2)),
    "als": (ALS(alpha=2, l2=30), ALS(alpha=4, l2=60), ALS(alpha=10, l2=100)),
    "itemknn": (ItemKNN(neighbours=50), ItemKNN(neighbours=200)),
}
"""What may be tried for a part that is not trained."""
DENSE_UP_TO = 20_000
"""Items beyond which a weight for every pair of them is too much, and itemknn stands in for ease."""
GRAPH_UP_TO = {"cpu": 200_000, "cuda": 50_000_000}
"""Pairs up to which LightGCN is worth its time. MF beside ease was not, so that beyond nothing is trained."""
_LARGE, _BATCH = 200_000, 4096
"""Pairs from which on steps are larger, and how large."""
_TRAINING: dict[str, Any] = {"patience": 8}
"""How a part is trained that leaves its settings at the defaults."""
AVERAGED: Mapping[str, int] = {"cpu": 1, "cuda": 3}
"""Seeds of a trained part whose scores are averaged: what one of them owes to chance, the others do not.

On a GPU they train side by side in little more than the time of one.
"""
_STEP = 0.1
"""How finely the parts' shares are settled."""
_CELLS = 2**26
"""Scores of one part that are held at once: 256 MB."""


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
    """`Σ_p share_p · z_u(s_p)`, where z_u brings a part's scores to mean 0 and spread 1 for each user."""

    parts: tuple[Method, ...] = (EASE(), ALS(), Trained(AUCSampler(), registered="auc-ns"))
    """Any methods; a closed form at its defaults is tried with a few values of its parameters."""
    shares: tuple[float, ...] | Literal["auto"] = "auto"
    """How much each part counts; "auto" settles them on what is held out."""
    encoder: str = "auto"
    """Of trained parts that leave theirs at the default: mf, lightgcn, or "auto": lightgcn where the data is small
    enough for the device, and beyond none beside ease, unless shares are given, and mf beside others."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.parts) < 2 or len(set(self.names)) < len(self.parts):
            raise InputError(f"a blend takes two or more different parts joined by +, not '{'+'.join(self.names)}'.")
        if self.encoder not in ("auto", *ENCODERS):
            raise unknown("encoder", self.encoder, ("auto", *ENCODERS))
        shares, example = self.shares, "+".join(["1"] * len(self.parts))
        if shares == "auto":
            if any(part.name == "vectors" for part in self.parts):
                raise InputError(
                    "vectors from elsewhere have seen the pairs on which shares are settled; give them, as in "
                    f"shares={example}."
                )
        elif len(shares) != len(self.parts) or not all(0 <= s < math.inf for s in shares) or not sum(shares):
            raise InputError(
                f"shares are one number a part, joined by + as in {example}, not '{self.parameters()['shares']}'."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.label for part in self.parts)

    def parameters(self) -> dict[str, Any]:
        """As they are written."""
        shares = self.shares if self.shares == "auto" else "+".join(f"{share:g}" for share in self.shares)
        return {"parts": "+".join(self.names), "shares": shares, "encoder": self.encoder}

    def description(self) -> dict[str, Any]:
        parts = [part.description() for part in self.parts]
        values = {"parts": parts, "shares": list(self.shares) if self.shares != "auto" else "auto"}
        return {"method": self.label, "rival": {"name": self.name, **values, "encoder": self.encoder}}

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> BlendModel:
        return self.settle(train, None, seed, torch.device(device), None)

    def settle(
        self,
        train: Interactions,
        held: Interactions | None,
        seed: int,
        device: torch.device,
        on_step: OnEpoch | None,
    ) -> BlendModel:
        rest, again = train, held is None or not len(held)
        if held is None or again:
            rest, held = held_out_share(train, HELD_OUT)
        scale = _Scale(rest, held)
        parts = self.parts_for(train, device)
        forms = [self.forms(part, train, device) for part in parts]
        steps = _Steps(sum(map(len, forms)) + len(forms), on_step)
        settled = [scale.best(each, seed, device, steps) for each in forms]
        shares = scale.shares([one.scores for one in settled]) if self.shares == "auto" else self.shares
        models, counting = [], []
        for one, share in zip(settled, shares, strict=True):
            if share:
                models.append(_fitted(_lasting(one), train, None, seed, device)[0] if again else one.model)
                counting.append(share)
            steps.one_more()
        info = {**self.description(), "settled": {part.label: s for part, s in zip(parts, shares, strict=True)}}
        return BlendModel(tuple(models), tuple(counting), train, seeds=(seed,), info=info)

    def forms(self, part: Method, train: Interactions, device: torch.device) -> Sequence[Method]:
        """The forms of one part that are worth a try on such data."""
        if part.name == "ease" and train.n_items > DENSE_UP_TO:
            part = ItemKNN()
        if not part.side_by_side:
            return (part,) if part.named else CLOSED.get(part.name, (part,))
        if part == part.with_encoder(MF()):
            part = part.with_encoder(ENCODERS[self.encoder_for(train, device)]())
        values = _TRAINING | ({"batch": _BATCH} if len(train) > _LARGE else {})
        return (part.having({n: v for n, v in values.items() if part.parameters()[n] == getattr(Settings, n)}),)

    def encoder_for(self, train: Interactions, device: torch.device) -> str:
        if self.encoder != "auto":
            return self.encoder
        return "lightgcn" if len(train) <= GRAPH_UP_TO[device.type] else "mf"

    def parts_for(self, train: Interactions, device: torch.device) -> tuple[Method, ...]:
        """The parts that are worth their time on such data."""
        has_ease = any(part.name == "ease" for part in self.parts) and train.n_items <= DENSE_UP_TO
        left_open = self.encoder == "auto" and self.shares == "auto"
        if not has_ease or not left_open or self.encoder_for(train, device) == "lightgcn":
            return self.parts
        kept = tuple(part for part in self.parts if not part.side_by_side)
        return kept if len(kept) > 1 else self.parts


def _fitted(
    part: Method, pairs: Interactions, held: Interactions | None, seed: int, device: torch.device
) -> tuple[Part, tuple[int, ...]]:
    """The model of one part, and the epochs that were best where it is trained."""
    count = AVERAGED[device.type] if part.side_by_side else 1
    nothing = pairs.take(np.zeros(len(pairs), dtype=bool))
    split = Split(pairs, held if part.side_by_side else None, nothing, "a part of a blend", ())
    with subtask(part.label) as on_epoch:
        seeds = range(count * seed, count * (seed + 1))
        fit = part.fit(split, seeds=seeds, k=1, device=device, on_epoch=on_epoch)
    return averaged(cast("Part", fit.model)), fit.epochs


def _lasting(one: _Settled) -> Method:
    """The part for as many epochs as were best, where there is nothing left to stop on."""
    return one.part.having({"epochs": round(float(np.mean(one.epochs)))}) if one.epochs else one.part


def averaged(model: Part) -> Part:
    """One model whose scores are the sum of its replicas': their vectors side by side."""
    if len(model.seeds) == 1:
        return model
    assert isinstance(model, FactorModel)
    users, items = (side.transpose(0, 1).flatten(1).unsqueeze(0) for side in model.vectors)
    info = {**model.info, "averaged_seeds": list(model.seeds)}
    return FactorModel(users, items, model.known, seeds=model.seeds[:1], info=info)


@dataclass(frozen=True, eq=False)
class _Settled:
    """The best form of a part."""

    part: Method
    model: Part
    epochs: tuple[int, ...]
    scores: Tensor
    """[evaluated users, n_items], standardised"""


class _Steps:
    """Counts fits, and tells whoever wants to know."""

    def __init__(self, total: int, tell: OnEpoch | None) -> None:
        self.done, self.total, self.tell = 0, total, tell

    def one_more(self) -> None:
        self.done += 1
        if self.tell:
            self.tell(self.done, self.total, {})


class _Scale:
    """NDCG@10 on the pairs that were held out, for as many users as fit into memory."""

    def __init__(self, rest: Interactions, held: Interactions) -> None:
        self.rest, self.held = rest, held
        k = min(STOPPING_K, rest.n_items)
        cold = np.zeros(rest.n_items, dtype=bool)  # bias is not looked at here
        self.evaluator = Evaluator(held, rest, cold, (k,), sample=max(1, _CELLS // rest.n_items))
        self.k, self.users = k, self.evaluator.users
        self._place = np.zeros(rest.n_users, dtype=np.int64)
        self._place[self.users] = np.arange(len(self.users))

    def value(self, scores: Tensor) -> float:
        score: Score = lambda users: scores[torch.from_numpy(self._place[users])]  # noqa: E731
        return self.evaluator.evaluate([score])[0][self.k].mean("ndcg")

    def best(self, forms: Sequence[Method], seed: int, device: torch.device, steps: _Steps) -> _Settled:
        found: tuple[float, _Settled] | None = None
        for part in forms:
            model, epochs = _fitted(part, self.rest, self.held, seed, device)
            scores = standardised(model.scores(self.users))
            value = self.value(scores)
            if found is None or value > found[0]:
                found = value, _Settled(part, model, epochs, scores)
            steps.one_more()
        assert found is not None
        return found[1]

    def shares(self, scores: Sequence[Tensor]) -> tuple[float, ...]:
        """From equal shares, the step uphill that gains most, from one part to another, until none does."""
        steps = round(1 / _STEP)
        now = [steps // len(scores) + (n < steps % len(scores)) for n in range(len(scores))]
        seen: dict[tuple[int, ...], float] = {}

        def value(units: Sequence[int]) -> float:
            key = tuple(units)
            if key not in seen:
                seen[key] = self.value(_summed(scores, [u * _STEP for u in units]))
            return seen[key]

        while True:
            near = [_moved(now, a, b) for a, b in permutations(range(len(now)), 2) if now[a]]
            best = max(near, key=value)
            if value(best) <= value(now):
                return tuple(round(u * _STEP, 10) for u in now)
            now = best


def _summed(scores: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    total = shares[0] * scores[0]
    for one, share in zip(scores[1:], shares[1:], strict=True):
        total += share * one
    return total


def _moved(units: Sequence[int], giver: int, taker: int) -> list[int]:
    """One step less for one part, one more for another."""
    return [u - (n == giver) + (n == taker) for n, u in enumerate(units)]
