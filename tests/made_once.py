"""Folders that take long to make, made once for all processes of a run of the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name; whoever asks first makes it, the others wait. Nobody may write to it."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / f"{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (root / name).exists():
            make(root / f"{name}.partial")
            (root / f"{name}.partial").rename(root / name)
    return root / name
