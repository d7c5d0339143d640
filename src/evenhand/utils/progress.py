"""Progress of long work on standard error: bars on a terminal, elsewhere a line with the time now and then.

Work may be nested (the epochs of a fit, the fits of a recipe): all of it shares one display. Budgets and estimates are
about the work: `working_time` stands still while code is compiled, which happens once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from statistics import fmean
from typing import Any

OnEpoch = Callable[[int, int, Mapping[str, Any]], None]
"""Called with (steps done, steps at most, what is new)."""
LINE_EVERY, SILENT_FOR = 10.0, 30.0
"""Seconds: lines come no closer than the first, and long work is never silent for longer than the second."""
_WINDOW = 20
"""Updates that the speed is taken from."""

_quiet = False
_display: Display | None = None
_began_compiling: list[float] = []
_compiled_for: list[float] = []


def working_time() -> float:
    """Seconds since some moment, without those of compiling."""
    return time.monotonic() - compile_time()


def compile_time() -> float:
    """Seconds for which this process has compiled so far."""
    return sum(_compiled_for)


def is_compiling() -> bool:
    return bool(_began_compiling)


@contextmanager
def compiling() -> Iterator[None]:
    """To be held while code is compiled, by one thread at a time; what that compiles in turn is a part of it."""
    _began_compiling.append(time.monotonic())
    try:
        yield
    finally:
        began = _began_compiling.pop()
        if not _began_compiling:
            _compiled_for.append(time.monotonic() - began)


def quiet(on: bool = True) -> None:
    """The one switch that turns all progress off, for `--quiet`."""
    global _quiet
    _quiet = on


def is_quiet() -> bool:
    """Whether it is off, for a process that is started by this one."""
    return _quiet


class Task:
    """One piece of work; call it with how much is done."""

    def __init__(self, display: Display, label: str, *, capped: bool = True) -> None:
        self._display, self.label, self._capped = display, label, capped
        self.done, self.total, self.news = 0, 0, ""
        self._times: deque[tuple[float, int]] = deque([(working_time(), 0)], maxlen=_WINDOW)

    def __call__(self, done: int, total: int, record: Mapping[str, Any] | None = None) -> None:
        self.done, self.total = done, total
        self.news = news(record) if record else ""
        self._times.append((working_time(), done))
        self._display.changed()

    def left(self) -> float | None:
        """Seconds to go, by the speed of the last updates; it falls while the next one is awaited."""
        (first, before), (last, done) = self._times[0], self._times[-1]
        if done <= before or not self.total:
            return None
        return max(0.0, (self.total - done) * (last - first) / (done - before) - (working_time() - last))

    def text(self) -> str:
        """The task as a line: `auc-ns: 12 of 200, loss 0.400, at most 3:20 left`."""
        if not self.total:
            return f"{self.label}{', compiling' * is_compiling()} …"
        words = [f"{self.done:,} of {self.total:,}", *([self.news] if self.news else [])]
        if (left := self.left()) is not None and self.done < self.total:
            words.append(f"{'at most' if self._capped else 'about'} {clock(left)} left")
        return f"{self.label}: {', '.join(words)}"


class Display:
    """Where tasks are shown; this one shows nothing."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def changed(self) -> None:
        """A task has moved."""

    def close(self) -> None:
        """Nothing more will come."""


class Lines(Display):
    """Plain lines for a log: seldom, but never silent for long."""

    def __init__(self) -> None:
        super().__init__()
        self._said, self._over = time.monotonic(), threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def changed(self) -> None:
        self._say(LINE_EVERY)

    def close(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, SILENT_FOR / 4)):
            self._say(SILENT_FOR)

    def _say(self, after: float) -> None:
        if not self.tasks or time.monotonic() - self._said < after:
            return
        self._said = time.monotonic()
        with suppress(OSError, ValueError, AttributeError):  # nobody reads it any more
            print(
                time.strftime("%H:%M:%S "), " > ".join(t.text() for t in list(self.tasks)), file=sys.stderr, flush=True
            )


class Bars(Display):
    """A bar for each task on a terminal; those below another one are indented."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._live = Live(get_renderable=self._draw, console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        rows = []
        for depth, task in enumerate(self.tasks):
            row = Table.grid(padding=(0, 1))
            head, _, tail = task.text().partition(": ") if task.total else (task.text(), "", "")
            row.add_row(
                Text("  " * depth + head),
                ProgressBar(task.total or None, task.done, width=30, pulse=not task.total),
                Text(tail),
            )
            rows.append(row)
        return Group(*rows)


@contextmanager
def task(label: str, show: bool | OnEpoch = True, *, capped: bool = True) -> Iterator[OnEpoch]:
    """Yields what to call as the work goes on; `show` may be such a function, or False for silence.

    `capped` work may end before its total, as training that stops early does.
    """
    if callable(show):
        yield show
        return
    with _shared_display(show) as display:
        mine = Task(display, label, capped=capped)
        display.tasks.append(mine)
        display.changed()
        try:
            yield mine
        finally:
            display.tasks.remove(mine)


@contextmanager
def subtask(label: str) -> Iterator[OnEpoch]:
    """A task within another one; it is shown where that one is."""
    with task(label, show=_display is not None) as update:
        yield update


@contextmanager
def tasks(total: int) -> Iterator[Callable[[str], OnEpoch]]:
    """Yields a function that begins the next of `total` tasks by its label, and ends the one before."""
    with _shared_display(), ExitStack() as present:
        numbers = count(1)

        def start(label: str) -> OnEpoch:
            present.close()
            number = next(numbers)
            return present.enter_context(task(f"{label} ({number} of {total})" if total > 1 else label))

        yield start


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Yields what to call with (the stage, steps done, steps in all)."""
    with task("starting", capped=False) as update:

        def say(stage: str, done: int, total: int) -> None:
            if isinstance(update, Task):
                update.label = stage
            update(done, total if done else 0, {})

        yield say


@contextmanager
def download(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yields what to call with (bytes done, bytes in all, where that is known)."""
    with task(f"{label}, kB", capped=False) as update:
        yield lambda done, total: update(done // 1000, (total or 0) // 1000, {})


@contextmanager
def _shared_display(show: bool = True) -> Iterator[Display]:
    """The display that is open, or a new one for as long as the block lasts."""
    global _display
    if not show or _quiet or sys.stderr is None:
        yield Display()
        return
    if _display is not None:
        yield _display
        return
    _display = Bars() if sys.stderr.isatty() else Lines()
    try:
        yield _display
    finally:
        shown, _display = _display, None
        shown.close()


def clock(seconds: float) -> str:
    """
    >>> clock(200), clock(7300)
    ('3:20', '2:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def news(record: Mapping[str, Any]) -> str:
    """The epoch in a few words: loss and the leading metric, averaged over the replicas that still train.

    >>> news({"loss": [0.5, 0.3, None], "metrics": {"ndcg@10": [0.2, 0.4, None]}})
    'loss 0.400, ndcg@10 0.300'
    """

    def mean(values: Iterable[float | None]) -> float:
        return fmean(one for one in values if one is not None)

    metrics = record.get("metrics", {})
    leading = "ndcg@10" if "ndcg@10" in metrics else next(iter(metrics), None)
    words = [f"loss {mean(record['loss']):.3f}"] if "loss" in record else []
    return ", ".join(words if leading is None else [*words, f"{leading} {mean(metrics[leading]):.3f}"])
