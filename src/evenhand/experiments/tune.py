"""`tune`: search the parameters of one method on validation, the defaults first.

The test part is taken away before the search begins, so nothing of it can reach the choice; and as the
defaults are the first trial, what is best is never worse than they are on validation.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import evenhand
from evenhand.data.describe import fingerprint
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, held_out_share
from evenhand.encoders import Encoder
from evenhand.experiments.search_result import (
    Goal,
    Pick,
    Trial,
    TuneResult,
    Verdict,
    check_pick,
    front_trials,
    parse_goals,
    picked_trial,
)
from evenhand.experiments.search_space import Space, search_space
from evenhand.experiments.study import Study, open_study
from evenhand.methods import AnyMethod, method_of
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.statistics import CONFIDENCE, t_quantile
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import Evaluator, users_within_reach
from evenhand.training.method import Conditions, Method, default_of, own_fields
from evenhand.training.settings import ProtocolName, Settings, resolve_device
from evenhand.utils.errors import InputError, RunError, StoppedError
from evenhand.utils.progress import OnEpoch

__all__ = ["TuneResult", "tune"]

HELD_OUT = 0.1
"""Share of train that a search holds out where the split has no validation part."""
SideBySide = int | Literal["auto"]
ON_GPU = 8
"""Trials at once on a GPU, whose launches the replicas of a run share."""


def tune(
    split: Split,
    method: AnyMethod = "auc-ns",
    encoder: str | Encoder = "mf",
    *,
    trials: int = 20,
    seeds: int | Sequence[int] = 1,
    metric: str | Sequence[str] = "ndcg@10",
    pick: Pick | None = None,
    settings: Settings | None = None,
    protocol: ProtocolName = "honest",
    fixed: Mapping[str, Any] | None = None,
    ranges: Space | None = None,
    storage: str | Path | None = None,
    study: str | None = None,
    seed: int = 0,
    device: str = "auto",
    side_by_side: SideBySide = "auto",
    on_trial: OnEpoch | None = None,
) -> TuneResult:
    """Search until `trials` have finished in total, those of an earlier, interrupted call included.

    With two metrics (`("ndcg@10", "ohr@10")`), any two of ours, the search spreads along what can be had of
    both, and `pick` says what to choose: the "knee" of that front (the default), its "most-accurate" or its
    "least-biased" end. These are the best by the metric that rises and by the one that falls, or the first
    and the second where both go the same way.

    `ranges` replace or add to those of the table, `fixed` values are not searched. Trials are kept in
    `storage`: a file (Path), the URL of a database that Optuna knows, or only in memory. Where the split has
    no validation part (as under the paper protocol) a tenth of train is held out for the search.
    `side_by_side` trials are asked for at once, and those that agree in shape train as replicas of one run;
    each has the value that it has alone. `on_trial` is called, before each run and at the end, with how many have
    finished and the best value.
    """
    if not isinstance(trials, int) or trials < 1:
        raise InputError(f"a search takes a number of trials from 1 on, not {trials}.")
    chosen = check_pick(pick, len(parse_goals(metric)))
    fixed = fixed or {}
    # Nothing of the test part is needed to fill in what the method leaves to protocol and data.
    held = tuning_split(split)
    filled = Conditions(split, (0,), protocol, (1,), HotRule(), resolve_device(device))
    asked = method_of(method, encoder, settings).under(filled).closed()
    space = search_space(asked, fixed, ranges)
    if not space:
        raise InputError(f"'{asked.label}' has no parameter left to tune.")
    one = asked.having(fixed)
    size = group_size(side_by_side, one, filled.device)
    evaluator = TrialEvaluator(held, seeds, metric, device)
    present = one.parameters()
    start = {name: span.nearest(present[name]) for name, span in space.items()}
    identity = {
        "data": " ".join(fingerprint(part) for part in held.parts().values()),
        "method or settings": _digest(one),
        "ranges": ", ".join(f"{name}={span}" for name, span in space.items()),
        "seeds": str(list(evaluator.conditions.seeds)),
        "metric": ",".join(goal.text for goal in evaluator.goals),
        "search seed": str(seed),
        "version of evenhand": evenhand.__version__,
    }
    name, goals = study or one.label, evaluator.goals
    done: list[Trial] = []
    try:
        with open_study(storage, name, space, start, identity, seed, goals) as opened:
            while len(done := opened.finished()) < trials:
                if on_trial:
                    on_trial(len(done), trials, _news(done, goals))
                _try_next(opened, one, evaluator, size, trials)
    except (StoppedError, KeyboardInterrupt) as stop:
        rest = "run the same command again to go on" if storage else "nothing was saved"
        raise StoppedError(f"stopped after {len(done)} of {trials} trials", rest) from stop
    if on_trial:
        on_trial(len(done), len(done), _news(done, goals))
    if all(trial.problem for trial in done):
        raise RunError(f"no trial of '{name}' succeeded; the last one failed because {done[-1].problem}")
    best = picked_trial(done, goals, chosen)
    ready = one.having(best.parameters)
    return TuneResult(ready, best, goals, tuple(done), space, dict(fixed), chosen, notes=held.notes)


def group_size(asked: SideBySide, method: Method, device: torch.device) -> int:
    """How many trials to ask for at once; `auto` takes several only where that was measured to be faster.

    That is on a GPU where every trial has the same number of epochs. Where each stops by itself, one that is
    done costs its share until the last one of its run is. On a CPU one trial keeps the cores busy, so that
    the little that is won is not worth a search that knows less.
    """
    if asked == "auto":
        return ON_GPU if method.same_length and device.type == "cuda" else 1
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise InputError(f"trials side by side are a number from 1 on or 'auto', not '{asked}'.")
    return asked


def together(methods: Sequence[Method], most: int) -> list[list[int]]:
    """Groups of positions of methods that train together, at most `most` in one."""
    alike: dict[Hashable, list[int]] = {}
    for place, method in enumerate(methods):
        alike.setdefault(method.shape() or place, []).append(place)
    return [group[i : i + most] for group in alike.values() for i in range(0, len(group), most)]


def _try_next(study: Study, method: Method, evaluator: TrialEvaluator, size: int, trials: int) -> None:
    """A few trials that agree in shape, from the question to the answer."""
    asked = study.asked(size, trials)
    methods = [method.having(one.parameters) for one in asked]
    conditions = evaluator.conditions
    most = min(one.room_for(conditions) for one in methods) // len(conditions.seeds)
    chosen = together(methods, min(size, max(1, most)))[0]
    began = time.perf_counter()
    try:
        verdicts = evaluator.verdicts([methods[place] for place in chosen])
    except BaseException:
        study.give_up()
        raise
    seconds = (time.perf_counter() - began) / len(chosen)
    for place, verdict in zip(chosen, verdicts, strict=True):
        study.tell(asked[place], verdict, seconds)


def _digest(method: Method) -> str:
    """What is searched, as one text: names, and values that differ from their defaults.

    A parameter that a later version adds leaves it as it is.
    """
    parts = {
        kind: [
            type(part).__name__,
            {f.name: _plain(getattr(part, f.name)) for f in own_fields(part) if getattr(part, f.name) != default_of(f)},
        ]
        for kind, part in method.components().items()
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """As JSON knows it; a method among the values, as in a blend, by its description."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.description() if isinstance(value, Method) else value


