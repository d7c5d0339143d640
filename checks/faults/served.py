"""A server under load whose model is replaced again and again; the server, or who replaces the model, is killed.

Every answer must be a whole list of the model that it names, and whoever starts the server again finds a model that
loads. Requests that were under way when the server died have no answer; their clients know that.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from checks.faults.life import _redirect
from checks.faults.stories import Tally

USERS, K, CLIENTS = 20, 5, 3
MODELS = ("model", "blend")
STARTING = 60.0
"""Seconds within which a server must answer."""


@dataclass
class Load:
    """Clients that ask without a pause; what they were answered."""

    port: int
    lists: dict[str, list[list[Any]]]
    """By the version of a model: the list of every user."""
    alive: bool = True
    """Whether the server is meant to answer."""
    answers: int = 0
    wrong: list[str] = field(default_factory=list)

    def ask(self) -> None:
        while self.alive:
            user = random.randrange(USERS)
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                connection.request("GET", f"/recommend?user={user}&k={K}")
                answer = connection.getresponse()
                status, document = answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError) as problem:
                if self.alive:
                    self.wrong.append(f"no answer: {problem!r}")
                    time.sleep(0.05)
                continue
            finally:
                connection.close()
            self.answers += 1
            found = [row["item"] for row in document.get("items", ())]
            if status != 200 or found != self.lists.get(document["model"], {user: None})[user]:
                self.wrong.append(f"{status} {document}")


def served(inputs: Path, home: Path, kills: int, draw: random.Random, say: Callable[[str], None]) -> Tally:
    """So many kills of a server and of who replaces its model."""
    home.mkdir(parents=True)
    folder, tally = home / "model", Tally()
    known = _forked(partial(_write_lists, inputs, folder, home / "lists.json"), home / "err")
    assert os.waitpid(known, 0)[1] == 0, (home / "err").read_text()
    lists = json.loads((home / "lists.json").read_text())
    answers, port, server = 0, 0, None
    while tally.kills < kills:
        if server is None:
            port = _free_port()
            server = _forked(partial(_serve, folder, port), home / "err")
            if not _answers(port):
                tally.broken += 1
                tally.troubles.append(f"serve: does not start: {(home / 'err').read_text()[-300:]}")
                os.kill(server, signal.SIGKILL)
                os.waitpid(server, 0)
                return tally
        writer = _forked(partial(_replace, inputs, folder), home / "err-writer")
        load_on_it = Load(port, lists)
        clients = [threading.Thread(target=load_on_it.ask) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(draw.uniform(0.05, 1.2))
        if draw.random() < 0.5:
            load_on_it.alive = False
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            tally.kills += 1
            server = None
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        tally.kills += 1
        time.sleep(0.1)
        load_on_it.alive = False
        for client in clients:
            client.join()
        answers += load_on_it.answers
        tally.stories += 1
        tally.equal += not load_on_it.wrong
        tally.broken += len(load_on_it.wrong)
        tally.troubles += [f"serve: {one}" for one in load_on_it.wrong[:3]]
    if server is not None:
        os.kill(server, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        tally.troubles += [] if code == 0 else [f"serve: exit {code} on SIGTERM"]
    # What killed writers left is removed by the next one.
    last = _forked(partial(_replace, inputs, folder, 1), home / "err-writer")
    assert os.waitpid(last, 0)[1] == 0, (home / "err-writer").read_text()
    left = [path.name for path in home.iterdir() if path.name not in ("model", "err", "err-writer", "lists.json")]
    tally.litter += bool(left)
    tally.troubles += [f"serve: left {left}"] if left else []
    say(f"serve: {answers:,} answers under load")
    shutil.rmtree(home)
    return tally


def _serve(folder: Path, port: int) -> None:
    from evenhand.cli import main

    sys.argv = ["evenhand", "serve", str(folder), "--port", str(port)]
    main()


def _replace(inputs: Path, folder: Path, times: int = 1_000_000) -> None:
    from evenhand.models.folder import load

    models = [load(inputs / name) for name in MODELS]
    for number in range(times):
        models[number % 2].save(folder, force=True)
        time.sleep(0.3 if number % 4 else 0)  # time to load it, and now and then none


def _write_lists(inputs: Path, folder: Path, file: Path) -> None:
    """The list of every user by the version of a model, as the server will name it."""
    from evenhand.serve.answers import HotModel

    lists = {}
    for number in (1, 2):
        _replace(inputs, folder, number)
        answers = HotModel(folder).current
        found = [answers.recommend(user, None, K)["items"] for user in range(USERS)]
        lists[answers.version] = [[row["item"] for row in items] for items in found]
    file.write_text(json.dumps(lists))


def _forked(work: Callable[[], None], err: Path) -> int:
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _redirect(err)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def _answers(port: int) -> bool:
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            time.sleep(0.02)
        finally:
            connection.close()
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
