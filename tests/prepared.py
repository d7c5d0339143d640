"""Processes that cost little: forked from a server that has imported what they need and done nothing else.

The server is a copy of the tests' own process, taken when all tests have been collected: by then everything has been
imported, and nothing has used OpenMP, which would not survive another fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import multiprocessing
import os
import select
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

context = multiprocessing.get_context("forkserver")


@cache
def start_server() -> None:
    """In place of one that imported less; what it imports lies in the tests."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    context.set_forkserver_preload(["ready_for_ranks"])
    with (
        patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)),
        patch.object(util, "spawnv_passfds", _copied) if sys.platform == "linux" else contextlib.nullcontext(),
    ):
        forkserver.ensure_running()


def _copied(path: object, arguments: Sequence[str], kept: Sequence[int]) -> int:
    """A copy of this process that becomes the server when it is first asked for a process."""
    if server := os.fork():
        return server
    try:
        faulthandler.disable()
        for handle in map(int, os.listdir("/proc/self/fd")):
            if handle > 2 and handle not in kept:
                with contextlib.suppress(OSError):
                    os.close(handle)
        select.select(kept, (), ())
        exec(arguments[-1])
    except SystemExit:
        os._exit(0)
    finally:
        os._exit(1)


class Program:
    """A function, such as the `main` of a program, in a process of its own; what `subprocess.Popen` is to a command."""

    def __init__(
        self,
        main: Callable[[], Any],
        *arguments: object,
        stdout: int | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        start_server()
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        near, far = context.Pipe(duplex=False)
        self.stdout = os.fdopen(os.dup(near.fileno()), encoding="utf-8")
        near.close()
        out = far if stdout is None else Connection(os.dup(stdout))
        err = Connection(os.dup(self._err.fileno()))
        words = [str(argument) for argument in arguments]
        self._process = context.Process(target=_run, args=(main, words, out, err, cwd, dict(environment or {})))
        self._process.start()
        for handle in {out, far, err}:
            handle.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.join()
        self.stdout.close()
        self._err.close()

    @property
    def returncode(self) -> int | None:
        """As of a command: negative for the signal that ended it."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float = 120) -> tuple[str, str]:
        """The rest of its standard output, and its standard error, once it has ended; it is killed when it does not."""
        late = threading.Timer(timeout, self.kill)
        late.start()
        try:
            out = self.stdout.read()
            self._process.join()
        finally:
            late.cancel()
        self._err.seek(0)
        return out, self._err.read().decode()


def _run(
    main: Callable[[], Any],
    arguments: list[str],
    out: Connection,
    err: Connection,
    cwd: Path | None,
    environment: dict[str, str],
) -> None:
    """From its start to its end as the interpreter does it, which says what it could not write."""
    import numba
    import torch

    for number, stream in ((1, out), (2, err)):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["program", *arguments]
    os.environ.update(environment)
    if cwd is not None:
        os.chdir(cwd)
    torch.set_num_threads(1)
    numba.config.reload_config()  # before anything starts threads
    importlib.reload(warnings)  # shown as ever, not gathered by pytest
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        code = 1
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = 120
            with contextlib.suppress(OSError, ValueError):
                print(f"could not write to {stream.name}:", traceback.format_exc(), file=sys.stderr, flush=True)
    os._exit(code)
