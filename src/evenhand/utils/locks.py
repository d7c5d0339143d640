"""Locks that other processes respect; the system frees them when a process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from evenhand.utils.errors import InputError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None


def locked(path: Path, *, wait: bool, create: bool = False) -> int | None:
    """A handle that holds the lock until it is closed; None where it cannot be had."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR if create else os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process has it, or the file system knows no locks
        os.close(handle)
        return None
    return handle


@contextmanager
def one_process(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Refuse to work in a folder that another process works in, or wait."""
    if fcntl is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another process is working in {folder}; wait for it or choose another.") from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            with suppress(OSError):  # where nothing came of it, no empty folder stays behind
                folder.rmdir()
    finally:
        os.close(handle)
