"""`evenhand serve` as a process: it says where it listens, answers, and ends in good order."""

from __future__ import annotations

import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from evenhand.cli import main
from prepared import Program
from run_cli import evenhand
from serving import ask
from small_model import model


def test_a_server_ends_on_sigterm(tmp_path: Path) -> None:
    model("integer").save(tmp_path / "model")
    with Program(main, "serve", tmp_path / "model", "--port", "0", "--json", cwd=tmp_path) as process:
        text = process.stdout.readline()
        while text.count("{") > text.count("}"):
            text += process.stdout.readline()
        document = json.loads(text)
        assert document["model"]["items"] == 12
        assert ask(document["url"], "/recommend", user=103, k=2)[0] == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "stopped.\n")


def test_what_cannot_be_served_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = evenhand("serve", tmp_path / "nothing")
    assert (ended.code, ended.out) == (2, "")
    assert "does not exist; name a model folder" in ended.err
    model("integer").save(tmp_path / "model")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = evenhand("serve", tmp_path / "model", "--port", port)
    assert (ended.code, ended.err) == (2, f"evenhand: cannot listen on 127.0.0.1:{port}: Address already in use.\n")
    assert evenhand("serve", tmp_path / "model", "--port", 70_000).code == 2
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ended = evenhand("serve", tmp_path / "model")
    assert ended.code == 2
    assert ended.err.endswith("pip install 'evenhand[serve]'.\n")
    assert ended.err.count("\n") == 1
