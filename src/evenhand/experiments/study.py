"""Optuna behind a few calls: where trials are kept, which point comes next, what has finished.

A search must survive a killed process and end the same: the next point depends on the finished trials alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.errors import InputError, RunError
from evenhand.experiments.search_space import Space
from evenhand.training.checkpoint import one_process


@dataclass(frozen=True)
class Trial:
    """One setup that was tried."""

    number: int
    """Its place among the finished ones, from 1."""
    parameters: Mapping[str, Any]
    """What was searched; 1 is the starting point."""
    value: float
    """The metric on validation, mean over seeds; 0 where the trial failed."""
    seconds: float
    problem: str | None
    """Why it failed."""

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.number,
            "value": self.value,
            "parameters": dict(self.parameters),
            "seconds": round(self.seconds, 2),
            "problem": self.problem,
        }


class Study:
    """A search in progress. Several processes may share a database; a file belongs to one at a time."""

    def __init__(self, study: Any, where: str, space: Space, start: Mapping[str, Any], seed: int) -> None:
        self._study, self._where, self._space = study, where, space
        self._start, self._seed = dict(start), seed
        self._asked: Any = None

    def finished(self) -> list[Trial]:
        from optuna.trial import TrialState

        with storage_errors(self._where, RunError):
            found = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [
            Trial(
                place,
                self._tidy(one.params),
                float(one.value),
                float(one.user_attrs.get("seconds", 0)),
                one.user_attrs.get("problem"),
            )
            for place, one in enumerate(sorted(found, key=lambda one: one.number), start=1)
        ]

    def ask(self) -> dict[str, Any]:
        """The next point: first the start, then what the finished trials suggest."""
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        with storage_errors(self._where, RunError):
            trials = self._study.get_trials(deepcopy=False)
            states = [one.state for one in trials]
            done, running = states.count(TrialState.COMPLETE), states.count(TrialState.RUNNING)
            if not done and TrialState.WAITING not in states:
                self._study.enqueue_trial(self._start)
            # A generator of its own for every trial: a search that was interrupted draws as if it was not,
            # and processes that share a database do not all draw the same.
            key = np.random.SeedSequence([self._seed, done, running]).generate_state(1)[0]
            self._study.sampler = TPESampler(seed=int(key))
            self._asked = self._study.ask({name: span.distribution() for name, span in self._space.items()})
            return self._tidy(self._asked.params)

    def tell(self, value: float, seconds: float, problem: str | None = None) -> None:
        with storage_errors(self._where, RunError):
            self._asked.set_user_attr("seconds", seconds)
            if problem:
                self._asked.set_user_attr("problem", problem)
            self._study.tell(self._asked, value)

    def give_up(self) -> None:
        """The trial at hand was interrupted: it does not count, and its point comes up again."""
        from optuna.trial import TrialState

        with storage_errors(self._where, RunError):
            self._study.tell(self._asked, state=TrialState.FAIL)

    def _tidy(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: span.tidy(values[name]) for name, span in self._space.items()}


@contextmanager
def open_study(
    storage: str | Path | None,
    name: str,
    space: Space,
    start: Mapping[str, Any],
    identity: Mapping[str, str],
    seed: int,
) -> Iterator[Study]:
    """Begin a search or go on with it; `storage` is a file (Path), a database's URL, or memory (None).

    `identity` says what is searched, and a study of that name that searches anything else is refused.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a line for every trial is no news here
    where = _without_password(storage) if storage else "memory"
    with _opened(storage, where) as opened:
        with storage_errors(where, InputError):
            study = optuna.create_study(
                storage=opened, study_name=name, direction="maximize", load_if_exists=True
            )
            before = study.user_attrs.get("identity")
            if before is None:
                study.set_user_attr("identity", dict(identity))
        if before is not None and before != dict(identity):
            other = sorted(key for key in {*before, *identity} if before.get(key) != identity.get(key))
            raise InputError(
                f"{where} holds a search '{name}' that differs in {', '.join(other)}; give the same as when "
                "it was started, another folder or another --study."
            )
        if isinstance(storage, Path):
            with storage_errors(where, RunError):
                _forget_running(study)
        yield Study(study, where, space, start, seed)


@contextmanager
def _opened(storage: str | Path | None, where: str) -> Iterator[Any]:
    if not isinstance(storage, Path):
        yield storage
        return
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    lock = storage.with_name(storage.name + ".lock")
    with one_process(storage.parent):
        with storage_errors(where, InputError):
            _mend(storage)
            lock.unlink(missing_ok=True)  # a killed process may have left it, and no other one works here
            file = str(storage)
            opened = JournalStorage(JournalFileBackend(file, lock_obj=JournalFileOpenLock(file)))
        yield opened


def _mend(journal: Path) -> None:
    """Cut off a last line that a killed process left half written; Optuna would append to it."""
    if not journal.exists():
        return
    with journal.open("r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
            os.fsync(file.fileno())


def _forget_running(study: Any) -> None:
    """A file belongs to one process, so trials that run in it died with another one."""
    from optuna.trial import TrialState

    for one in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(one.number, state=TrialState.FAIL)


@contextmanager
def storage_errors(where: str, kind: type[Exception]) -> Iterator[None]:
    """Whatever a database or a file has to complain about, a person hears it in one sentence."""
    try:
        yield
    except (InputError, RunError, MemoryError):
        raise
    except Exception as problem:
        reason = (str(problem) or type(problem).__name__).splitlines()[0].rstrip(". ")
        raise kind(f"the trials cannot be kept in {where}: {_without_password(reason)}.") from problem


def _without_password(storage: str | Path) -> str:
    """
    >>> _without_password("postgresql://ann:secret@host/db")
    'postgresql://ann:…@host/db'
    """
    return re.sub(r"(//[^:/@\s]*):[^@\s]*@", r"\1:…@", str(storage))
