"""What a comparison says: who wins, by how much, whether that is more than chance, and for which aim.

Each kind of test asks something else (`AIMS`): a method may be best at one and poor at another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from evenhand.metrics.catalogue import FRONT, GLANCE, HEADLINE, METRICS
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.statistics import Estimate, brief, compare_metric, estimate_metric
from evenhand.training.evaluation import Results
from evenhand.training.method import Fit, Method
from evenhand.training.settings import ProtocolName
from evenhand.utils.errors import InputError, unknown

T = TypeVar("T")
ACCURACY = FRONT[0]


@dataclass(frozen=True)
class Aim:
    """A kind of test, and the question that it answers."""

    how: str
    """The rule that draws it (see `split_rules.RULES`)."""
    title: str
    aim: str
    """To follow "To"."""


AIMS: Mapping[str, Aim] = {
    "iid": Aim("random", "predicts the log", "predict the log"),
    "shift": Aim("popularity-shift", "finds each item its users", "find each item its users"),
    "time": Aim("time", "predicts what comes next", "predict what comes next"),
}
_ELSEWHERE = {
    "given": Aim("given", "predicts the given test", "predict the given test"),
    "uniform exposure": Aim("uniform", "liked when shown at random", "show what users would like if shown at random"),
}
"""Tests that no rule draws out of a log."""
_KIND = {"random": "iid", "per-user": "iid", "popularity-shift": "shift", "time": "time", "leave-last-out": "time"}


def aims_named(tests: str | Sequence[str]) -> tuple[str, ...]:
    """`iid,shift,time` as names, each once."""
    names = tuple(text.strip() for text in (tests.split(",") if isinstance(tests, str) else tests) if text.strip())
    for name in names:
        if name not in AIMS:
            raise unknown("test", name, AIMS)
    if not names or len(set(names)) != len(names):
        raise InputError(f"name one or more tests, each once: {', '.join(AIMS)}.")
    return names


def kind_of(how: str) -> str:
    """Which kind of test a split holds; a test part that came from elsewhere has no name but "given"."""
    return _KIND.get(how, "given")


@dataclass(frozen=True)
class Answer:
    """One test: how accurate each method is, which is chosen, and which are as good within the uncertainty."""

    title: str
    aim: str
    k: int
    values: Mapping[str, Mapping[str, Estimate]]
    """Method's label → metric → value with its interval over users."""
    best: str
    level: tuple[str, ...]
    """Other methods that are no worse than the best beyond the uncertainty."""
    chosen_on: str
    """validation, or test where nothing was held out to choose on."""

    def to_json(self) -> dict[str, Any]:
        return {
            "question": self.title,
            "k": self.k,
            "best": self.best,
            "level_with_best": list(self.level),
            "chosen_on": self.chosen_on,
            "methods": {
                label: {name: one.to_json() for name, one in each.items()} for label, each in self.values.items()
            },
        }


def answer(
    kind: str, results: Mapping[str, Results], validation: Mapping[str, Sequence[float] | None], k: int
) -> Answer | None:
    """What one test says of the methods; None without a test part. `kind` is a name of `AIMS`, or any other words.

    The best is chosen on validation where all methods have it.
    """
    if not all(k in found for found in results.values()):
        return None
    users = {label: [one.users for one in found[k]] for label, found in results.items()}
    held = {label: float(np.mean(each)) for label, each in validation.items() if each is not None}
    chosen_on = "validation" if len(held) == len(users) else "test"
    values = {
        label: {name: estimate_metric(each, name) for name in dict.fromkeys((ACCURACY, *GLANCE))}
        for label, each in users.items()
    }
    ranked = held if chosen_on == "validation" else {label: each[ACCURACY].value for label, each in values.items()}
    best = max(ranked, key=lambda label: ranked[label])
    same = dict(zip(users, paired(*users.values()), strict=True))
    level = [label for label in users if label != best and not _worse(same[label], same[best])]
    words = AIMS.get(kind) or _ELSEWHERE.get(kind) or Aim(kind, kind, f"do well in the test {kind}")
    return Answer(words.title, words.aim, k, values, best, tuple(level), chosen_on)


def _worse(a: Sequence[UserMetrics], b: Sequence[UserMetrics]) -> bool:
    found = compare_metric(a, b, ACCURACY)
    return found.beyond_uncertainty and found.users is not None and found.users.difference < 0


