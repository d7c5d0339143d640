"""One process at a time in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evenhand.utils.errors import InputError


@contextmanager
def one_process(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Refuse to work in a folder that another process works in, or wait; the system frees it when a process dies."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system
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
