"""A folder that appears whole or not at all.

Whatever goes wrong while files are written (a full disk, a stop by hand), what was there before stays as it
was, and nobody reads half a model.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evenhand.errors import InputError


@contextmanager
def new_folder(target: str | Path, files: Sequence[str], *, force: bool) -> Iterator[Path]:
    """An empty folder to write `files` into, which becomes `target` when the block ends without an error.

    With `force` an older folder is replaced: in one move if it holds nothing but such files; otherwise
    they are put into it one by one, the last of `files` last, and what else it holds is left alone.
    """
    target = Path(target)
    check_folder(target, force)
    # A link stays a link: what it points to is replaced.
    target = target.resolve()
    mark = secrets.token_hex(4)
    in_place = target.exists() and not _replaceable(target, files)
    stage = target / f".{mark}.partial" if in_place else target.with_name(f".{target.name}.{mark}.partial")
    try:
        stage.parent.mkdir(parents=True, exist_ok=True)
        stage.mkdir()
        yield stage
        for name in files:
            _flush(stage / name)
        if in_place:
            _move_files(stage, target, files)
        else:
            _swap(stage, target, target.with_name(f".{target.name}.{mark}.old"))
    except OSError as problem:
        raise InputError(f"cannot write to {target}: {problem.strerror or problem}.") from problem
    finally:
        shutil.rmtree(stage, ignore_errors=True)


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
    return (
        not stands_in_it and not os.path.ismount(folder) and {p.name for p in folder.iterdir()} <= set(files)
    )


def _swap(stage: Path, target: Path, aside: Path) -> None:
    if not target.exists():
        os.rename(stage, target)
    else:
        os.rename(target, aside)
        try:
            os.rename(stage, target)
        except OSError:
            os.rename(aside, target)
            raise
        shutil.rmtree(aside, ignore_errors=True)
    _flush(target.parent)


def _move_files(stage: Path, target: Path, files: Sequence[str]) -> None:
    # Without its last file the folder does not count as whole, so none is seen half old and half new.
    (target / files[-1]).unlink(missing_ok=True)
    for name in files:
        os.replace(stage / name, target / name)
    _flush(target)


def _flush(path: Path) -> None:
    """Make sure the disk has it; folders cannot be flushed on every system."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
