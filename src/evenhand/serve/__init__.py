"""A model behind HTTP: lists for known users and for posted histories, similar items, health and metrics.

`evenhand serve MODEL` starts it; it needs `pip install 'evenhand[serve]'`. SIGTERM or Ctrl-C ends it, with the requests
under way answered.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    import uvicorn

    from evenhand.serve.answers import HotModel


def serve(
    folder: str | Path, host: str = "127.0.0.1", port: int = 8000, *, ready: Callable[[str, dict[str, object]], None]
) -> None:
    """Answer requests until the process is asked to stop; `ready` gets the address and what is served."""
    try:
        import uvicorn  # noqa: F401

        import evenhand.serve.web  # noqa: F401
    except ImportError as problem:
        raise InputError(f"serving needs {problem.name}; install it with pip install 'evenhand[serve]'.") from None
    from evenhand.serve.answers import HotModel

    torch.set_num_threads(1)  # requests share the cores, and none of them is large enough to share out
    hot = HotModel(folder)
    with listen(host, port) as listening:
        port = listening.getsockname()[1]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", hot.current.description)
        server_of(hot).run(sockets=[listening])


def server_of(hot: HotModel) -> uvicorn.Server:
    import uvicorn

    from evenhand.serve.web import MOST_BYTES, application

    return uvicorn.Server(
        uvicorn.Config(
            application(hot),
            log_level=logging.WARNING,
            access_log=False,
            limit_concurrency=1_000,  # connections; further ones are answered 503
            timeout_graceful_shutdown=30,
            h11_max_incomplete_event_size=MOST_BYTES,
            server_header=False,
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """Before anything is promised: an address that is taken is one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Where the protocol is not named, asyncio does not send at once, and an answer may wait 40 ms for a receipt.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as problem:
        found.close()
        raise InputError(f"cannot listen on {host}:{port}: {getattr(problem, 'strerror', None) or problem}.") from None
    found.listen(2048)
    return found
