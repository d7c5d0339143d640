"""Runs a function of a test in W processes that form one world.

They are forked from a server that has imported what they need once, so that a process costs little.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest.mock import patch

from evenhand.utils import world

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
_context = multiprocessing.get_context("forkserver")


class RankError(AssertionError):
    """What went wrong in one of the processes."""


def on_ranks(
    size: int,
    function: Callable[..., Any],
    *given: Any,
    seconds: float = 300,
    wait_for: float = 60,
    lost: tuple[int, ...] = (),
) -> list[Any]:
    """What `function(world, *given)` returned on each rank; it must stand at the top level of a test file.

    Ranks that are `lost` on purpose answer None.
    """
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        world.TIMEOUT: str(wait_for),
        "OMP_NUM_THREADS": "1",
    }
    pipes = [_context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        _context.Process(target=_work, args=(pipes[rank][1], environment | {"RANK": str(rank)}, function, given))
        for rank in range(size)
    ]
    _start_server()
    for process in processes:
        process.start()
    for _, far in pipes:
        far.close()
    try:
        answers = [(True, None) if rank in lost else _answer(near, seconds) for rank, (near, _) in enumerate(pipes)]
    finally:
        for process in processes:
            process.join(1)
            process.kill()
            process.join()
    if failures := [text for worked, text in answers if not worked]:
        raise RankError("\n".join(failures))
    return [answer for _, answer in answers]


@cache
def _start_server() -> None:
    """With the path of this process, as what it imports lies in the tests; in place of one that imported less."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    _context.set_forkserver_preload(["ready_for_ranks"])
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answer(near: Connection, seconds: float) -> tuple[bool, Any]:
    if not wait([near], seconds):
        return False, f"no answer within {seconds} s"
    try:
        return near.recv()
    except EOFError:
        return False, "the process ended without an answer"


def _listening(port: int) -> None:
    """Wait for rank 0: torch, when it comes too early, sleeps for a second."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.005)
        else:
            return


def _work(far: Connection, environment: dict[str, str], function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    import torch

    os.environ.update(environment)
    torch.set_num_threads(1)
    if environment["RANK"] != "0":
        _listening(int(environment["MASTER_PORT"]))
    try:
        far.send((True, function(world.World.from_environment(), *given)))
    except BaseException:
        far.send((False, traceback.format_exc()))