def _news(done: Sequence[Trial], goals: Sequence[Goal]) -> dict[str, Any]:
    """The state of a search, in the form of an epoch's record."""
    if not done:
        return {"metrics": {}}
    best = picked_trial(done, goals, None)
    front = f"{len(front_trials(done, goals))} on the front, " if len(goals) > 1 else ""
    return {"metrics": {f"{front}best {goals[0].text}": [best.value]}}


class TrialEvaluator:
    """Fits methods and says how good they are on validation."""

    def __init__(self, split: Split, seeds: int | Sequence[int], metric: str | Sequence[str], device: str) -> None:
        self.goals = parse_goals(metric, split.n_items)
        lengths = sorted({goal.k for goal in self.goals})
        self.conditions = Conditions.of(split, seeds, "honest", lengths, None, device)

    def verdicts(self, methods: Sequence[Method]) -> list[Verdict]:
        """Each method's worth, trained side by side.

        One that cannot be trained, such as by a loss that became infinite, stops the others of its run. They
        are then tried in halves, until everyone has the values that it has alone.
        """
        try:
            return self.evaluated(methods)
        except StoppedError:
            raise
        except RunError as failure:
            if len(methods) == 1:
                return [self._failed(str(failure))]
        middle = len(methods) // 2
        return [*self.verdicts(methods[:middle]), *self.verdicts(methods[middle:])]

    def evaluated(self, methods: Sequence[Method]) -> list[Verdict]:
        """The mean over the seeds of each method, all of which must agree in shape."""
        fits, split = methods[0].fit_together(methods, self.conditions), self.conditions.split
        stopping = ("ndcg", min(STOPPING_K, split.n_items))
        if [(goal.name, goal.k) for goal in self.goals] == [stopping]:
            return [Verdict((float(np.mean(fit.validation or ())),)) for fit in fits]
        assert split.validation is not None
        sample = users_within_reach(split.validation)
        evaluator = Evaluator(split.validation, split.train, self.conditions.hot_items, self.conditions.k, sample)
        return [self._verdict(evaluator.evaluate(fit.scorers)) for fit in fits]

    def _verdict(self, seeds: Sequence[dict[int, UserMetrics]]) -> Verdict:
        values = tuple(float(np.mean([one[goal.k].mean(goal.name) for one in seeds])) for goal in self.goals)
        for goal, value in zip(self.goals, values, strict=True):
            if np.isnan(value):
                return self._failed(f"{goal.text} is undefined: there is no user to measure it on")
        if len(self.goals) == 1:
            return Verdict(values)
        return Verdict(values, tuple(_margin([one[goal.k] for one in seeds], goal) for goal in self.goals))

    def _failed(self, problem: str) -> Verdict:
        return Verdict(tuple(goal.worst for goal in self.goals), problem=problem)


