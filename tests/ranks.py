"""Runs a function of a test in W processes that form one world (forked from a server: `prepared.py`)."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from checks.faults.life import wait_for_rank_0

from evenhand.utils import world
from prepared import context, start_server


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
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [
        context.Process(target=_work, args=(pipes[rank][1], environment | {"RANK": str(rank)}, function, given))
        for rank in range(size)
    ]
    start_server()
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


def _work(far: Connection, environment: dict[str, str], function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    import torch

    os.environ.update(environment)
    torch.set_num_threads(1)
    if environment["RANK"] != "0":
        wait_for_rank_0(int(environment["MASTER_PORT"]))
    try:
        far.send((True, function(world.World.from_environment(), *given)))
    except BaseException:
        far.send((False, traceback.format_exc()))
