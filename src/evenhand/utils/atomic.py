"""Files and folders that appear whole or not at all, and what killed processes leave of them.

What is being written lies beside its place under a name of its own, locked for as long as its process lives.
A process that is killed leaves it there unlocked, and the next one that writes to the same place removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no such locks on this system, so nothing can be known to be abandoned
    fcntl = None


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A new file beside `target` to write to, which takes its place when the block ends without an error."""
    clear_remains(target)
    with _claimed(target, _new_file) as partial:
        try:
            yield partial
            flush(partial)
            os.replace(partial, target)
            flush(target.parent)
        finally:
            partial.unlink(missing_ok=True)


def write_whole(target: Path, content: bytes) -> None:
    """Write so that the file is either there with all of its content or not there at all."""
    with whole_file(target) as partial:
        partial.write_bytes(content)


@contextmanager
def stage_for(target: Path) -> Iterator[Path]:
    """A new folder beside `target` to work in; what is still there at the end is removed."""
    clear_remains(target)
    with _claimed(target, Path.mkdir) as stage:
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def clear_remains(target: Path) -> None:
    """Remove what killed processes left beside `target`; an older folder they had moved aside comes back."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    try:
        found = [path for path in target.parent.iterdir() if name.fullmatch(path.name)]
    except OSError:
        return
    for path in found:
        handle = _locked(path, wait=False)
        if handle is None:  # its process lives
            continue
        with suppress(OSError):
            if path.suffix == ".old" and not target.exists():
                os.rename(path, target)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        os.close(handle)


@contextmanager
def _claimed(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A place of a new name beside `target`, made by `make` and held while the block lasts."""
    while True:
        place = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        make(place)
        handle = _locked(place, wait=True)
        if handle is None or _is_still_there(handle, place):
            break
        os.close(handle)  # taken for abandoned in the moment before it was locked
    try:
        yield place
    finally:
        if handle is not None:
            os.close(handle)


def flush(path: Path) -> None:
    """Make sure the disk has it; folders cannot be flushed on every system."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_file(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _locked(path: Path, *, wait: bool) -> int | None:
    """A handle that holds the lock until it is closed; None where it cannot be had."""
    if fcntl is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process has it, or the file system knows no locks
        os.close(handle)
        return None
    return handle


def _is_still_there(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
