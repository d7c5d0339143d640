"""`tune`: search the parameters of one method on validation, the defaults first.

The test part is taken away before the search begins, so nothing of it can reach the choice; and as the
defaults are the first trial, what is best is never worse than they are on validation.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import evenhand
from evenhand.baselines import Baseline
from evenhand.data.describe import fingerprint
from evenhand.data.splits import Split
from evenhand.encoders import Encoder
from evenhand.experiments.entrants import Entrant
from evenhand.experiments.front import Pick, check_pick
from evenhand.experiments.goals import Goal, parse_goals
from evenhand.experiments.judge import Judge, tuning_split
from evenhand.experiments.search_result import TuneResult, front_trials, picked_trial
from evenhand.experiments.search_space import Space, search_space
from evenhand.experiments.setup import Setup
from evenhand.experiments.side_by_side import SideBySide, group_size, replicas_that_fit, together
from evenhand.experiments.study import Study, open_study
from evenhand.experiments.trial import Trial
from evenhand.training.run import seed_numbers
from evenhand.training.settings import ProtocolName, Settings, resolve_device
from evenhand.utils.errors import InputError, RunError, StoppedError
from evenhand.utils.progress import OnEpoch

__all__ = ["TuneResult", "tune"]


def tune(
    split: Split,
    method: str | Entrant | Baseline = "auc-ns",
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
    both, and `pick` says what to choose: the "knee" of that front (unless told), its "most-accurate" or its
    "least-biased" end. These are the best by the metric that rises and by the one that falls, or the first
    and the second where both go the same way.

    `ranges` replace or add to those of the table, `fixed` values are not searched. Trials are kept in
    `storage`: a file (Path), the URL of a database that Optuna knows, or only in memory. Where the split has
    no validation part (as under the paper protocol) a tenth of train is held out for the search.
    `side_by_side` trials are asked for at once, and those that agree in shape train as replicas of one run;
    each has the value that it has alone. `on_trial` is told, before each run and at the end, how many have
    finished and the best value.
    """
    if not isinstance(trials, int) or trials < 1:
        raise InputError(f"a search takes a number of trials from 1 on, not {trials}.")
    chosen = check_pick(pick, len(parse_goals(metric)))
    fixed = fixed or {}
    asked = Setup.of(method, encoder, settings, protocol, split.train)
    space = search_space(asked, fixed, ranges)
    if not space:
        raise InputError(f"'{asked.entrant.label}' has no parameter left to tune.")
    setup = asked.having(fixed)
    size = group_size(side_by_side, setup, resolve_device(device))
    judge = Judge(tuning_split(split), seed_numbers(seeds), metric, device)
    present = setup.parameters()
    start = {name: span.nearest(present[name]) for name, span in space.items()}
    identity = {
        "data": " ".join(fingerprint(part) for part in judge.split.parts().values()),
        # A grouping has a number for every item, so the text of a setup may be long.
        "method or settings": hashlib.sha256(repr(setup.parts()).replace("'baseline'", "'rival'").encode()).hexdigest(),
        "ranges": ", ".join(f"{name}={span}" for name, span in space.items()),
        "seeds": str(list(judge.seeds)),
        "metric": ",".join(goal.text for goal in judge.goals),
        "search seed": str(seed),
        "version of evenhand": evenhand.__version__,
    }
    name = study or setup.entrant.label
    done: list[Trial] = []
    try:
        with open_study(storage, name, space, start, identity, seed, judge.goals) as opened:
            while len(done := opened.finished()) < trials:
                if on_trial:
                    on_trial(len(done), trials, _news(done, judge.goals))
                _try_next(opened, setup, judge, size, trials)
    except (StoppedError, KeyboardInterrupt) as stop:
        rest = "run the same command again to go on (compare: with --resume)" if storage else "nothing was saved"
        raise StoppedError(f"stopped after {len(done)} of {trials} trials; {rest}.") from stop
    if on_trial:
        on_trial(len(done), len(done), _news(done, judge.goals))
    if all(trial.problem for trial in done):
        raise RunError(f"no trial of '{name}' succeeded; the last one failed because {done[-1].problem}")
    best = picked_trial(done, judge.goals, chosen)
    return TuneResult(
        setup.having(best.parameters), best, judge.goals, tuple(done), space, dict(fixed), chosen,
        notes=judge.split.notes,
    )  # fmt: skip


def _try_next(study: Study, setup: Setup, judge: Judge, size: int, trials: int) -> None:
    """A few trials that agree in shape, from the question to the answer."""
    asked = study.asked(size, trials)
    setups = [setup.having(one.parameters) for one in asked]
    where = resolve_device(judge.device)
    most = min(replicas_that_fit(one, judge.split, where) for one in setups) // len(judge.seeds)
    chosen = together(setups, min(size, max(1, most)))[0]
    began = time.perf_counter()
    try:
        verdicts = judge.verdicts([setups[place] for place in chosen])
    except BaseException:
        study.give_up()
        raise
    seconds = (time.perf_counter() - began) / len(chosen)
    for place, verdict in zip(chosen, verdicts, strict=True):
        study.tell(asked[place], verdict, seconds)


def _news(done: Sequence[Trial], goals: Sequence[Goal]) -> dict[str, Any]:
    """The state of a search, in the form of an epoch's record."""
    if not done:
        return {"metrics": {}}
    best = picked_trial(done, goals, None)
    front = f"{len(front_trials(done, goals))} on the front, " if len(goals) > 1 else ""
    return {"metrics": {f"{front}best {goals[0].text}": [best.value]}}
