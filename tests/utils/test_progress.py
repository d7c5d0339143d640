"""Progress: an ETA that moves, lines in a log, one switch for silence, nested work in one display."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from evenhand.utils import progress
from evenhand.utils.progress import Display, Lines, Task, compiling, stages, task, tasks


@pytest.fixture(autouse=True)
def never_quiet() -> Iterator[None]:
    yield
    progress.quiet(False)


def test_the_time_left_falls_between_two_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    work = Task(Display(), "auc-ns")
    assert work.left() is None
    now = 110.0
    work(2, 10, {"loss": [0.5]})  # 5 s a step, 8 to go
    assert work.left() == 40
    now = 113.0
    assert work.left() == 37
    assert work.text() == "auc-ns: 2 of 10, loss 0.500, at most 0:37 left"
    now = 1000.0
    assert work.left() == 0


def test_the_speed_is_that_of_the_last_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow beginning (reading) does not stay in the estimate for ever."""
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    work = Task(Display(), "fit", capped=False)
    now = 500.0
    for step in range(1, 31):
        now += 1
        work(step, 100)
    assert work.left() == 70
    assert work.text().endswith("about 1:10 left")


def test_compiling_is_named_and_has_no_part_in_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "_compiled_for", [])
    work = Task(Display(), "fit", capped=False)
    with compiling():
        now = 500.0
        assert work.text() == "fit, compiling …"
    now = 502.0
    work(1, 100)
    assert work.left() == 198


def test_a_log_has_a_line_with_the_time_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.05)
    with task("training") as on_epoch:
        on_epoch(1, 20, {"loss": [0.7]})
        assert capsys.readouterr().err == ""  # too early
        time.sleep(0.06)
        on_epoch(2, 20, {"loss": [0.6]})
        on_epoch(3, 20, {"loss": [0.5]})  # too close to the last line
    said = capsys.readouterr().err
    assert re.fullmatch(r"\d\d:\d\d:\d\d  training: 2 of 20, loss 0\.600, at most 0:0\d left\n", said)


def test_a_log_is_never_silent_for_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing moves, as in a long epoch, and yet lines come; none comes after the work has ended."""
    monkeypatch.setattr(progress, "SILENT_FOR", 0.1)
    with task("reading"):
        time.sleep(0.45)
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 5
    assert all(line.endswith("reading …") for line in lines)
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with tasks(2) as start:
        for label in ("rns", "dns"):
            start(label)(1, 1, {})
    assert capsys.readouterr() == ("", "")


def test_nested_work_is_one_line_from_the_outside_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with tasks(3) as start:
        start("candidates")(1, 4, {})
        capsys.readouterr()
        with task("lightgcn") as on_epoch:
            on_epoch(5, 10, {})
        line = capsys.readouterr().err.splitlines()[-1]
        start("blend")
    assert re.search(r"candidates \(1 of 3\): 1 of 4.* > lightgcn: 5 of 10", line)
    assert capsys.readouterr().err.splitlines()[-1].endswith("blend (2 of 3) …")


def test_work_within_silent_work_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with task("blend", show=False), progress.subtask("lightgcn") as on_epoch:
        on_epoch(1, 2, {})
    assert capsys.readouterr().err == ""
    with task("blend"), progress.subtask("lightgcn") as on_epoch:
        on_epoch(1, 2, {})
    assert capsys.readouterr().err.splitlines()[-1].endswith("blend … > lightgcn: 1 of 2, at most 0:00 left")


def test_quiet_is_one_switch_for_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    progress.quiet()
    with task("fit") as on_epoch, tasks(2) as start, stages() as say, progress.download("demo") as update:
        on_epoch(1, 2, {})
        start("rns")(1, 2, {})
        say("reading", 1, 2)
        update(10, None)
    assert capsys.readouterr() == ("", "")


def test_a_function_is_called_in_place_of_a_display() -> None:
    seen: list[Any] = []
    with task("fit", lambda *what: seen.append(what)) as on_epoch:
        on_epoch(1, 2, {"loss": [1.0]})
    assert seen == [(1, 2, {"loss": [1.0]})]


def test_no_standard_error_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with task("fit") as on_epoch:
        on_epoch(1, 2, {})


def test_a_terminal_gets_bars_that_vanish(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with stages() as say:
        say("lists of mine", 5, 10)
        time.sleep(0.6)
    shown = capsys.readouterr().err
    assert "lists of mine" in shown
    assert "5 of 10" in shown


def test_lines_stop_with_their_display() -> None:
    display = Lines()
    display.close()
    assert display._over.is_set()
