"""A folder that appears whole or not at all.

Whatever goes wrong while files are written (a full disk, a stop by hand), what was there before stays as it
was, and nobody reads half a model.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from evenhand.utils.atomic import clear_remains, flush, stage_for
from evenhand.utils.errors import InputError


@contextmanager
def new_folder(target: str | Path, files: Sequence[str], *, force: bool) -> Iterator[Path]:
    """An empty folder to write `files` into, which becomes `target` when the block ends without an error.

    With `force` an older folder is replaced: in one move if it holds nothing but such files; otherwise
    they are put into it one by one, the last of `files` last, and what else it holds is left alone.
    """
    # A link stays a link: what it points to is replaced.
    given, target = Path(target), Path(target).resolve()
    inside = target / target.name
    clear_remains(target)
    clear_remains(inside)
    check_folder(given, force)
    in_place = target.exists() and not _replaceable(target, files)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with stage_for(inside if in_place else target) as stage:
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


def check_folder(target: Path, force: bool) -> None:
    """Refuse a place that must not be written to."""
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; name a folder.")
    if target.is_dir() and not force and any(target.iterdir()):
        raise InputError(f"{target} is not empty; choose another folder or use --force.")


def _replaceable(folder: Path, files: Sequence[str]) -> bool:
    """Whether it may be moved aside: nothing foreign in it, no mount point, not where the process stands."""
    here = Path.cwd()
    stands_in_it = folder == here or folder in here.parents
    return not stands_in_it and not os.path.ismount(folder) and {p.name for p in folder.iterdir()} <= set(files)


def _swap(stage: Path, target: Path) -> None:
    """Afterwards the older folder, if there was one, lies where the new one was made or is gone."""
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
    """Let two folders swap names at one stroke, where the system can do that."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return exchange is not None and exchange(here, os.fsencode(a), here, os.fsencode(b), swap) == 0


def _move_files(stage: Path, target: Path, files: Sequence[str]) -> None:
    # Without its last file the folder does not count as whole, so none is seen half old and half new.
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


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Refuse to work in a folder that another process works in; the system frees it when a process dies."""
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
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