def aims_sentence(answers: Mapping[str, Answer]) -> str:
    """The method for each aim, and whether one serves all."""
    sentences = " ".join(_sentence(one) for one in answers.values())
    # Chosen for one aim and no worse than the choice for every other one.
    serving = [
        label
        for label in dict.fromkeys(one.best for one in answers.values())
        if all(label == one.best or label in one.level for one in answers.values())
    ]
    if len({one.best for one in answers.values()}) == 1:
        return f"{sentences} {serving[0]} is the choice for {'both' if len(answers) == 2 else 'all'}."
    if serving:
        return f"{sentences} {serving[0]} serves {'both' if len(answers) == 2 else 'all'} within the uncertainty."
    return f"{sentences} No method serves {'both' if len(answers) == 2 else 'all'}: choose by your aim."


def _sentence(one: Answer) -> str:
    found = one.values[one.best]
    accuracy, reach = f"{METRICS[ACCURACY].title}@{one.k} {found[ACCURACY].value:.4f}", found["coverage"].value
    level = f"; level with {', '.join(one.level)}" if one.level else ""
    return f"To {one.aim}: {one.best} ({accuracy}; {100 * reach:.0f} % of the items reach somebody{level})."


BASELINE = "rns"


def headline_k(ks: Sequence[int]) -> int:
    """The list length of a summary."""
    return 10 if 10 in ks else min(ks)


def verdict(methods: Sequence[Method], fits: Mapping[str, Fit], protocol: ProtocolName, ks: Sequence[int]) -> str:
    """Which method is best, and how it compares with random negatives in accuracy and exposure.

    The best is chosen where the protocol chooses: on validation, or (as in the paper) on test.
    """
    k = headline_k(ks)
    validated = protocol == "honest" and all(fit.validation is not None for fit in fits.values())

    def accuracy(one: Method) -> float:
        fit = fits[one.label]
        return float(np.mean(fit.validation or ())) if validated else _mean(fit, k, "ndcg")

    best = max(methods, key=accuracy)
    basis = "validation" if validated else "test, as in the paper" if protocol == "paper" else "test"
    base = next((c for c in methods if c.name == BASELINE), None)
    opening = f"Best on {basis}: {best.label}"
    if base is None:
        return f"{opening}. Add rns to the methods to see how it compares with random negatives."
    if base is best:
        return f"{opening}, random negatives themselves: no other method was more accurate."
    new, old = fits[best.label], fits[base.label]
    return f"{opening}, against random negatives: {_accuracy(new, old, k)}; {_bias(new, old, k)}."


def _accuracy(new: Fit, old: Fit, k: int) -> str:
    now, before = (_mean(fit, k, "ndcg") for fit in (new, old))
    more = "more" if now >= before else "less"
    by = f"{100 * abs(now / before - 1):.1f} % " if before else ""
    return f"{by}{more} accurate (NDCG@{k} {now:.4f}, was {before:.4f}), {_certainty(new, old, k, 'ndcg')}"


def _bias(new: Fit, old: Fit, k: int) -> str:
    title = METRICS[HEADLINE].title
    now, before = (_mean(fit, k, HEADLINE) for fit in (new, old))
    if math.isnan(now) or math.isnan(before):
        return f"the {title.lower()}@{k} is undefined, so that exposure cannot be compared"
    more = "farther from" if now >= before else "nearer to"
    return (
        f"{100 * abs(now - before):.1f} points of exposure {more} demand "
        f"({title}@{k} {now:.4f}, was {before:.4f}), {_certainty(new, old, k, HEADLINE)}"
    )


def headline(results: Results) -> str:
    """The two figures that sum a fit up, with their intervals over users; empty without a test part."""
    if not results:
        return ""
    k = headline_k(tuple(results))
    users = [one.users for one in results[k]]
    found = {name: estimate_metric(users, name) for name in FRONT}
    values = [
        f"{METRICS[name].title}@{k} {'undefined' if math.isnan(one.value) else brief(one)}"
        for name, one in found.items()
    ]
    meaning = f"{METRICS[HEADLINE].title}: {METRICS[HEADLINE].meaning}"
    return f"{'; '.join(values)}. {meaning}, from 0 to 1."


def _mean(fit: Fit, k: int, name: str) -> float:
    return float(np.mean([result.metrics[name] for result in fit.results[k]]))


def _certainty(new: Fit, old: Fit, k: int, name: str) -> str:
    a, b = paired(*([result.users for result in fit.results[k]] for fit in (new, old)))
    test = compare_metric(a, b, name)
    return f"{'beyond' if test.beyond_uncertainty else 'within'} the uncertainty by {test.rests_on}"


def paired(*sides: list[T]) -> list[list[T]]:
    """Results by seed, as many for everyone: what does not depend on the seed has one, which stands for every seed.

    >>> paired([1, 2], [3])
    [[1, 2], [3, 3]]
    """
    seeds = max(map(len, sides))
    return [side * seeds if len(side) == 1 else side for side in sides]
