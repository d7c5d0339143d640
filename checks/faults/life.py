"""One run of a command in a process of its own, and how that process ends.

Most lives are forked from a process that has imported everything, which takes a few milliseconds; some are
started afresh, as a person would. Both do the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import checks.faults.hook as hook

IMPORTED = ("pandas", "optuna.samplers", "optuna.storages.journal", "optuna.trial", "rich.table", "numba",
            "typer._adapters", "pyarrow.pandas_compat", "pyarrow.csv", "pyarrow.parquet",
            "safetensors.torch")  # fmt: skip
"""What evenhand uses late; pyarrow takes pandas where it is installed."""


@dataclass(frozen=True)
class Life:
    """What a process is to do, and the moment at which it dies; without one it ends by itself."""

    arguments: tuple[str, ...]
    folder: str
    """File operations under it are counted."""
    at_operation: int | None = None
    at_size: int | None = None
    """Dies when a file grows beyond so many bytes."""
    within_epochs: bool = False
    """Save checkpoints at every look at the clock, not only at the end of epochs."""


@dataclass
class Death:
    """How it ended."""

    code: int
    """Negative: the signal that killed it."""
    seconds: float
    err: str
    operations: int = 0
    epochs: dict[str, list[int]] = field(default_factory=dict)
    """By the name of the checkpoint folder: the epochs that were trained to their end, counted from 1."""
    saved: dict[str, int] = field(default_factory=dict)
    """And how many of them the last checkpoint holds that was written."""

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ)


def live(life: Life, told: Path) -> None:
    """Run the command in this process; what happens is told line by line, so that it outlives a kill."""
    from evenhand.cli import main
    from evenhand.training import checkpoints as checkpoint
    from evenhand.training.trainer import Trainer

    lines = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    run = Trainer.run

    def watched(self: Any, stopping: Any, evaluator: Any, saved: Any, *, resume: bool, on_epoch: Any) -> Any:
        def then(done: int, most: int, record: Any) -> None:
            os.write(lines, f"epoch {saved.folder.name if saved.folder else '-'} {done}\n".encode())
            if on_epoch:
                on_epoch(done, most, record)

        return run(self, stopping, evaluator, saved, resume=resume, on_epoch=then)

    save = checkpoint.Checkpoints.save

    def recorded(self: Any, tensors: Any, facts: Any) -> None:
        save(self, tensors, facts)
        os.write(lines, f"saved {self.folder.name} {len(facts['history'])}\n".encode())

    Trainer.run = watched  # type: ignore[method-assign]
    checkpoint.Checkpoints.save = recorded  # type: ignore[method-assign]
    if life.within_epochs:
        checkpoint.LONG_EPOCH = 0
    sys.argv = ["evenhand", *life.arguments]
    with ExitStack() as stack:
        act = hook.dying_at(life.at_operation or 0)
        seen = stack.enter_context(hook.watching(Path(life.folder), act))
        if life.at_size is not None:
            stack.enter_context(hook.files_up_to(life.at_size, deadly=True))
        try:
            main()
        finally:
            os.write(lines, f"operations {len(seen)}\n".encode())


def import_everything() -> None:
    """So that forked processes begin at once. Nothing with threads is run, which would not survive a fork."""
    import evenhand
    from evenhand.models import topk

    own = [module.name for module in walk_packages(evenhand.__path__, "evenhand.")]
    own.remove("evenhand.__main__")  # which would run
    for name in (*IMPORTED, *own):
        with suppress(ImportError):  # what is not installed here is not used either
            import_module(name)
    topk._kernel()  # takes a second to load


def forked(life: Life, scratch: Path, after: float | None = None) -> Death:
    """In a copy of this process, killed after so many seconds."""
    told, err = scratch / "told", scratch / "err"
    told.unlink(missing_ok=True)
    sys.stdout.flush()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _redirect(err)
            live(life, told)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 70
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if after is not None and time.monotonic() - began >= after:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.001)
    return _death(os.waitstatus_to_exitcode(status), time.monotonic() - began, told, err)


def fresh(life: Life, scratch: Path, after: float | None = None) -> Death:
    """In a new process, imports and all."""
    told, err = scratch / "told", scratch / "err"
    told.unlink(missing_ok=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "checks.faults.life", json.dumps(asdict(life)), str(told)]
    with err.open("wb") as sink:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sink)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return _death(process.returncode, time.monotonic() - began, told, err)


def _redirect(err: Path) -> None:
    for path, number in ((os.devnull, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))


def _death(code: int, seconds: float, told: Path, err: Path) -> Death:
    death = Death(code, seconds, err.read_text(errors="replace") if err.exists() else "")
    for line in told.read_text().splitlines() if told.exists() else ():
        match line.split():
            case ["epoch", folder, epoch]:
                death.epochs.setdefault(folder, []).append(int(epoch))
            case ["saved", folder, epochs]:
                death.saved[folder] = int(epochs)
            case ["operations", number]:
                death.operations = int(number)
    return death


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    live(Life(**given | {"arguments": tuple(given["arguments"])}), Path(sys.argv[2]))
