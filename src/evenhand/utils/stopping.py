"""Stopping on request: Ctrl-C and SIGTERM ask long work to save what it has and to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_received: list[int] = []
"""The signals that asked this process to stop; the exit code names the first."""
_listening: list[Any] = []
"""Our handlers at work: of a recipe, and within it of the training at hand, which is the one to be asked."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, where nothing listens for it: it ends what Ctrl-C would end."""


def exit_code() -> int:
    """What a shell expects of a process that was asked to stop: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def end_on_sigterm() -> None:
    """From here on SIGTERM raises as Ctrl-C does, in place of ending the process at once."""
    _received.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)


def _terminate(number: int, frame: Any) -> None:
    _received.append(number)
    raise Terminated


class StopSignal:
    """Turns the first Ctrl-C or SIGTERM into a polite request; a second one interrupts at once."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    @contextmanager
    def listening(self) -> Iterator[StopSignal]:
        """While the block lasts; a program's own handler of SIGTERM stays in charge."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def ask(number: int, frame: Any) -> None:
            _received.append(number)
            if self.asked:
                raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
            self.asked = True

        ours, present = [signal.SIGINT], signal.getsignal(signal.SIGTERM)
        if present in (signal.SIG_DFL, _terminate) or present in _listening:
            ours.append(signal.SIGTERM)
        before = {number: signal.signal(number, ask) for number in ours}
        _listening.append(ask)
        try:
            yield self
        finally:
            _listening.remove(ask)
            for number, handler in before.items():
                signal.signal(number, handler)
