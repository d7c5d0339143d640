"""Closed forms and vectors trained with AUC-optimal negatives in one list, each part for what it is good at.

What is left open is settled on held-out pairs: each part's few numbers, how long to train, and how much each
part counts. Where there is no validation part, a tenth of the pairs is held out for that, and every part that
counts is fitted again to all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline, Fitted
from evenhand.baselines.ease import EASE
from evenhand.baselines.itemknn import ItemKNN
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, held_out_share
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.methods import METHODS, contender
from evenhand.models.blend_model import BlendModel, Part, standardised
from evenhand.models.factors import FactorModel
from evenhand.models.topk import Score
from evenhand.models.vector_files import vectors_from
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator
from evenhand.training.run import train
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.progress import OnEpoch

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
_ENCODERS: Mapping[str, Encoder] = {"mf": MF(), "lightgcn": LightGCN()}
_LARGE, _BATCH = 200_000, 4096
"""Pairs from which on steps are larger, and how large."""
_TRAINING = Settings(patience=8)
"""How a part is trained."""
AVERAGED: Mapping[str, int] = {"cpu": 1, "cuda": 3}
"""Seeds of a trained part whose scores are averaged: what one of them owes to chance, the others do not.

On a GPU they train side by side in little more than the time of one.
"""
_STEP = 0.1
"""How finely the parts' shares are settled."""
_CELLS = 2**26
"""Scores of one part that are held at once: 256 MB."""


