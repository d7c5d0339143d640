"""How a peer talks to the driver: one JSON line when it is ready, then one for every line that it is sent.

The driver lets contenders take turns, so a peer stays alive and waits between its rounds.
"""

import json
import os
import sys
import time
from collections.abc import Callable


def outlet() -> Callable[[dict], None]:
    """A way to answer that nothing a library prints can get into: all else goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    return say


def serve(say: Callable[[dict], None], versions: dict[str, str], epochs: Callable[[], tuple[int, float]]) -> None:
    """Answer every line of standard input with the mean seconds of an epoch; `epochs` runs some."""
    say({"versions": versions})
    for _ in sys.stdin:
        count, seconds = epochs()
        say({"epochs": count, "seconds": seconds / count})


def filled(epoch: Callable[[], None], at_least: float) -> tuple[int, float]:
    """Run whole epochs until so many seconds are full: how many, and how long they took."""
    count, began = 0, time.perf_counter()
    while not count or time.perf_counter() - began < at_least:
        epoch()
        count += 1
    return count, time.perf_counter() - began
