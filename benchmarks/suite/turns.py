"""Fair timing: contenders take turns, so that whatever else the machine does falls on all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """The seconds of one contender in each round; the best one counts."""

    rounds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.rounds)


@dataclass(frozen=True)
class Ratio:
    """How many times longer one takes than another."""

    text: str
    value: float
    """Of the best rounds."""
    low: float
    high: float
    """The smallest and largest within one round."""


def ratio(text: str, slow: Timing, fast: Timing) -> Ratio:
    """`slow` ÷ `fast`."""
    each = [a / b for a, b in zip(slow.rounds, fast.rounds, strict=True)]
    return Ratio(text, slow.best / fast.best, min(each), max(each))


def in_turns(methods: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    """Call each once to warm up and compile, then A, B, …, A, B, …; each call returns its own seconds."""
    for run in methods.values():
        run()
    took = [{name: run() for name, run in methods.items()} for _ in range(rounds)]
    return {name: Timing(tuple(one[name] for one in took)) for name in methods}


def filled(work: Callable[[], object], at_least: float) -> float:
    """Mean seconds of one `work`, repeated until so many seconds are full."""
    count, began = 0, time.perf_counter()
    while not count or time.perf_counter() - began < at_least:
        work()
        count += 1
    return (time.perf_counter() - began) / count
