"""Progress of long work: loss, metric and time left on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

OnEpoch = Callable[[int, int, Mapping[str, Any]], None]
"""Called with (epochs done, epochs at most, the epoch's record)."""


@contextmanager
def contender_bars(total: int) -> Iterator[Callable[[str], OnEpoch | None] | None]:
    """Yields a function that opens a bar for the next of `total` fits and returns its epoch callback."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    with _bar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    ) as bar:
        begun = 0

        def start(label: str) -> OnEpoch:
            nonlocal begun
            begun += 1
            place = f"{label} ({begun} of {total})" if total > 1 else label
            task = bar.add_task(place, total=None, news="")

            def on_epoch(done: int, most: int, record: Mapping[str, Any]) -> None:
                bar.update(task, completed=done, total=most, news=news(record))

            return on_epoch

        yield start


@contextmanager
def epoch_bar(label: str, show: bool = True) -> Iterator[OnEpoch | None]:
    """Yields an epoch callback for one fit, or None where there is no terminal to draw on."""
    if not show:
        yield None
        return
    with contender_bars(1) as start:
        yield start(label) if start else None


@contextmanager
def download_bar(label: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Yields a callback for (bytes done, bytes in all)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    with _bar(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _bar(*columns: Any) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def news(record: Mapping[str, Any]) -> str:
    """The epoch in a few words: loss and the leading metric, averaged over replicas.

    >>> news({"loss": [0.5, 0.3], "metrics": {"ndcg@10": [0.2, 0.4]}})
    'loss 0.400  ndcg@10 0.300'
    """
    if not record:
        return "done"
    metrics = record.get("metrics", {})
    leading = "ndcg@10" if "ndcg@10" in metrics else next(iter(metrics), None)
    words = [f"loss {np.mean(record['loss']):.3f}"] if "loss" in record else []
    return "  ".join(words if leading is None else [*words, f"{leading} {np.mean(metrics[leading]):.3f}"])
