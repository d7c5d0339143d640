"""A progress bar for long work: loss, metric and time left on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def epoch_bar(title: str, show: bool = True) -> Iterator[Any]:
    """Yields a callback for `train(on_epoch=…)`, or None where there is no terminal to draw on."""
    if not show or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, news="")

        def on_epoch(done: int, total: int, record: Mapping[str, Any]) -> None:
            bar.update(task, completed=done, total=total, news=news(record))

        yield on_epoch


def news(record: Mapping[str, Any]) -> str:
    """The epoch in a few words: loss and the leading metric, averaged over replicas.

    >>> news({"loss": [0.5, 0.3], "metrics": {"ndcg@10": [0.2, 0.4]}})
    'loss 0.400  ndcg@10 0.300'
    """
    words = f"loss {np.mean(record['loss']):.3f}"
    for name in ("ndcg@10", *record.get("metrics", {})):
        if name in record.get("metrics", {}):
            return f"{words}  {name} {np.mean(record['metrics'][name]):.3f}"
    return words
