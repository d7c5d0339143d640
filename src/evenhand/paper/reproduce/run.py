"""Work through a part of the paper's experiments, keep what is finished, and go on where it was left."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.data.splits import Split
from evenhand.paper.reproduce import people
from evenhand.paper.reproduce.fits import batches, fit_batch, forget
from evenhand.paper.reproduce.recipes import Recipe, recipe, swept
from evenhand.paper.reproduce.record import Record, open_record, work_folder, writing
from evenhand.paper.reproduce.request import Request
from evenhand.utils.errors import InputError, RunError, StoppedError
from evenhand.utils.locks import one_process
from evenhand.utils.progress import OnEpoch

Tell = Callable[[str], None]
Bars = Callable[[str], OnEpoch | None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The record of a part, and which of the rows asked for it still lacks."""

    record: Record
    missing: tuple[str, ...]
    failed: dict[str, str]
    """Those among them that could not be trained, and why."""


def recipes_for(request: Request, asked: Sequence[str]) -> list[Recipe]:
    """The rows asked for, every name and value understood; nothing is trained yet."""
    make = recipe if request.part == "overall" else swept
    found = [make(request, text) for text in dict.fromkeys(text.strip() for text in asked) if text]
    if not found:
        raise InputError("no method was named; leave --methods out for all of them.")
    return found


def reproduce(
    request: Request,
    split: Split,
    asked: Sequence[str],
    folder: Path,
    *,
    device: str = "auto",
    minutes: float | None = None,
    tell: Tell = lambda line: None,
    bars: Bars | None = None,
) -> Outcome:
    """Make the rows that the folder does not have yet.

    `asked` are methods, or values of a sweep as they are published. After `minutes` the work stops with
    what is finished, a training in progress at its last checkpoint; the same call goes on with it.
    """
    recipes = recipes_for(request, asked)
    clock = _Clock(minutes)
    with one_process(folder):
        record = open_record(folder, request, split)
        for one in recipes:
            _check_same(one, record)
        pending = [one for one in recipes if one.label not in record.entries]
        if len(pending) < len(recipes):
            tell(f"{len(recipes) - len(pending)} of {len(recipes)} rows are there already.")
        with writing(folder):
            work = work_folder(folder) / request.name
        record.write()
        done, failed = 0, dict[str, str]()
        for batch in batches(pending, request, device):
            if clock.is_over:
                break
            name = batch[0].label if len(batch) == 1 else f"{len(batch)} values of {request.part}"
            bar = bars(name) if bars else None
            try:
                finished = fit_batch(batch, request, split, work, device, clock.watching(bar))
            except StoppedError:
                if clock.is_over:
                    break
                raise StoppedError(f"stopped in {name}; all is saved: the same command goes on.") from None
            except RunError as problem:
                failed |= {one.label: str(problem) for one in batch}
                tell(f"{name}: failed: {problem}")
                continue
            for row in finished:
                with writing(folder):
                    people.keep(work, row.label, row.people)
                record.add(row.label, row.entry)
            forget(batch, work, device)
            if request.part == "overall":
                known = record.document["over_users"]
                record.document["over_users"] = people.intervals(work, list(record.entries), known)
                record.write()
            done += len(batch)
            tell(f"{name}: done; {done} of {len(pending)}{clock.estimate(done, len(pending))}")
    missing = tuple(one.label for one in pending if one.label not in record.entries)
    return Outcome(record, missing, failed)


def _check_same(one: Recipe, record: Record) -> None:
    """A row that is there must have been made with the numbers it would be made with now.

    Numbers that only one of them knows, because an option is newer than the row, do not count.
    """
    now, then = _flat(json.loads(json.dumps(one.to_json()))), _flat(record.entries.get(one.label, {}))
    differing = [name for name in now if name in then and now[name] != then[name]]
    if differing:
        raise InputError(
            f"{record.path} has '{one.label}' with another {' and '.join(differing)}; choose another --out."
        )


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """Every number by a name such as "training lr"."""
    parts = {name: part if isinstance(part, dict) else {"": part} for name, part in entry.items()}
    return {f"{name} {key}".strip(): value for name, part in parts.items() for key, value in part.items()}


class _Clock:
    """How long the work has taken, may take, and will take at this pace."""

    def __init__(self, minutes: float | None) -> None:
        if minutes is not None and not minutes > 0:
            raise InputError(f"--time-limit takes minutes above 0, not {minutes:g}.")
        self.began = time.monotonic()
        self.limit = None if minutes is None else 60 * minutes

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.elapsed >= self.limit

    def watching(self, then: OnEpoch | None) -> OnEpoch | None:
        """An epoch callback that asks training to save and stop, as Ctrl-C does, when the time is up."""
        if self.limit is None or threading.current_thread() is not threading.main_thread():
            return then

        def on_epoch(epoch: int, most: int, news: object) -> None:
            if then is not None:
                then(epoch, most, news)  # type: ignore[arg-type]
            if self.is_over and epoch < most:
                signal.raise_signal(signal.SIGINT)

        return on_epoch

    def estimate(self, done: int, total: int) -> str:
        """Time left if the rest goes as fast as what is done.

        >>> _Clock(None).estimate(1, 1)
        '.'
        """
        if done == total:
            return "."
        left = self.elapsed / done * (total - done)
        return f", about {left / 60:.0f} min left." if left >= 90 else f", about {left:.0f} s left."
