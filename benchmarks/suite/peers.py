"""Other libraries, each in a process of the environment that `make bench-peers` makes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from evenhand.data.splits import Split

MISSING = "not installed: make bench-peers"
SCRIPTS = Path(__file__).parents[1] / "peers"


class PeerError(Exception):
    """A peer did not start or ended without an answer."""


class Peer:
    """One script that runs an epoch, or some, whenever it is asked to."""

    def __init__(self, python: Path, script: str, asked: dict[str, Any]) -> None:
        # Its BLAS would otherwise start threads within its own threads.
        alone = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if "implicit" in script else {}
        threads = {"OMP_NUM_THREADS": str(asked["threads"]), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed on exit)
        self._process = subprocess.Popen(
            [python, SCRIPTS / script, json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=os.environ | threads | alone,
        )
        self.versions: dict[str, str] = self._answer()["versions"]

    def __call__(self) -> float:
        """Mean seconds of an epoch in one round."""
        assert self._process.stdin
        try:
            print("go", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._gone() from None
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        found: dict[str, Any] = json.loads(line)
        return found

    def _gone(self) -> PeerError:
        self._complaints.seek(0)
        return PeerError((self._complaints.read().strip().splitlines() or ["ended without a word"])[-1])

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        self._complaints.close()


@contextmanager
def started(
    python: Path, asked: dict[str, tuple[str, dict[str, Any]]], split: Split
) -> Iterator[tuple[dict[str, Peer], dict[str, str]]]:
    """The peers that answer, by name, and the reasons of those that do not; `asked` has script and values."""
    if not python.exists():
        yield {}, dict.fromkeys(asked, MISSING)
        return
    with ExitStack() as stack:
        pairs = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pairs.npz"
        write_pairs(pairs, split)
        running: dict[str, Peer] = {}
        failed: dict[str, str] = {}
        for name, (script, values) in asked.items():
            try:
                running[name] = stack.enter_context(Peer(python, script, {**values, "pairs": str(pairs)}))
                running[name]()
            except PeerError as problem:
                running.pop(name, None)
                failed[name] = f"failed: {problem}"
        yield running, failed


def write_pairs(path: Path, split: Split) -> None:
    parts = {"train": split.train, "test": split.test}
    named: dict[str, Any] = {f"{name}_users": part.users for name, part in parts.items()}
    named |= {f"{name}_items": part.items for name, part in parts.items()}
    np.savez(path, shape=[split.n_users, split.n_items], **named)