@dataclass(frozen=True)
class Blend(Baseline):
    """`Σ_p share_p · z_u(s_p)`, where z_u brings a part's scores to mean 0 and spread 1 for each user."""

    parts: str = "ease+als+auc-ns"
    """Baselines (ease, als, itemknn), training methods and folders of vectors from elsewhere, joined by +."""
    shares: str = "auto"
    """How much each part counts, joined by + as well; "auto" settles them on what is held out."""
    encoder: str = "auto"
    """Of the trained parts: mf, lightgcn, or "auto": lightgcn where the data is small enough for the device,
    and beyond none beside ease, unless shares are given, and mf beside others."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = self.names
        for name in names:
            if name not in CLOSED and name not in METHODS and not _is_place(name):
                raise unknown("part of a blend", name, (*CLOSED, *METHODS))
        if len(names) < 2 or len(set(names)) < len(names):
            raise InputError(f"a blend takes two or more different parts joined by +, not '{self.parts}'.")
        if self.encoder not in ("auto", "mf", "lightgcn"):
            raise unknown("encoder", self.encoder, ("auto", "mf", "lightgcn"))
        if self.given_shares() is None and any(map(_is_place, names)):
            raise InputError(
                "vectors from elsewhere have seen the pairs on which shares are settled; give them, as in "
                f"shares={'+'.join(['1'] * len(names))}."
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in str(self.parts).split("+"))

    def given_shares(self) -> tuple[float, ...] | None:
        """As they were asked for; None where they are to be settled."""
        if self.shares == "auto":
            return None
        try:
            shares = tuple(float(text) for text in str(self.shares).split("+"))
        except ValueError:
            shares = ()
        if len(shares) != len(self.names) or not all(0 <= s < math.inf for s in shares) or not sum(shares):
            raise InputError(
                f"shares are one number a part, joined by + as in {'+'.join(['1'] * len(self.names))}, "
                f"not '{self.shares}'."
            )
        return shares

    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> FittedBlend:
        return self.fit_in_steps(train, seed, device, None)

    def fit_in_steps(
        self,
        train: Interactions,
        seed: int,
        device: str | torch.device,
        on_step: OnEpoch | None,
        held: Interactions | None = None,
    ) -> FittedBlend:
        where = torch.device(device)
        rest, again = train, held is None or not len(held)
        if held is None or again:
            rest, held = held_out_share(train, HELD_OUT)
        judge = _Judge(rest, held)
        names = self.names_for(train, where)
        makers = [self._makers(name, train, seed, where) for name in names]
        steps = _Steps(sum(map(len, makers)) + len(makers), on_step)
        settled = [judge.best(each, steps) for each in makers]
        shares = self.given_shares() or judge.shares([one.scores for one in settled])
        parts, counting = [], []
        for each, one, share in zip(makers, settled, shares, strict=True):
            if share:
                parts.append(each[one.place](train, None, one.epochs)[0] if again else one.part)
                counting.append(share)
            steps.one_more()
        info = {**self.info, "settled": dict(zip(names, shares, strict=True))}
        return FittedBlend(train, BlendModel(tuple(parts), tuple(counting), train, seeds=(seed,), info=info))

    def _makers(self, name: str, train: Interactions, seed: int, device: torch.device) -> list[_Maker]:
        """The forms of one part that are worth a try on such data."""
        if name == "ease" and train.n_items > DENSE_UP_TO:
            name = "itemknn"
        if _is_place(name):
            return [lambda pairs, held, epochs: (vectors_from(name, pairs), 0)]
        if name in CLOSED:
            return [_closed(baseline, seed, device) for baseline in CLOSED[name]]
        return [_trained(name, self.encoder_for(train, device), seed, device)]

    def encoder_for(self, train: Interactions, device: torch.device) -> str:
        if self.encoder != "auto":
            return self.encoder
        return "lightgcn" if len(train) <= GRAPH_UP_TO[device.type] else "mf"

    def names_for(self, train: Interactions, device: torch.device) -> tuple[str, ...]:
        """The parts that are worth their time on such data."""
        has_ease = "ease" in self.names and train.n_items <= DENSE_UP_TO
        left_open = self.encoder == "auto" and self.given_shares() is None
        if not has_ease or not left_open or self.encoder_for(train, device) == "lightgcn":
            return self.names
        kept = tuple(name for name in self.names if name not in METHODS)
        return kept if len(kept) > 1 else self.names


def _is_place(name: str) -> bool:
    """Whether a part is named by where its vectors lie."""
    return name not in CLOSED and name not in METHODS and Path(name).expanduser().exists()


_Maker = Callable[[Interactions, Interactions | None, int], tuple[Part, int]]
"""(pairs, pairs to stop on, epochs where there are none) → the part, and for how many epochs it trained."""


def _closed(baseline: Baseline, seed: int, device: torch.device) -> _Maker:
    def make(pairs: Interactions, held: Interactions | None, epochs: int) -> tuple[Part, int]:
        model = baseline.fit(pairs, seed, device).model()
        assert not isinstance(model, BlendModel)
        return model, 0

    return make


def _trained(method: str, encoder: str, seed: int, device: torch.device) -> _Maker:
    def make(pairs: Interactions, held: Interactions | None, epochs: int) -> tuple[Part, int]:
        nothing = pairs.take(np.zeros(len(pairs), dtype=bool))
        settings = _TRAINING
        if len(pairs) > _LARGE:
            settings = replace(settings, batch=_BATCH)
        if held is None:
            settings = replace(settings, epochs=epochs)
        split = Split(pairs, held, nothing, "a part of a blend", ())
        count = AVERAGED[device.type]
        seeds = range(count * seed, count * (seed + 1))
        one = contender(method)
        fitted = train(
            split, _ENCODERS[encoder], one.sampler, seeds, settings,
            objective=one.objective, label=method, device=str(device), ks=(1,),
        )  # fmt: skip
        return averaged(fitted.model), round(float(np.mean(fitted.epochs)))

    return make


def averaged(model: FactorModel) -> FactorModel:
    """One model whose scores are the sum of its replicas': their vectors side by side."""
    if len(model.seeds) == 1:
        return model
    users, items = (side.transpose(0, 1).flatten(1).unsqueeze(0) for side in model.vectors)
    info = {**model.info, "averaged_seeds": list(model.seeds)}
    return FactorModel(users, items, model.known, seeds=model.seeds[:1], info=info)


@dataclass(frozen=True, eq=False)
class _Settled:
    """The best form of a part."""

    part: Part
    place: int
    epochs: int
    scores: Tensor
    """[judged users, n_items], standardised"""


class _Steps:
    """Counts fits, and tells whoever wants to know."""

    def __init__(self, total: int, tell: OnEpoch | None) -> None:
        self.done, self.total, self.tell = 0, total, tell

    def one_more(self) -> None:
        self.done += 1
        if self.tell:
            self.tell(self.done, self.total, {})


class _Judge:
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
        return self.evaluator.judged([score])[0][self.k].mean("ndcg")

    def best(self, makers: Sequence[_Maker], steps: _Steps) -> _Settled:
        found: tuple[float, _Settled] | None = None
        for place, make in enumerate(makers):
            part, epochs = make(self.rest, self.held, 0)
            scores = standardised(part.scores(self.users))
            value = self.value(scores)
            if found is None or value > found[0]:
                found = value, _Settled(part, place, epochs, scores)
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


@dataclass(frozen=True, eq=False)
class FittedBlend(Fitted):
    train: Interactions
    blend: BlendModel

    def scores(self, users: np.ndarray) -> Tensor:
        return self.blend.scores(users)

    def model(self, known: Interactions | None = None) -> BlendModel:
        return self.blend if known is None else replace(self.blend, known=known)
