"""Optuna behind a few calls: where trials are kept, which point comes next, what has finished.

A search must survive a killed process and end the same: the next points depend on the trials before them
alone, and those that were cut off are trained again under their own numbers.
"""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.experiments.search_result import Goal, Trial, Verdict
from evenhand.experiments.search_space import Space
from evenhand.utils.atomic import atomic_file, one_process
from evenhand.utils.errors import InputError, RunError, written_by_us

AT_RANDOM = 10
"""Trials before the finished ones have a say; in groups, as many whole groups as that holds."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A point that the search wants to know the value of, and Optuna's trial for it."""

    parameters: Mapping[str, Any]
    trial: Any


class Study:
    """A search in progress. Several processes may share a database; a file belongs to one at a time."""

    def __init__(
        self, study: Any, where: str, space: Space, start: Mapping[str, Any], seed: int, *, shared: bool
    ) -> None:
        self._study, self._where, self._space = study, where, space
        self._start, self._seed, self._shared = dict(start), seed, shared
        self._open: list[Asked] = []
        with storage_errors(where, InputError):
            self._counts()
            self.finished()
            if not shared:
                self._take_over()

    def finished(self) -> list[Trial]:
        from optuna.trial import TrialState

        with storage_errors(self._where, RunError):
            found = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        ordered = enumerate(sorted(found, key=lambda one: one.number), start=1)
        with _as_kept(self._where):
            goals = len(self._study.directions)
            return [_kept_trial(place, one, self._space, goals) for place, one in ordered]

    def asked(self, size: int, trials: int) -> list[Asked]:
        """The next points to evaluate, of a search for `trials` trials.

        They come in groups that end where the number of trials is a multiple of `size`. When all of a group
        are finished the next group is asked for: the start first, later what the finished trials suggest.
        """
        with storage_errors(self._where, RunError):
            done, running, _ = self._counts()
            total = done + running
            wanted = -total % size if self._open else size - total % size
            wanted = min(wanted, trials - total)
            for _ in range(wanted if self._open else max(1, wanted)):
                self._open.append(self._ask(size))
            return self._open[: trials - done]

    def tell(self, asked: Asked, verdict: Verdict, seconds: float) -> None:
        with storage_errors(self._where, RunError):
            asked.trial.set_user_attr("seconds", seconds)
            if verdict.margins:
                asked.trial.set_user_attr("margins", list(verdict.margins))
            if verdict.problem:
                asked.trial.set_user_attr("problem", verdict.problem)
            self._study.tell(asked.trial, verdict.values)
        self._open.remove(asked)

    def give_up(self) -> None:
        """The trials at hand were interrupted: they do not count, and their points come up again.

        In a file they are left as they are, for whoever goes on there; in a database another process may.
        """
        from optuna.trial import TrialState

        if not self._shared:
            return
        with storage_errors(self._where, RunError):
            for asked in self._open:
                self._study.tell(asked.trial, state=TrialState.FAIL)
                self._study.enqueue_trial(asked.trial.params)
        self._open.clear()

    def _ask(self, size: int) -> Asked:
        import optuna

        done, running, waiting = self._counts()
        if not done and not self._open and not waiting:
            self._study.enqueue_trial(self._start)
        # A generator of its own for every trial: a search that was interrupted draws as if it was not,
        # and processes that share a database do not all draw the same.
        key = np.random.SeedSequence([self._seed, done + running]).generate_state(1)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Points that are being tried count as bad ones, so that a group spreads out. With two metrics it
            # was better to look at all parameters together (benchmarks/search_samplers.py).
            self._study.sampler = optuna.samplers.TPESampler(
                seed=int(key),
                constant_liar=True,
                n_startup_trials=max(1, AT_RANDOM // size) * size,
                multivariate=True if len(self._study.directions) > 1 else None,
            )
            warnings.simplefilter("ignore", UserWarning)  # a point outside of the space is refused below
            trial = self._study.ask({name: span.distribution() for name, span in self._space.items()})
        return self._asked(trial.params, trial)

    def _counts(self) -> tuple[int, int, int]:
        """How many trials have finished, how many run, and how many wait to be asked for again."""
        from optuna.trial import TrialState

        states = [one.state for one in self._study.get_trials(deepcopy=False)]
        done, running, waiting = map(states.count, (TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING))
        return done, running, waiting

    def _take_over(self) -> None:
        """What runs here died with another process: its trials are ours, where their points are complete."""
        import optuna

        for one in self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            if set(one.params) == set(self._space):
                self._open.append(self._asked(one.params, optuna.trial.Trial(self._study, one._trial_id)))
            else:
                self._study.tell(one.number, state=optuna.trial.TrialState.FAIL)

    def _asked(self, values: Mapping[str, Any], trial: Any) -> Asked:
        with _as_kept(self._where):
            return Asked(_kept_point(values, self._space), trial)


def _as_kept(where: str) -> AbstractContextManager[None]:
    """Others may have written there: what evenhand cannot have written is refused in one sentence."""
    return written_by_us(where, "trials", "name another folder or --study, or begin again with --force")


def _kept_trial(place: int, one: Any, space: Space, goals: int) -> Trial:
    """One of Optuna's finished trials as ours; `place` is its number among them."""
    notes = one.user_attrs
    values, margins = tuple(map(float, one.values)), tuple(notes.get("margins", ()))
    seconds, problem = float(notes.get("seconds", 0)), notes.get("problem")
    if len(values) != goals or len(margins) not in (0, goals) or not isinstance(problem, str | None):
        raise ValueError(f"trial {place} is not one of this search")
    if not all(math.isfinite(number) for number in (*values, *margins, seconds) if number is not None):
        raise ValueError(f"trial {place} has something that is no number")
    return Trial(place, _kept_point(one.params, space), Verdict(values, margins, problem), seconds)


def _kept_point(values: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The parameters that are searched, tidied; each must lie where the search looks."""
    found = {name: span.tidy(values[name]) for name, span in space.items()}
    for name, span in space.items():
        if span.nearest(found[name]) != found[name]:
            raise ValueError(f"{name} lies outside of {span}")
    return found


@contextmanager
def open_study(
    storage: str | Path | None,
    name: str,
    space: Space,
    start: Mapping[str, Any],
    identity: Mapping[str, str],
    seed: int,
    goals: Sequence[Goal],
) -> Iterator[Study]:
    """Begin a search or go on with it; `storage` is a file (Path), a database's URL, or memory (None).

    `identity` says what is searched, and a study of that name that searches anything else is refused.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # a line for every trial is no news here
    where = _without_password(storage) if storage else "memory"

    def created(there: Any) -> Any:
        return optuna.create_study(
            storage=there,
            study_name=name,
            directions=["maximize" if goal.rises else "minimize" for goal in goals],
            load_if_exists=True,
        )

    with _opened(storage, where, created) as opened:
        with storage_errors(where, InputError):
            study = created(opened)
            before = study.user_attrs.get("identity")
            if before is None and not study.get_trials(deepcopy=False):
                before = dict(identity)
                study.set_user_attr("identity", before)
        if before != dict(identity):
            before = before if isinstance(before, dict) else {}
            other = sorted(key for key in {*before, *identity} if before.get(key) != identity.get(key))
            raise InputError(
                f"{where} holds a search '{name}' that differs in {', '.join(other)}; give the same as when "
                "it was started, another folder or another --study."
            )
        yield Study(study, where, space, start, seed, shared=isinstance(storage, str))


@contextmanager
def _opened(storage: str | Path | None, where: str, created: Callable[[Any], Any]) -> Iterator[Any]:
    if not isinstance(storage, Path):
        yield storage
        return
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    with one_process(storage.parent):
        with storage_errors(where, InputError):
            if storage.exists() and storage.stat().st_size:
                _mend(storage)
            else:
                _begin(storage, created)
            for left in storage.parent.glob(f"{storage.name}.lock*"):
                left.unlink()  # a killed process left it, and no other one works here
            file = str(storage)
            opened = JournalStorage(JournalFileBackend(file, lock_obj=JournalFileOpenLock(file)))
        yield opened


def _begin(journal: Path, created: Callable[[Any], Any]) -> None:
    """The journal comes into being with its first lines: Optuna would make an empty file and then write to it."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import BaseJournalBackend

    class Lines(BaseJournalBackend):
        def __init__(self) -> None:
            self.logs: list[dict[str, Any]] = []

        def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
            yield from self.logs[log_number_from:]

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            self.logs += logs

    first = Lines()
    created(JournalStorage(first))
    with atomic_file(journal) as partial:
        partial.write_text("".join(json.dumps(log, separators=(",", ":")) + "\n" for log in first.logs))


def _mend(journal: Path) -> None:
    """Cut off a last line that a killed process left half written; Optuna would append to it."""
    with journal.open("r+b") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
            os.fsync(file.fileno())


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
