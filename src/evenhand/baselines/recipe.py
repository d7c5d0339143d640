"""The recipe: the best blend that a given time allows, on any log.

Closed forms first, then trained models while time remains; a blend is found on held-out users, and what counts in it is
fitted again to everything. What is tried was chosen on the validation parts of several data sets (docs/recipe.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline, check_number
from evenhand.baselines.blend import SIGNED, Blend, Workshop, blended, fit_part, held_apart, lasting, part_name
from evenhand.baselines.ease import EASE
from evenhand.baselines.ensemble import MOST_USERS, K, Shortlists, found_weights
from evenhand.baselines.gfcf import GFCF
from evenhand.baselines.itemknn import ItemKNN
from evenhand.baselines.popular import Popular
from evenhand.data.interactions import Interactions
from evenhand.data.splits import has_order
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.models.base import Model
from evenhand.models.blend_model import BlendModel, Part
from evenhand.models.item_weights import ItemWeightModel
from evenhand.objectives import Softmax
from evenhand.samplers import UniformSampler
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import PLAIN, Method, RunOptions
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.utils.errors import InputError, RunError, StoppedError, unknown
from evenhand.utils.progress import OnEpoch, working_time
from evenhand.utils.stopping import StopSignal

Aim = Literal["log", "items", "next"]
AIMS: dict[str, str] = {"log": "random", "items": "popularity-shift", "next": "time"}
"""What lists are for, and the rule by which validation is drawn for it."""
Goal = Literal["accuracy", "exposure"]
BUDGET = {"cpu": 600.0, "cuda": 180.0}
"""Seconds where no budget is given."""
FAST = 30.0
"""Seconds of the fast recipe."""
_TAKING_PART = 10
"""How many fitted parts a blend may choose from, two of a family at most."""
_FOR_WEIGHTS = 0.1
"""Share of the budget kept for finding weights."""
_ALL_NEIGHBOURS = 1_000_000
"""Pairs up to which every item may be a neighbour of every other."""
_EASE_ITEMS = 12_000
"""Items between which EASE learns weights on a CPU, where its time grows with their cube."""
_LEAST_TRAINING = 5.0
"""Seconds below which training is not begun."""
_CHEAP = 0.03
"""Share of the budget below which every closed form of a family is tried before anything is trained."""
_CORES = {"cpu": 2, "cuda": 200}
"""How many cores a device is worth, for estimates."""
_RECENCIES = (0.0, 0.4, 0.8)
"""How fast what a user had earlier may lose weight, where there are times: tried on every fitted item-based part."""
clock: Callable[[], float] = working_time


@dataclass(frozen=True)
class Recipe(Baseline):
    """Fits what the budget allows, and blends it."""

    budget: float | None = None
    """Seconds, the fit to everything included and compiling, which happens once, left out.

    None is ten minutes on a CPU and three on a GPU.
    """
    aim: Aim | None = None
    """What lists are for: log (predict the log), items (each item finds its users), next (what comes next).

    None is the aim by which the validation part was drawn, and log where there is none.
    """
    goal: Goal = "accuracy"
    """accuracy, or exposure: the most popular tenth of the items gets at most 1.2 times its share of demand."""

    seeded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_number("budget", self.budget, zero=False)
        for what, value, known in (("aim", self.aim, get_args(Aim)), ("goal", self.goal, get_args(Goal))):
            if value not in known and value is not None:
                raise unknown(what, str(value), known)

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> Model:
        return self.settle(train, None, seed, torch.device(device))[0]

    def settle(
        self, train: Interactions, held: Interactions | None, seed: int, device: torch.device, run: RunOptions = PLAIN
    ) -> tuple[BlendModel, Blend]:
        rest, held, again = held_apart(train, held, AIMS[self.aim or "log"])
        aim = self.aim or aim_of(rest, held)
        search = Search(self, aim, rest, held, seed, device, Workshop(run.checkpoints, rest, held, seed), run.on_epoch)
        search.run()
        chosen = search.blend()
        shares = tuple(share for _, share in chosen)
        final = Blend(tuple(lasting(one.method, one.epochs) for one, _ in chosen), shares)
        tried = [one.record({id(part): share for part, share in chosen}.get(id(one), 0.0)) for one in search.tried]
        settled = {part_name(one.method): share for one, share in chosen}
        info = {**final.info(self.label, settled), "tried": tried, "aim": aim, "goal": self.goal}
        info["settled_on"] = search.settled_on
        if again:
            return final.settle(train, None, seed, device, run)[0].having(info=info), final
        return blended([search.fitted(one) for one, _ in chosen], shares, train, seed, info), final

    def explain(self, conditions: Any) -> str:
        seconds = self.budget or BUDGET[conditions.device.type]
        return (
            f"{self.label}: {seconds:g} s for closed forms, trained models and their blend, chosen on validation "
            f"(drawn by the {AIMS[self.aim or 'log']} rule where none is given) and fitted again to everything"
        )


@dataclass(eq=False)
class Tried:
    """A method that was fitted to the pairs that are not held out."""

    family: str
    method: Method
    part: Part | None
    """None where it was fitted by an earlier run and can be read again."""
    ndcg: float
    """NDCG@20 on the held-out pairs"""
    seconds: float
    epochs: tuple[int, ...]
    asked: Method
    """The method before its recency was settled, by which it is kept."""

    def record(self, share: float) -> dict[str, Any]:
        return {"part": part_name(self.method), "ndcg": self.ndcg, "seconds": round(self.seconds, 2), "share": share}


@dataclass(eq=False)
class Search:
    """The time that is left, and what has been tried in it."""

    recipe: Recipe
    aim: Aim
    pairs: Interactions
    held: Interactions
    seed: int
    device: torch.device
    workshop: Workshop
    on_step: OnEpoch | None
    tried: list[Tried] = field(default_factory=list)
    settled_on: Mapping[str, int] = field(default_factory=dict)
    """On how many users the shares were found, and of how many."""

    def __post_init__(self) -> None:
        self.began = clock()
        self.budget = self.recipe.budget or BUDGET[self.device.type]
        cold = np.zeros(self.pairs.n_items, dtype=bool)  # bias is not looked at here
        self.k = min(K, self.pairs.n_items)
        self.evaluator = Evaluator(self.held, self.pairs, cold, (self.k,), sample=MOST_USERS)
        self.families = candidates(self.pairs, self.aim, self.device)

    def run(self) -> None:
        """Fit candidates until time is up.

        The first closed form of every family, quick ones first; then all that are cheap; then what is trained; then
        more of the family that is ahead.
        """
        with StopSignal().listening() as stop:
            while (following := self._next()) is not None:
                family, method = following
                self._try(family, method)
                if self.on_step:
                    last = self.tried[-1] if self.tried else None
                    news = {} if last is None else {"part": last.method.label, "ndcg": [last.ndcg]}
                    self.on_step(round(min(self.spent, self.budget)), round(self.budget), news)
                if stop() and self.tried:
                    raise self.workshop.stopped(len(self.tried))

    @property
    def spent(self) -> float:
        return clock() - self.began

    @property
    def left(self) -> float:
        """Seconds for one more candidate: what the fit to everything will take is kept."""
        return self.budget * (1 - _FOR_WEIGHTS) - self.spent - sum(one.seconds for one in self._leaders())

    def _leaders(self) -> list[Tried]:
        """The best of each family, the best first."""
        best: dict[str, Tried] = {}
        for one in sorted(self.tried, key=lambda one: -one.ndcg):
            best.setdefault(one.family, one)
        return list(best.values())

    def _next(self) -> tuple[str, Method] | None:
        begun = [one.family for one in self._leaders()]

        def turn(name: str) -> tuple[int, float]:
            trained, expected = self.families[name][0].side_by_side, self._expected(name)
            if name not in begun:
                return (2 if trained else 0), expected
            cheap = not trained and expected < _CHEAP * self.budget
            return (1 if cheap else 3), begun.index(name)

        for name in sorted((name for name, waiting in self.families.items() if waiting), key=turn):
            if not self.tried or 2 * self._expected(name) < self.left:
                return name, self.families[name].pop(0)
        return None

    def _expected(self, family: str) -> float:
        """Seconds for the next candidate of a family: by its own estimate, and what others took beyond theirs."""
        waiting = self.families[family]
        trained = waiting[0].side_by_side
        same = [one.seconds for one in self.tried if one.family == family]
        if trained:
            return max(same, default=_LEAST_TRAINING)
        beyond = [one.seconds - self._estimate(one.method) for one in self.tried if not one.method.side_by_side]
        return self._estimate(waiting[0]) + max([0.0, *beyond])

    def _estimate(self, method: Method) -> float:
        return method.work(self.pairs) / _CORES[self.device.type]

    def _try(self, family: str, method: Method) -> None:
        if (found := self.workshop.find(method)) is not None:
            settled = method.having({"recency": found["recency"]}) if found.get("recency") else method
            ndcg, seconds, epochs = found["ndcg"], found["seconds"], tuple(found["epochs"])
            self.tried.append(Tried(family, settled, None, ndcg, seconds, epochs, method))
            self.began -= seconds  # the budget is that of both runs
            return
        asked = method
        if method.side_by_side:
            method = self.workshop.limited(method, self.left / 2)
        began = clock()
        try:
            kept = self.workshop.checkpoints(method)
            fit = fit_part(method, self.pairs, self.held, self.seed, self.device, kept)
        except StoppedError as stop:
            raise self.workshop.stopped(len(self.tried)) from stop
        except (InputError, RunError):  # too large for this machine, or without a solution: others remain
            self.families[family].clear()
            return
        elapsed = clock() - began
        seconds = max(elapsed, fit.seconds)  # of an earlier run too, where one had begun it
        self.began -= seconds - elapsed
        part = cast("Part", fit.model)
        method, part, value = self._with_recency(method, part, self._value(part))
        record = {"ndcg": value, "seconds": seconds, "epochs": list(fit.epochs)}
        self.workshop.keep(asked, part, record | {"recency": method.parameters().get("recency", 0)})
        self.tried.append(Tried(family, method, part, value, seconds, fit.epochs, asked))

    def fitted(self, one: Tried) -> Part:
        """The fitted part, read again where an earlier run wrote it."""
        if one.part is None:
            one.part = self.workshop.load(one.asked)
        return one.part

    def _value(self, model: Model) -> float:
        return self.evaluator.evaluate([model.scorer(model.best)])[0][self.k].mean("ndcg")

    def _with_recency(self, method: Method, part: Part, value: float) -> tuple[Method, Part, float]:
        """The same with the recency that does best: it changes how a fitted part is used, and costs no fit."""
        found = method, part, value
        timed = self.pairs.timestamps is not None and "recency" in method.parameters()
        if not timed or not isinstance(part, ItemWeightModel):
            return found
        for recency in _RECENCIES:
            if recency != part.recency:
                other = part.having(recency=recency)
                value = self._value(other)
                found = max(found, (method.having({"recency": recency}), other, value), key=lambda each: each[2])
        return found

    def blend(self) -> list[tuple[Tried, float]]:
        """The parts that count, with their shares."""
        if not self.tried:
            raise InputError("nothing could be fitted to this log: no method has room for it on this machine.")
        taking: list[Tried] = []
        for one in sorted(self.tried, key=lambda one: -one.ndcg):
            if sum(other.family == one.family for other in taking) < 2 and len(taking) < _TAKING_PART:
                taking.append(one)
        taking += [one for one in self.tried if one.method.name in SIGNED and one not in taking]
        signed = [one.method.name in SIGNED for one in taking]
        lists = Shortlists.of([self.fitted(one) for one in taking], self.pairs, self.held, signed)
        # With the goal exposure: how much more than its share of demand the most popular tenth of the items may get.
        limit = 1.2 if self.recipe.goal == "exposure" else None
        self.settled_on = lists.settled_on
        shares, _ = found_weights(lists, signed, limit)
        return [(one, share) for one, share in zip(taking, shares, strict=True) if share]


def aim_of(pairs: Interactions, held: Interactions) -> Aim:
    """What a held-out part asks, by how it was drawn: pairs that came later, or items without regard to popularity."""
    times, later = pairs.timestamps, held.timestamps
    if times is None or later is None or has_order(pairs):
        pass
    elif np.mean(later > np.nanquantile(times, 0.95)) > 0.9:
        return "next"
    at_random, drawn = (float(pairs.popularity[part.items].mean()) for part in (pairs, held))
    evenly = float(pairs.popularity[pairs.popularity > 0].mean())
    return "items" if drawn < (at_random + evenly) / 2 else "log"


def candidates(pairs: Interactions, aim: Aim, device: torch.device) -> dict[str, list[Method]]:
    """What is worth a try, by family, the most promising first; cheap families come first.

    For the aim items, few neighbours and no popularity in the weights do best; for the others, many and some. Where
    there are times, what users had near each other counts too.
    """
    on_gpu = device.type == "cuda"
    balances: tuple[tuple[float, float], ...]
    ridges: tuple[float, ...]
    if aim == "items":
        knn = [
            ItemKNN(7, 0, "gram"),
            ItemKNN(15, 0, user_exponent=0.5, item_exponent=0.6),
            ItemKNN(20, 0, "gram"),
            ItemKNN(10, 5),
        ]
        near = ItemKNN(20, 0, "gram")
        filters = [GFCF(0, 0, 0, 0), GFCF(64, -0.8, 0.2, 0.2, 2), GFCF(256, 0.1, 0, 0)]
        balances, ridges = ((0.25, 0), (0.5, 0)), (100, 30)
        als = [ALS(256, 30, 100), ALS(64, 10, 30, nu=1)]
    else:
        many: int | Literal["all"] = "all" if len(pairs) <= _ALL_NEIGHBOURS else 300
        knn = [
            ItemKNN(100, 0, "gram", user_exponent=0.5),
            ItemKNN(many, 0, "gram", user_exponent=0.5, item_exponent=0.3),
            ItemKNN(20, 0),
        ]
        near = ItemKNN(300, 0, "gram", item_exponent=0.3)
        filters = [GFCF(), GFCF(64, -0.5, 0.4, 0.4, 2), GFCF(32, 1, 0.3, 0.3, 1)]
        filters += [GFCF(256, 0.3, 0, 0.5), GFCF(512, 0.1, 0, 0.5)]
        balances, ridges = ((0.25, 0.5), (0, 1)), (300, 100, 1000)
        # Many factors that weigh what was seen heavily for sparse logs, few that do not for dense ones.
        als = [ALS(256, 100, 200, nu=1), ALS(64), ALS(256, 100, 500, nu=1)]
        als += [ALS(512, 100, 200, nu=1)] if on_gpu else []
    most: int | Literal["all"] = "all" if on_gpu or pairs.n_items <= _EASE_ITEMS else _EASE_ITEMS
    width, shared = (256, 4096) if on_gpu else (128, 1024)
    settings = Settings(batch=4096 if len(pairs) > 200_000 else 1024, patience=4, eval_users=MOST_USERS, average=False)

    def softmax(temperature: float, encoder: Encoder) -> Method:
        loss = Softmax(temperature=temperature, shared=shared)
        return Trained(UniformSampler(), loss, encoder, settings, "softmax")

    return {
        "popular": [Popular(half_life=h, log=True) for h in ((0.05, 0.02, 0.2) if aim == "next" else (0,))],
        "itemknn": list(knn),
        **({"nearby": [replace(near, window=w) for w in (20, 5)]} if pairs.timestamps is not None else {}),
        "gfcf": list(filters),
        "ease": [EASE(l2=l2, balance=b, lift=lift, max_items=most) for b, lift in balances for l2 in ridges],
        "als": list(als),
        "softmax": [softmax(temperature, MF(dim=width)) for temperature in (0.1, 0.2, 0.07, 0.14)],
        **({"lightgcn": [softmax(t, LightGCN(dim=width, layers=1)) for t in (0.1, 0.07, 0.2)]} if on_gpu else {}),
    }
