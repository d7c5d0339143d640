"""The newest model of a folder that loads: replaced while requests go on, kept where its successor is damaged."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from evenhand.models.folder import FILES
from evenhand.serve.answers import Answers
from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

LOG = logging.getLogger("evenhand.serve")
Signature = tuple[tuple[int, int, int, int] | None, ...]


class HotModel:
    """Looks at the folder's files every few seconds and loads in a thread of its own what has changed.

    Requests take `current` once and keep it to their end; the older model is let go of with the last of them.
    """

    def __init__(self, folder: str | Path, *, every: float = 1.0) -> None:
        self.folder = Path(folder)
        self._seen: Signature = ()
        self.current = self._load()
        self.loaded_at = time.time()
        self.problem: str | None = None
        """Why the folder's present content is not served; None where it is."""
        self.on_reload: Callable[[bool], None] = lambda worked: None
        self._every, self._stop = every, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def look(self) -> None:
        """Load the folder if any of its files has changed since the last look."""
        if signature(self.folder) == self._seen:
            return
        try:
            self.current = self._load()
        except (InputError, OSError, MemoryError) as problem:
            self.problem = one_line(problem)
            LOG.warning("the new model was not loaded, the older one goes on: %s", self.problem)
        else:
            self.loaded_at, self.problem = time.time(), None
            LOG.info("model %s loaded", self.current.version)
        self.on_reload(self.problem is None)

    def _load(self) -> Answers:
        """What the folder holds, read again where it was replaced meanwhile: tensors, card and version are of one."""
        while True:
            self._seen = signature(self.folder)
            try:
                found = Answers.of_folder(self.folder)
            except (InputError, OSError):
                if signature(self.folder) == self._seen:
                    raise
            else:
                if signature(self.folder) == self._seen:
                    return found

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.look()
            except Exception:  # the next look may do better, and requests go on
                LOG.exception("looking for a new model failed")


def signature(folder: Path) -> Signature:
    """What changes when any file of the model is replaced; missing files are None."""
    try:
        here = os.open(folder, os.O_RDONLY)  # all files of one folder, even if another takes its name meanwhile
    except OSError:
        return ()
    try:
        return tuple(_status(name, here) for name in FILES)
    finally:
        os.close(here)


def _status(name: str, folder: int) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(name, dir_fd=folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
