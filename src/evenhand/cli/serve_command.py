"""`evenhand serve`: a model behind HTTP."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from evenhand.cli import options as opt
from evenhand.utils.text import count, visible


def command(
    model: opt.ModelFolder,
    host: Annotated[str, "Address to listen on; 0.0.0.0 for every one."] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000,
    json: opt.Json = False,
) -> None:
    """Answer HTTP requests with recommendations and similar items; a folder that is replaced is loaded as it runs.

    It needs `pip install 'evenhand[serve]'`. Ctrl-C or SIGTERM ends it once the requests under way are answered.
    """

    import logging

    from evenhand.cli import show
    from evenhand.serve.run_server import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)

    def ready(address: str, served: dict[str, object]) -> None:
        if json:
            show.print_json({"url": address, "model": served})
        else:
            sizes = f"{count(int(str(served['users'])), 'user')} × {count(int(str(served['items'])), 'item')}"
            print(
                f"{visible(model)} ({served['method']}, {sizes}) at {address}; the API is described at {address}/docs."
            )
        sys.stdout.flush()

    try:
        serve(model, host, port, ready=ready)
    except KeyboardInterrupt:  # uvicorn has ended in good order and passes the signal on
        print("stopped.", file=sys.stderr)
