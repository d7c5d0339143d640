"""A clock that stands still while code is compiled, which happens once: budgets and estimates are about the work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_begun: list[float] = []
_took: list[float] = []


def working_time() -> float:
    """Seconds since some moment, without those of compiling."""
    return time.monotonic() - compile_time()


def compile_time() -> float:
    """Seconds for which this process has compiled so far."""
    return sum(_took)


def is_compiling() -> bool:
    return bool(_begun)


@contextmanager
def compiling() -> Iterator[None]:
    """To be held while code is compiled, by one thread at a time; what that compiles in turn is a part of it."""
    _begun.append(time.monotonic())
    try:
        yield
    finally:
        began = _begun.pop()
        if not _begun:
            _took.append(time.monotonic() - began)
