"""A search on two metrics made by hand, with every part its page can show."""

from __future__ import annotations

from dataclasses import replace

from evenhand.experiments.search_result import Pick, Trial, TuneResult, Verdict, parse_goals, picked_trial
from evenhand.experiments.search_space import search_space
from evenhand.methods import parse

FRONT = ((0.400, 0.680), (0.395, 0.650), (0.380, 0.645), (0.350, 0.640))
"""Trials 2 to 5, whose knee is trial 3."""


def sample_search(label: str = "bc-loss", problem: str = "the loss became infinite", pick: Pick = "knee") -> TuneResult:
    """The defaults, four trials on the front, one beside it, one far away and one that failed."""
    asked = parse("bc-loss")
    setup = replace(asked, asked=label)
    space, goals = search_space(parse("bc-loss")), parse_goals("ndcg@10,ohr@10")
    values = [(0.370, 0.660), *FRONT, (0.372, 0.655), (0.050, 0.950)]
    verdicts = [Verdict(value, (0.012, 0.010)) for value in values]
    verdicts.append(Verdict((0.0, 1.0), (), problem))
    present = setup.parameters()
    trials = tuple(
        Trial(n, {name: present[name] for name in space} | {"lr": 0.001 * n}, verdict, 1.5 * n)
        for n, verdict in enumerate(verdicts, start=1)
    )
    picked = picked_trial(trials, goals, pick)
    return TuneResult(
        setup.having(picked.parameters), picked, goals, trials, space, {}, pick, notes=("A note to be read.",)
    )


def bare_search() -> TuneResult:
    """One trial, without intervals."""
    whole = sample_search()
    only = replace(whole.trials[0], verdict=Verdict((0.37, 0.66), (None, None)))
    return replace(whole, trials=(only,), picked=only, notes=())
