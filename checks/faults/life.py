"""One run of a command in a process of its own, and how that process ends.

Most lives are forked from a process that has imported everything, which takes a few milliseconds; some are
started afresh, as a person would. Both do the same.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any
from unittest.mock import patch

import checks.faults.hook as hook

IMPORTED = ("pandas", "optuna.samplers", "optuna.storages.journal", "optuna.trial", "rich.table", "numba",
            "typer._adapters", "pyarrow.pandas_compat", "pyarrow.csv", "pyarrow.parquet",
            "safetensors.torch", "scipy.special")  # fmt: skip
"""What evenhand uses late; pyarrow takes pandas where it is installed."""
NIGHTLY = Path(__file__).parents[2] / "examples" / "nightly.py"
PATIENCE = 90.0
"""Seconds after which processes that wait for one that died count as hung."""


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
    ranks: int = 1
    """So many processes work together; what ends the first or, at a moment, one of them or all must end the rest."""
    script: bool = False
    """The arguments are those of examples/nightly.py, whose commands run in the same process."""


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
    parts: list[str] = field(default_factory=list)
    """Parts of a blend or a recipe that were fitted."""
    compiling: float = 0.0
    """Seconds for which it compiled or loaded what is compiled, if it came to its end."""

    @property
    def killed(self) -> bool:
        return self.code in (-signal.SIGKILL, -signal.SIGXFSZ)


def live(life: Life, told: Path) -> None:
    """Run the command in this process; what happens is told line by line, so that it outlives a kill."""
    from evenhand.baselines import recipe
    from evenhand.baselines.blend import Workshop
    from evenhand.cli import main
    from evenhand.training import checkpoints as checkpoint
    from evenhand.training.trainer import Trainer
    from evenhand.utils.progress import compile_time

    compiled_before = compile_time()
    lines = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    run = Trainer.run

    def watched(self: Any, stopping: Any, evaluator: Any, saved: Any, *, resume: bool, on_epoch: Any) -> Any:
        def then(done: int, most: int, record: Any) -> None:
            os.write(lines, f"epoch {_name(saved.folder) if saved.folder else '-'} {done}\n".encode())
            if on_epoch:
                on_epoch(done, most, record)

        return run(self, stopping, evaluator, saved, resume=resume, on_epoch=then)

    save = checkpoint.Checkpoints.save

    def recorded(self: Any, tensors: Any, facts: Any) -> None:
        save(self, tensors, facts)
        os.write(lines, f"saved {_name(self.folder)} {len(facts['history'])}\n".encode())

    checkpoint.Checkpoints.save = recorded  # type: ignore[method-assign]
    keep = Workshop.keep

    def kept(self: Any, method: Any, part: Any, record: Any) -> None:
        keep(self, method, part, record)
        if (place := self._place(method)) is not None:
            os.write(lines, f"part {place.name}\n".encode())

    Trainer.run = watched  # type: ignore[method-assign]
    Workshop.keep = kept  # type: ignore[method-assign]
    recipe.candidates = few_candidates
    if life.within_epochs:
        checkpoint.LONG_EPOCH = 0
    sys.argv = ["evenhand", *life.arguments]
    if life.script:
        main = partial(nightly, life.arguments)  # type: ignore[assignment]
    with ExitStack() as stack:
        act = hook.dying_at(life.at_operation or 0)
        seen = stack.enter_context(hook.watching(Path(life.folder), act))
        if life.at_size is not None:
            stack.enter_context(hook.files_up_to(life.at_size, deadly=True))
        try:
            main()
        finally:
            os.write(lines, f"operations {len(seen)}\ncompiling {compile_time() - compiled_before}\n".encode())


def _name(folder: Path) -> str:
    """A folder of checkpoints, told from the others of a run."""
    return f"{folder.parent.name}/{folder.name}"


def few_candidates(*_: Any) -> dict[str, list[Any]]:
    """What a recipe tries here: as it does everything within its budget, its end does not depend on the clock."""
    from evenhand.baselines import EASE, Popular
    from evenhand.encoders import MF
    from evenhand.objectives import Softmax
    from evenhand.samplers import UniformSampler
    from evenhand.training.settings import Settings
    from evenhand.training.trained import Trained

    settings = Settings(epochs=12, patience=12, batch=256)
    trained = [Trained(UniformSampler(), Softmax(temperature=t), MF(dim=16), settings, "softmax") for t in (0.1, 0.3)]
    return {"popular": [Popular()], "ease": [EASE(l2=20), EASE(l2=200)], "softmax": list(trained)}


def nightly(arguments: tuple[str, ...], then: Callable[[list[str]], None] = lambda command: None) -> None:
    """examples/nightly.py; its commands run in this process, and `then` hears of each that has ended."""

    def in_process(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        from evenhand.cli import main

        code: Any = 0
        with patch.object(sys, "argv", command):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        then(command)
        return subprocess.CompletedProcess(command, code)

    with patch.object(subprocess, "run", in_process), patch.object(sys, "argv", [str(NIGHTLY), *arguments]):
        runpy.run_path(str(NIGHTLY), run_name="__main__")


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
    if life.ranks > 1:
        return _together(life, scratch, after)
    told, err = scratch / "told", scratch / "err"
    told.unlink(missing_ok=True)
    began = time.monotonic()
    child = _child(life, told, err)
    while True:
        pid, status = os.waitpid(child, 0 if after is None else os.WNOHANG)
        if pid:
            break
        if after is not None and time.monotonic() - began >= after:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.001)
    return _death(os.waitstatus_to_exitcode(status), time.monotonic() - began, told, err)


def _together(life: Life, scratch: Path, after: float | None) -> Death:
    """The same in processes that form a world: the first tells what happens; the rest must end soon after one dies."""
    told, err = scratch / "told", scratch / "err"
    told.unlink(missing_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(life.ranks),
              "EVENHAND_TIMEOUT": "60", "TORCH_CPP_LOG_LEVEL": "ERROR"}  # fmt: skip
    began = time.monotonic()
    children = {}
    for rank in range(life.ranks):
        mine = life if rank == 0 else replace(life, at_operation=None, at_size=None)
        files = (told, err) if rank == 0 else (scratch / f"told-{rank}", scratch / f"err-{rank}")
        children[_child(mine, *files, **common, RANK=str(rank))] = rank
    # By the moment, so that it is the same again: the first dies, the last, or all.
    dying = () if after is None else ((0,), (life.ranks - 1,), tuple(range(life.ranks)))[int(after * 1000) % 3]
    codes: dict[int, int] = {}
    while len(codes) < life.ranks:
        for child, rank in children.items():
            if rank not in codes and (found := os.waitpid(child, os.WNOHANG))[0]:
                codes[rank] = os.waitstatus_to_exitcode(found[1])
        late = time.monotonic() - began - (after or 0)
        for child, rank in children.items():
            if rank not in codes and ((after is not None and late >= 0 and rank in dying) or late > PATIENCE):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    lost = [code for code in codes.values() if code < 0]
    code = lost[0] if lost else max(codes.values())
    death = _death(code, time.monotonic() - began, told, err)
    said = [(scratch / f"err-{rank}").read_text(errors="replace") for rank in range(1, life.ranks)]
    if any("Traceback" in text for text in (death.err, *said)) or death.seconds > PATIENCE:
        death.code, death.err = 70, "\n".join((death.err, *said, f"exit codes {codes}"))
    return death


def _child(life: Life, told: Path, err: Path, **environment: str) -> int:
    """A copy of this process that does the work; its number."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.environ.update(environment)
            _redirect(err)
            if environment.get("RANK", "0") != "0":
                wait_for_rank_0(int(environment["MASTER_PORT"]))
            live(life, told)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 70
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def wait_for_rank_0(port: int) -> None:
    """Until it listens, or for a while if it died: torch, when it comes too early, sleeps for a second."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.005)
        else:
            return


def fresh(life: Life, scratch: Path, after: float | None = None) -> Death:
    """In a new process, imports and all."""
    if life.ranks > 1:
        return _together(life, scratch, after)
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
            case ["part", name]:
                death.parts.append(name)
            case ["operations", number]:
                death.operations = int(number)
            case ["compiling", seconds]:
                death.compiling = float(seconds)
    return death


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    live(Life(**given | {"arguments": tuple(given["arguments"])}), Path(sys.argv[2]))
