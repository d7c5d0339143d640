"""A server in a thread, and requests to it; tests that import this skip where evenhand[serve] is not installed."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

pytest.importorskip("fastapi", reason="needs evenhand[serve]")


from evenhand.serve import listen, server_of
from evenhand.serve.answers import HotModel


@contextmanager
def serving(folder: Path, every: float = 1e9) -> Iterator[tuple[str, HotModel]]:
    """The address of a server of this folder, which is looked at every so many seconds."""
    hot = HotModel(folder, every=every)
    listening = listen("127.0.0.1", 0)
    server = server_of(hot)
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", hot
    finally:
        server.should_exit = True
        thread.join(30)


def ask(url: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
    """The status and the document of one request; a body that is no text is sent as JSON."""
    place = urlsplit(url)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
    text = urlencode(query, doseq=True)
    try:
        connection.request(
            "GET" if body is None else "POST",
            f"{path}?{text}" if text else path,
            data,
            {} if body is None else {"Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        content = answer.read().decode()
        kind = answer.headers.get_content_type()
        return answer.status, json.loads(content) if kind == "application/json" else content
    finally:
        connection.close()
