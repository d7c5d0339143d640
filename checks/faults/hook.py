"""The file operations of this process under a folder, counted; at a chosen one it dies, or the disk fails.

Python tells an audit hook of everything it opens, moves and removes. What libraries written in other
languages write is not seen here, but meets a limit on the size of files just the same.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHANGES = ("os.mkdir", "os.rename", "os.truncate", "fsync")
REMOVALS = ("os.remove", "os.rmdir")

_watchers: list[Callable[[str, str], None]] = []
_fsync = os.fsync


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watchers:
        return
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
    elif event in CHANGES:
        path = arguments[0]
    elif event in REMOVALS:
        path, folder = arguments
        if isinstance(folder, int) and folder >= 0:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    else:
        return
    if isinstance(path, (str, bytes, os.PathLike)):
        for watcher in list(_watchers):
            watcher(event, os.path.abspath(os.fsdecode(path)))


def _counted_fsync(handle: int) -> None:
    if _watchers:
        path = os.readlink(f"/proc/self/fd/{handle}")
        for watcher in list(_watchers):
            watcher("fsync", path)
    _fsync(handle)


@contextmanager
def watching(folder: Path, act: Callable[[int, str], None], removals: bool = True) -> Iterator[list[str]]:
    """`act` is called before every file operation under the folder with its number from 1 and its name.

    Yields the list of the operations so far. What `act` raises comes out of the operation.
    """
    if not hasattr(sys, "_evenhand_torture"):
        sys.addaudithook(_audit)
        sys._evenhand_torture = True  # type: ignore[attr-defined]
    root = os.path.abspath(folder)
    seen: list[str] = []

    def watcher(event: str, path: str) -> None:
        if (path == root or path.startswith(root + os.sep)) and (removals or event not in REMOVALS):
            seen.append(f"{event} {os.path.relpath(path, root)}")
            act(len(seen), event)

    _watchers.append(watcher)
    os.fsync = _counted_fsync
    try:
        yield seen
    finally:
        _watchers.remove(watcher)
        if not _watchers:
            os.fsync = _fsync


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_at(number: int) -> Callable[[int, str], None]:
    """Kills the process before its operation of that number."""
    return lambda now, event: die() if now == number else None


def failing_at(number: int, error: int, *, onward: bool = False) -> Callable[[int, str], None]:
    """One operation fails, or `onward` also every later one that is not a removal."""

    def act(now: int, event: str) -> None:
        if now == number or (onward and now > number and event not in REMOVALS):
            raise OSError(error, os.strerror(error))

    return act


@contextmanager
def files_up_to(size: int, *, deadly: bool = False) -> Iterator[None]:
    """No file may grow beyond so many bytes: the write fails or, where it is `deadly`, ends the process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
