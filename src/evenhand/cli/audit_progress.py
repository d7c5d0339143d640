"""Progress of an audit on standard error: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evenhand.audit.sweep import Progress

EVERY = 10.0
"""Seconds between two lines; short audits stay silent."""


@contextmanager
def audit_bar() -> Iterator[Progress]:
    """Yields what `audit` calls with (what is done, users done, users in all)."""
    if not sys.stderr.isatty():
        yield lines()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task: Any = bar.add_task("starting", total=None)

        def update(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total if done else None)

        yield update


def lines(every: float = EVERY) -> Progress:
    last = time.monotonic()

    def say(stage: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            print(f"{stage}: {done:,} of {total:,}" if done else f"{stage} …", file=sys.stderr, flush=True)

    return say
