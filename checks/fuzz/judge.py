"""What became of one input: taken, refused in one sentence, or a failure that has to be mended."""

from __future__ import annotations

import resource
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.utils.errors import InputError
from evenhand.utils.text import LONGEST, one_line, visible

SECONDS, PATIENCE = 10.0, 60.0
"""Of CPU and by the clock: an input that takes longer counts as a hang, also on a busy machine."""
ROOM = 2 << 30
"""Bytes of address space that inputs may take beyond what the process has when it starts."""

Read = Callable[[bytes, Path], object]


class HangError(BaseException):
    """Not an `Exception`, so that no reader can take it for a fault of its file."""


class OutsideError(AssertionError):
    """Something was written outside the folder it belongs into."""


@dataclass(frozen=True)
class Outcome:
    kind: str
    """accepted, refused, traceback, hang, memory or outside"""
    seconds: float
    told: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in ("accepted", "refused")


def attempt(read: Read, data: bytes, outer: Path) -> Outcome:
    """Let a reader have one input, in a folder of its own inside `outer`, which must stay otherwise empty."""
    inside = outer / "inside"
    inside.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            read(data, inside)
            if [path.name for path in outer.iterdir()] != ["inside"]:
                raise OutsideError(f"left behind: {sorted(path.name for path in outer.iterdir())}")
        kind, told = "accepted", ""
    except InputError as problem:
        kind, told = _refusal(problem)
    except HangError:
        kind, told = "hang", traceback.format_exc()
    except MemoryError:
        kind, told = "memory", traceback.format_exc()
    except OutsideError:
        kind, told = "outside", traceback.format_exc()
    except Exception:
        kind, told = "traceback", traceback.format_exc()
    took = time.perf_counter() - began
    for path in outer.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    return Outcome(kind, took, told)


def _refusal(problem: InputError) -> tuple[str, str]:
    told = one_line(problem)
    if not told or len(told) > LONGEST or visible(told) != told:
        return "traceback", f"not one readable sentence: {told!r}"
    return "refused", told


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise HangError

    limits = ((signal.SIGPROF, signal.ITIMER_PROF, SECONDS), (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE))
    before = [signal.signal(sign, late) for sign, _, _ in limits]
    for _, timer, limit in limits:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (sign, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(sign, handler)


def limit_memory(room: int = ROOM) -> None:
    """From here on an allocation beyond `room` fails instead of taking the machine with it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
