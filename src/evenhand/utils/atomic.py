"""Files and folders that appear complete or not at all, and locks that other processes respect.

New content is written beside its target under a temporary name, which is locked while its process lives. A killed
process leaves it there unlocked, as the system frees its locks; the next one that writes to the same target removes it.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType

from evenhand.utils.errors import InputError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """A new file beside `target` to write to; it replaces `target` when the block ends without an error."""
    remove_abandoned(target)
    with _temporary(target, partial(Path.touch, exist_ok=False)) as beside:
        try:
            yield beside
            flush(beside)
            os.replace(beside, target)
            flush(target.parent)
        finally:
            beside.unlink(missing_ok=True)


def write_atomically(target: Path, content: bytes) -> None:
    """Write so that the file is either there with all of its content or not there at all."""
    partial = target.with_name(target.name + ".partial")
    try:
        with partial.open("wb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(target.parent)


@contextmanager
def atomic_folder(target: str | Path, files: Sequence[str], *, force: bool) -> Iterator[Path]:
    """An empty folder to write `files` into; it becomes `target` when the block ends without an error.

    With `force` an older folder is replaced: in one move if it holds nothing but such files; otherwise
    they are put into it one by one, the last of `files` last, and what else it holds is left alone.
    """
    # A link stays a link: what it points to is replaced.
    given, target = Path(target), Path(target).resolve()
    inside = target / target.name
    remove_abandoned(target)
    remove_abandoned(inside)
    check_folder(given, force)
    in_place = target.exists() and not _replaceable(target, files)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with staging_folder(inside if in_place else target) as stage:
            yield stage
            for name in files:
                flush(stage / name)
            if in_place:
                _move_files(stage, target, files)
            else:
                check_folder(given, force)  # again: another process may have written here meanwhile
                _swap(stage, target)
    except OSError as problem:
        raise InputError(f"cannot write to {target}: {problem.strerror or problem}.") from problem


@contextmanager
def staging_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target` to work in; what is still there at the end is removed."""
    remove_abandoned(target)
    with _temporary(target, Path.mkdir) as stage:
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def check_folder(target: Path, force: bool) -> None:
    """Refuse a place that must not be written to."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; name a folder.")
    if target.is_dir() and not force and any(target.iterdir()):
        raise InputError(f"{target} is not empty; choose another folder or use --force.")


def remove_abandoned(target: Path) -> None:
    """Remove what killed processes left beside `target`; an older folder they had moved aside comes back."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    try:
        found = [path for path in target.parent.iterdir() if name.fullmatch(path.name)]
    except OSError:
        return
    for path in found:
        handle = locked(path, wait=False)
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


def flush(path: Path) -> None:
    """Make sure the disk has it; folders cannot be flushed on every system."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _temporary(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A file or folder of a new name beside `target`, made by `make` and locked while the block lasts."""
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        make(path)
        handle = locked(path, wait=True)
        if handle is None or _is_still_there(handle, path):
            break
        os.close(handle)  # removed as abandoned by another process in the moment before it was locked
    try:
        yield path
    finally:
        if handle is not None:
            os.close(handle)


def _is_still_there(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _replaceable(folder: Path, files: Sequence[str]) -> bool:
    """Whether it may be moved aside: nothing foreign in it, no mount point, not the working directory."""
    here = Path.cwd()
    in_use = folder == here or folder in here.parents
    return not in_use and not os.path.ismount(folder) and {p.name for p in folder.iterdir()} <= set(files)


def _swap(stage: Path, target: Path) -> None:
    """Let the new folder take the target's name; the older one, if any, takes the new one's or is removed."""
    if not target.exists():
        os.rename(stage, target)
    elif not _exchange(stage, target):
        aside = stage.with_suffix(".old")
        os.rename(target, aside)
        try:
            os.rename(stage, target)
        except OSError:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    flush(target.parent)


def _exchange(a: Path, b: Path) -> bool:
    """Let two folders swap names in one system call, where there is one."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return exchange is not None and exchange(here, os.fsencode(a), here, os.fsencode(b), swap) == 0


def _move_files(stage: Path, target: Path, files: Sequence[str]) -> None:
    # Readers take a folder without its last file for incomplete, so nobody reads half old and half new.
    older = stage / "older"
    older.mkdir()
    try:
        for name in (files[-1], *files[:-1]):
            if (target / name).exists():
                os.replace(target / name, older / name)
        for name in files:
            os.replace(stage / name, target / name)
    except OSError:
        for name in files:
            if (older / name).exists():
                os.replace(older / name, target / name)
        raise
    flush(target)


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
