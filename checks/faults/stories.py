"""One piece of work from its start to its end, through all kills, and what was lost on the way."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checks.faults import state
from checks.faults.life import Death, Life, forked
from checks.faults.works import Work

Run = Callable[[Life, Path, float | None], Death]

LEFT = re.compile(r"lock|tables/\.work.*|([a-z]+/)?\.([a-z0-9-]+\.)?checkpoints\.old.*")
"""A working folder and a lock that stay, and the checkpoints of a finished run that is killed while it removes them,
until the next run in that folder."""


@dataclass
class Tally:
    """What is counted over all kills of a kind of work."""

    kills: int = 0
    stories: int = 0
    equal: int = 0
    """Stories whose end equals that of an undisturbed run to the bit."""
    lost_epochs: int = 0
    """Epochs that were trained again although a checkpoint had them."""
    lost_trials: int = 0
    """Trials of a search, rows of a table or parts of a blend that were finished, and then gone or fitted again."""
    broken: int = 0
    """Times that a visible file was neither the old one nor the new one, or not whole."""
    litter: int = 0
    """Stories that left something behind which a finished run does not."""
    troubles: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.stories == self.equal and not (
            self.lost_epochs or self.lost_trials or self.broken or self.litter or self.troubles
        )

    def add(self, other: Tally) -> None:
        for name in ("kills", "stories", "equal", "lost_epochs", "lost_trials", "broken", "litter"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.troubles += other.troubles


@dataclass(frozen=True)
class Stage:
    """A kind of work with its inputs, the output that was there before, and the one it must come to."""

    work: Work
    inputs: Path
    home: Path
    old: dict[str, Any]
    new: dict[str, Any]
    trials: list[Any]
    """The values of a search; a trial that was cut off is begun anew under another number."""
    seconds: float
    operations: int

    @classmethod
    def of(cls, work: Work, inputs: Path, home: Path) -> Stage:
        """Run it undisturbed."""
        (home / "older").mkdir(parents=True)
        older = work.older_life(inputs, home / "older")
        if older is not None:
            made = forked(older, home)
            assert made.code == 0, made.err
        shutil.copytree(home / "older", home / "whole", symlinks=True)
        ended = forked(work.life(inputs, home / "whole"), home)
        assert ended.code == 0, f"{work.name}: {ended.err}"
        return cls(
            work,
            inputs,
            home,
            state.untimed(state.visible(home / "older")),
            state.untimed(state.visible(home / "whole")),
            list(state.finished_trials(home / "whole" / "search" / "trials.log").values()),
            ended.seconds - ended.compiling,  # the others load what this one may have compiled
            ended.operations,
        )

    def story(self, run: Run, ends: Callable[[int], dict[str, Any]]) -> Tally:
        """Kill it as `ends` says for its first, second, … life, until one ends by itself."""
        out = self.home / "story"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.home / "older", out, symlinks=True)
        tally, known = Tally(stories=1), _Known()
        for number in range(100):
            if number and self._is_done(out):
                break
            end = dict(ends(number))
            after = end.pop("after", None)
            life = self.work.life(self.inputs, out, again=self.goes_on(out, number), **end)
            death = run(life, self.home, after)
            known.compare(death, out, tally)
            self.look(out, tally)
            if death.killed:
                tally.kills += 1
            elif death.code == 0:
                break
            else:
                tally.troubles.append(f"{self.work.name}: exit {death.code}: {death.err.strip()[-300:]}")
                return tally
        self.judge(out, tally)
        return tally

    def goes_on(self, out: Path, number: int) -> bool:
        """Whether to ask for the rest, or once more for all of it."""
        return number > 0 and (not self.work.trains or self.work.older is None or bool(_unfinished(out)))

    def _is_done(self, out: Path) -> bool:
        """Killed after its last word: there is nothing left to go on with."""
        return self.work.trains and not _unfinished(out) and state.untimed(state.visible(out)) == self.new

    def look(self, out: Path, tally: Tally) -> None:
        files = state.visible(out)
        wrong = state.broken(files)
        now = state.untimed({name: content for name, content in files.items() if name not in wrong})
        if self.work.older is not None:
            wrong += [n for n in now if now[n] not in (self.old.get(n), self.new.get(n))]
            if self.work.together and not self._is_one_of_both(now, out):
                wrong.append("a mixture")
        tally.broken += bool(wrong) + state.torn_checkpoints(out)
        tally.troubles += [f"{self.work.name}: broken {wrong}"] if wrong else []

    def _is_one_of_both(self, now: dict[str, Any], out: Path) -> bool:
        """A model without its config.json is none, and its run goes on."""
        unfinished = _unfinished(out) and not any(name.endswith("config.json") for name in now)
        return bool(unfinished) or now in (self.old, self.new)

    def judge(self, out: Path, tally: Tally) -> None:
        now = state.untimed(state.visible(out))
        trials = list(state.finished_trials(out / "search" / "trials.log").values())
        same = now == self.new and trials == self.trials
        tally.equal += same
        if not same:
            names = {n for n in {*now, *self.new} if now.get(n) != self.new.get(n)}
            tally.troubles.append(f"{self.work.name}: not equal in {sorted(names)}")
        left = [name for name in state.litter(out) if not LEFT.fullmatch(name)]
        tally.litter += bool(left)
        tally.troubles += [f"{self.work.name}: left {left}"] if left else []


class _Known:
    """The most that was ever safe, against which every later life is held."""

    def __init__(self) -> None:
        self.epochs: dict[str, int] = {}
        self.trials: dict[int, Any] = {}
        self.rows: dict[str, Any] = {}
        self.parts: set[str] = set()

    def compare(self, death: Death, out: Path, tally: Tally) -> None:
        for folder, trained in death.epochs.items():
            again = [epoch for epoch in trained if epoch <= self.epochs.get(folder, 0)]
            tally.lost_epochs += len(again)
            tally.troubles += [f"trained again in {folder}: {again}"] if again else []
        there = {folder: len(history) for folder, history in state.saved_epochs(out).items()}
        for folder, epochs in (*death.saved.items(), *there.items()):
            self.epochs[folder] = max(self.epochs.get(folder, 0), epochs)
        trials = state.finished_trials(out / "search" / "trials.log")
        rows = state.rows_on_record(out / "tables")
        for before, now in ((self.trials, trials), (self.rows, rows)):
            lost = [key for key in before if now.get(key) != before[key]]
            tally.lost_trials += len(lost)
            tally.troubles += [f"gone: {lost}"] if lost else []
        self.trials, self.rows = trials, rows
        again = [part for part in death.parts if part in self.parts]
        tally.lost_trials += len(again)
        tally.troubles += [f"fitted again: {again}"] if again else []
        self.parts |= state.finished_parts(out)


def _unfinished(out: Path) -> list[Path]:
    return [*out.glob("*/.checkpoints"), *out.glob(".*.checkpoints")]
