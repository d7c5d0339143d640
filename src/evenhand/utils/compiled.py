"""Functions compiled by numba at their first call and kept on disk for the next process.

numba notices when a function's own file has changed, but not the files of the functions it calls. So the folder for
compiled code is named by a hash of every source that takes part. Importing this module loads numba.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from evenhand.utils.atomic import locked
from evenhand.utils.progress import compiling

PACKAGE = Path(__file__).parents[1]
_KEPT_DAYS = 30
"""How long compiled code of other sources is kept: two versions may be in use side by side."""
_BARE: dict[str, Any] = {"no_cfunc_wrapper": True}
"""Nothing here is called from C, and what that takes makes compiling a twentieth longer."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """numba's `njit` that holds no lock while it runs, with compiled code kept wherever there is a place for it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        folder = _cache_folder()
        before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
        numba.config.CACHE_DIR = str(folder or "")  # type: ignore[attr-defined]
        try:
            made = njit(nogil=True, cache=folder is not None, **(_BARE | options))(function)
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]
        _compile_once(made, folder and folder / f"{function.__module__}.{function.__qualname__}.lock")
        return made

    return decorate


def _compile_once(made: Any, lock: Path | None) -> None:
    """Processes that start together, as those of `torchrun` do, compile a function once: the others wait and load it.

    No two can wait for each other, since a function is compiled only while those are that call it.
    """
    compile_one = made.compile

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock, compiling():
            handle = locked(lock, wait=True, create=True) if lock else None
            try:
                return compile_one(signature)
            finally:
                if handle is not None:
                    os.close(handle)

    made.compile = compile_alone


@cache
def _cache_folder() -> Path | None:
    """$NUMBA_CACHE_DIR, else a folder inside the package, else one in the user's cache; None where none is writable."""
    name, places = f"numba-{source_hash(PACKAGE)[:16]}", []
    for place in _places():
        places.append(place)
        with suppress(OSError):
            folder = place / name
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)
            _remove_old(place, folder)
            return folder
    listed = " nor ".join(str(place) for place in places)
    warnings.warn(
        f"compiled code cannot be kept, as {'neither ' * (len(places) > 1)}{listed} can be written to; every process "
        "compiles it again. Set NUMBA_CACHE_DIR to a folder that can be.",
        stacklevel=3,
    )
    return None


def _places() -> Iterator[Path]:
    if given := numba.config.CACHE_DIR:  # type: ignore[attr-defined]
        yield Path(given)
        return
    yield PACKAGE / "__pycache__"
    from platformdirs import user_cache_path  # training needs it nowhere else

    yield user_cache_path("evenhand", appauthor=False)


def source_hash(package: Path) -> str:
    """SHA-256 over the sources that hold compiled code or constants for it, and the versions at work."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__} {platform.python_version()}".encode())
    for path in sorted(set(_sources(package))):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(package: Path) -> Iterator[Path]:
    imports = re.compile(rf"^from ({package.name}[\w.]*) import ([^(\n]+|\([^)]*\))".encode(), re.MULTILINE)
    for path in package.rglob("*.py"):
        text = path.read_bytes()
        if b"utils.compiled import compiled" not in text:
            continue
        yield path
        for module, names in imports.findall(text):
            if re.search(rb"\b[A-Z][A-Z0-9_]+\b", names):  # a constant, which is compiled in
                source = package.parent.joinpath(*module.decode().split("."))
                yield source / "__init__.py" if source.is_dir() else source.with_suffix(".py")


def _remove_old(place: Path, current: Path) -> None:
    for folder in place.glob("numba-*"):
        with suppress(OSError):
            if folder != current and folder.stat().st_mtime < time.time() - _KEPT_DAYS * 86_400:
                shutil.rmtree(folder, ignore_errors=True)
