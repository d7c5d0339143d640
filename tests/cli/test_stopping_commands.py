"""SIGTERM and Ctrl-C end every command in one line; standard output of any kind costs no results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli import show
from evenhand.utils import progress
from run_cli import evenhand, small_log, write_log

LONG = (
    "--protocol",
    "paper",
    "--epochs",
    "1000000",
    "--dim",
    "8",
    "--seeds",
    "2",
    "--methods",
    "rns",
    "--k",
    "5",
    "--quiet",
)


def started(*arguments: object, **named: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evenhand", *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **named)


def interrupted(log: Path, out: Path, number: int, *more: str) -> tuple[int, str]:
    """`compare` asked to stop when it has written a checkpoint: exit code and standard error."""
    older = set(out.glob(".checkpoints/*/*.safetensors"))
    process = started("compare", log, *LONG, "--out", out, *more)
    until = time.monotonic() + 120
    while set(out.glob(".checkpoints/*/*.safetensors")) <= older and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    return process.returncode, err


def epochs_saved(out: Path) -> int:
    (newest,) = sorted(out.glob(".checkpoints/*/*.safetensors"))[-1:]
    content = newest.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return len(json.loads(header["__metadata__"]["evenhand"])["facts"]["history"])


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_a_scheduler_that_stops_a_training_finds_everything_saved(tmp_path: Path) -> None:
    log, out = write_log(small_log(), tmp_path / "log.csv"), tmp_path / "run"
    code, err = interrupted(log, out, signal.SIGTERM)
    assert code == 143, err
    assert err.count("\n") == 1
    assert err.startswith("evenhand: stopped after ")
    assert err.endswith("everything is saved: go on with --resume.\n")
    before = epochs_saved(out)
    assert f"stopped after {before} epoch" in err
    code, err = interrupted(log, out, signal.SIGINT, "--resume")
    assert code == 130
    assert epochs_saved(out) >= before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_any_other_command_ends_in_one_line(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    monkeypatch.setattr(show, "print_json", lambda document: os.kill(os.getpid(), number))
    ended = evenhand("methods", "--json")
    assert (ended.code, ended.out, ended.err.strip()) == (code, "", "evenhand: stopped.")


# Standard output


def run(*arguments: object, **named: Any) -> tuple[int, str, str]:
    process = started(*arguments, **named)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_an_encoding_without_arrows_costs_nothing(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "lög.csv")
    short = ("--epochs", "1", "--seeds", "1", "--dim", "4", "--k", "5", "--methods", "rns", "--quiet")
    ended = evenhand("compare", log, *short, encoding="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "ndcg \\u2191" in ended.out
    ended = evenhand("compare", log, *short, "--json", encoding="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["rows"][0]["name"] == "rns"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    code, out, err = run("metrics", env=ascii_only)
    assert (code, err) == (0, "")
    assert "\\u2229" in out


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of another kind")
def test_a_closed_standard_output_costs_nothing(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    command = f'"{sys.executable}" -m evenhand data describe "{log}"'
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        ended = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, ""), closed
        assert ("users" in ended.stdout) is (">&-" not in closed.replace("2>&-", "")), closed


def test_every_command_can_be_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    log = write_log(small_log(), tmp_path / "log.csv")
    short = ("--epochs", "1", "--seeds", "1", "--dim", "4", "--k", "5", "--methods", "rns")
    assert "rns: 1 of 1" in evenhand("compare", log, *short).err
    assert evenhand("compare", log, *short, "--quiet").err == ""
    assert "rns: 1 of 1" in evenhand("compare", log, *short).err
