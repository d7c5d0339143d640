"""Requests to the server, byte for byte over a socket: headers, queries and bodies that mean no good."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import threading
from functools import cache
from pathlib import Path
from random import Random
from urllib.parse import quote_from_bytes

from checks.fuzz.inputs import WORDS, document, mutated
from checks.fuzz.targets.target import SEEDS, Target
from evenhand.utils.errors import InputError

PATHS = ("/recommend", "/similar", "/health", "/metrics", "/card", "/openapi.json", "/docs", "/nothing")
NAMES = ("user", "item", "k", "known", "fallback", "exclude", "only", "x")
BODY = {"user": "u00", "history": ["i01", "i02"], "k": 3, "known": False, "fallback": True, "exclude": [], "only": None}
PATIENCE, FOR_SOUND_ONES = 0.05, 20.0
"""Seconds until a request that may not be complete is given up: the server waits for the rest of it."""


class _Faults(logging.Handler):
    """What the server logs as an error: an exception that nothing answered for."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@cache
def _server() -> tuple[int, _Faults]:
    """Its port; it runs as long as this process."""
    from evenhand.serve import listen, server_of
    from evenhand.serve.answers import HotModel

    listening, faults = listen("127.0.0.1", 0), _Faults()
    server = server_of(HotModel(SEEDS / "model" / "vectors", every=1e9))
    for name in ("uvicorn.error", "evenhand.serve", "asyncio"):
        logging.getLogger(name).addHandler(faults)
    threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True).start()
    return listening.getsockname()[1], faults


def _ask(data: bytes, folder: Path) -> None:
    port, faults = _server()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.settimeout(FOR_SOUND_ONES if data in TARGETS[0].seeds.values() else PATIENCE)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            status, content = 0, b""  # half a request, or one that the server hung up on
    problems, faults.found = faults.found, []
    assert not problems, "\n".join(problems)
    assert status < 500, f"{status}: {content[:500]!r}"
    if status == 0:
        raise InputError("no answer to half a request.")
    if status >= 400:
        whole = json.loads(content)["detail"] if content[:1] == b"{" else content.decode()
        raise InputError(whole)


def _made(random: Random, seeds: list[bytes]) -> bytes:
    """Sound requests with odd values, odd bodies of the right length, and plain faults."""
    what = random.random()
    if what < 0.3:
        return mutated(random, seeds)
    path, lines = random.choice(PATHS), [b"Host: x", b"Connection: close"]
    if what < 0.65:
        given = [(random.choice(NAMES), quote_from_bytes(random.choice(WORDS))) for _ in range(random.randrange(4))]
        start = f"GET {path}?{'&'.join(f'{name}={value}' for name, value in (('user', 'u00'), *given))}".encode()
        body = b""
    else:
        body = (
            document(random, json.dumps(BODY).encode()) if what < 0.9 else mutated(random, [json.dumps(BODY).encode()])
        )
        start = b"POST /recommend"
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    if random.random() < 0.2:
        lines.insert(random.randrange(len(lines)), random.choice(WORDS) + b": " + random.choice(WORDS))
    return b"\r\n".join([start + b" HTTP/1.1", *lines, b"", body])


TARGETS = (Target("requests", _ask, _made, weight=0.5),)