def tuning_split(split: Split) -> Split:
    """Train and validation alone; where there is no validation part, a tenth of train becomes one."""
    train, validation, notes = split.train, split.validation, split.notes
    if validation is None or not len(validation):
        train, validation = held_out_share(train, HELD_OUT)
        notes = (*notes, "The search held out 10 % of train, which the final fit has again.")
    nothing = train.take(np.zeros(len(train), dtype=bool))
    return Split(train, validation, nothing, split.description, notes)


def _margin(seeds: Sequence[UserMetrics], goal: Goal) -> float | None:
    """Half of the 95 % interval over users, their values averaged over seeds; None where users are too few.

    A metric is a ratio of sums over users, of which a mean is the case where all denominators are 1.
    """
    if goal.name.endswith("_pooled"):
        rate = goal.name.removesuffix("_pooled")
        above, below = (np.mean([one.sums[f"{rate}.{side}"] for one in seeds], axis=0) for side in ("above", "below"))
    else:
        users = np.array([one.per_user(goal.name) for one in seeds])
        above, below = np.nan_to_num(users).mean(axis=0), (~np.isnan(users)).mean(axis=0)
    counted = int(np.count_nonzero(below))
    if counted < 2:
        return None
    rest = above - below * (above.sum() / below.sum())
    error = np.sqrt((rest**2).sum() * counted / (counted - 1)) / below.sum()
    return float(t_quantile(0.5 + CONFIDENCE / 2, counted - 1) * error)
