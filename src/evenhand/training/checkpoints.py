"""Checkpoints: all that changes during training, in one file, or one a process, that is whole or not there.

A file's name carries the SHA-256 of its content, so a torn or altered one is recognised and the one before
it is used. Randomness is keyed, so a resumed run goes on exactly as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from evenhand.training.early_stopping import EarlyStopping
from evenhand.training.state import TrainState, under
from evenhand.utils.atomic import write_atomically
from evenhand.utils.errors import DivergedError, InputError, RunError, StoppedError
from evenhand.utils.text import count
from evenhand.utils.world import Blocks, World

_KEPT = 2
LONG_EPOCH = 60.0
"""Seconds after which a checkpoint is written even though the epoch is not over."""
_USERS = re.compile(r"(model|average)\.users|loss\.beta|adam\.[01]\.(mean|square|clock)\.0|selection\.kept\.[02]")
_ITEMS = re.compile(r"(model|average)\.items|adam\.0\.(mean|square|clock)\.1|selection\.kept\.[13]")
"""Tensors [R, n, …] whose rows are spread; all others are alike on every rank."""


@dataclass
class Checkpoints:
    """The checkpoints of one fit, in a folder of their own; without a folder nothing is kept."""

    folder: Path | None
    identity: Mapping[str, Any]
    """What a resumed run must agree on: data, method, settings, seeds. JSON values."""
    strict: bool = True
    """Whether checkpoints of another run are refused; else they are passed over, and removed by the next one."""
    share: float = 0.03
    """Write no more often than keeps the cost below this share of the time; 0 writes every time."""
    notes: list[str] = field(default_factory=list)
    epochs: int = 0
    """How many epochs the newest checkpoint has behind it."""
    _last: float = field(default_factory=time.monotonic)
    _cost: float = 0.0
    _damaged: list[Path] = field(default_factory=list)
    format: ClassVar[int] = 1
    _files = _names = re.compile(r"(\d{8,})-[0-9a-f]{64}\.safetensors")
    """What the files are called: all of them, and those that stand for a checkpoint."""

    def keep(self, state: TrainState, stopping: EarlyStopping, history: list[dict[str, Any]], seconds: float) -> None:
        """Save everything that training needs to go on."""
        if self.folder is None:
            return
        tensors = state.state() | {f"selection.{name}": t for name, t in stopping.state().items()}
        self.save(tensors, {"step": state.step, "history": history, "seconds": seconds})
        self.epochs = len(history)

    def restore(self, state: TrainState, stopping: EarlyStopping) -> tuple[list[dict[str, Any]], float]:
        """Put everything back as the newest checkpoint has it: its history, and the seconds it took."""
        if self.folder is None or (found := self.load()) is None:
            return [], 0.0
        tensors, facts = found
        with _fitting(self.folder):
            stopping.load_state(under("selection.", tensors), state.device)
            if len(stopping.running) < len(state.seeds):
                state.go_on_with(stopping.running.tolist())
            state.load_state({n: t for n, t in tensors.items() if not n.startswith("selection.")}, facts["step"])
            history, seconds = list(facts["history"]), float(facts["seconds"])
        self.epochs = len(history)
        return history, seconds

    def stopped(self, epochs: int) -> StoppedError:
        """The message for somebody who stopped the training."""
        how = "go on with --resume" if self.strict else "run the same command again to go on"
        rest = f"everything is saved: {how}" if self.folder else "nothing was saved"
        return StoppedError(f"stopped after {count(epochs, 'epoch')}", rest)

    @contextmanager
    def divergence_explained(self) -> Iterator[None]:
        """Say what is left of a run whose numbers ran away."""
        try:
            yield
        except DivergedError as problem:
            rest = f"; the last good checkpoint, after epoch {self.epochs}, is kept: start over with --force"
            raise RunError(f"{problem}{rest if self.epochs else ''}.") from problem

    def due(self) -> bool:
        """At the end of an epoch: whether enough time has passed since the last one."""
        if self.folder is None:
            return False
        return self.share == 0 or (time.monotonic() - self._last) * self.share >= self._cost

    def due_within(self) -> bool:
        """In the middle of a long epoch: whether it is time for one."""
        return time.monotonic() - self._last >= LONG_EPOCH and self.due()

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Temporary file, sync, rename; then all but the last two whole ones are removed."""
        assert self.folder is not None
        began = time.monotonic()
        arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
        self._write(self.folder, arrays, {"format": self.format, "identity": self.identity, "facts": facts})
        self._last = time.monotonic()
        self._cost = self._last - began

    def _write(self, folder: Path, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
        from safetensors.numpy import save

        content = save(arrays, metadata={"evenhand": json.dumps(document)})
        with self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            target = f"{self._next_number():08d}-{hashlib.sha256(content).hexdigest()}.safetensors"
            write_atomically(folder / target, content)
            self._tidy()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise RunError(
                f"cannot write a checkpoint to {self.folder}: {problem.strerror or problem}; "
                "the ones before it are unharmed."
            ) from problem

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest checkpoint that is whole; None where there is none. Changes nothing on disk."""
        assert self.folder is not None
        self._damaged = []
        for name in self._newest_first():
            found = self._read(self.folder, self.folder / name)
            if found is not None:
                damaged = [int(path.name.partition("-")[0]) for path in self._damaged]
                self.notes += [f"Checkpoint {number} is damaged; the one before it is used." for number in damaged]
                return found
            self._damaged.append(self.folder / name)
        if self._damaged and self.strict:
            self.notes.append("No checkpoint could be read; starting over.")
        return None

    def _read(self, folder: Path, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and facts; None where they are damaged, or of another run that may be passed over."""
        from safetensors.torch import load

        if (content := _whole_content(path)) is None:
            return None
        try:
            with _fitting(folder):
                document = _document(content)
                self._check(document)
                return load(content), dict(document["facts"])
        except InputError:
            if self.strict:
                raise
            return None

    def _tidy(self) -> None:
        """Keep the newest checkpoints that are whole; remove the rest, and what a killed process left half written."""
        assert self.folder is not None
        kept = [number for number, path in self._found() if path not in self._damaged][-_KEPT:]
        for path in filter(Path.is_file, list(self.folder.iterdir())):
            old = self._files.fullmatch(path.name) and int(path.name.partition("-")[0]) not in kept
            if old or path.suffix == ".partial":
                path.unlink(missing_ok=True)
        self._damaged = []

    def _check(self, document: Mapping[str, Any]) -> None:
        if document["format"] != self.format:
            raise InputError(
                f"{self.folder} holds checkpoints of format {document['format']}, this version reads "
                f"{self.format}; go on with the version that wrote them, or start over with --force."
            )
        mine = json.loads(json.dumps(self.identity))
        other = _differences(mine, document["identity"])
        if other:
            raise InputError(
                f"{self.folder} belongs to a run that differs in {', '.join(other)}; give the same as when "
                "it was started, or start over with --force."
            )

    def _next_number(self) -> int:
        return 1 + max((number for number, _ in self._found()), default=0)

    def _newest_first(self) -> list[str]:
        return [path.name for _, path in reversed(self._found())]

    def _found(self) -> list[tuple[int, Path]]:
        """The checkpoints by their number, ascending."""
        if self.folder is None or not self.folder.is_dir():
            return []
        named = ((self._names.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted((int(match[1]), path) for match, path in named if match and path.is_file())


@dataclass
class SpreadCheckpoints(Checkpoints):
    """Of several processes: each writes its rows, then rank 0 a manifest that names every part.

    Without a manifest there is no checkpoint. Parts and manifest are known by their SHA-256: where one is missing or
    altered, all ranks take the checkpoint before. Rows are found by their number, so any number of processes can go on
    from what any other number wrote.
    """

    world: World = field(default_factory=World.current)
    format: ClassVar[int] = 2
    _names = re.compile(r"(\d{8,})-[0-9a-f]{64}\.json")
    _files = re.compile(r"\d{8,}-([0-9a-f]{64}\.json|part-\d{5}-[0-9a-f]{64}\.safetensors)")

    def _write(self, folder: Path, arrays: dict[str, np.ndarray], document: dict[str, Any]) -> None:
        from safetensors.numpy import save

        world = self.world
        number = world.agree(self._next_number())
        content = save(arrays)
        digest = hashlib.sha256(content).hexdigest()
        name = f"{number:08d}-part-{world.rank:05d}-{digest}.safetensors"
        with world.together(), self._writing():
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, content)
        parts = world.gathered({"file": name, "bytes": len(content), "sha256": digest})
        with world.together(), self._writing():
            if world.speaks:
                manifest = json.dumps(document | {"parts": parts}).encode()
                write_atomically(folder / f"{number:08d}-{hashlib.sha256(manifest).hexdigest()}.json", manifest)
                self._tidy()

    def _newest_first(self) -> list[str]:
        return list(self.world.share(super()._newest_first()))

    def _read(self, folder: Path, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        document = self._manifest(path)
        if document is None or not self._complete(folder, document["parts"]):
            return None
        with _fitting(folder):
            if not self._is_of_this_run(document):
                return None
            return self._rows(folder, document["parts"]), dict(document["facts"])

    def _is_of_this_run(self, document: Mapping[str, Any]) -> bool:
        """All ranks have the same document, so they agree."""
        try:
            self._check(document)
        except InputError:
            if self.strict:
                raise
            return False
        return True

    def _manifest(self, path: Path) -> dict[str, Any] | None:
        """What rank 0 reads there, if it is what was written."""
        document = None
        if self.world.speaks and (content := _whole_content(path)) is not None:
            document = json.loads(content)
        found: dict[str, Any] | None = self.world.share(document)
        return found

    def _complete(self, folder: Path, parts: list[dict[str, Any]]) -> bool:
        """Whether every part is there as it was written; the ranks look at some of them each."""
        mine = parts[self.world.rank :: self.world.size]
        wrong = sum(_whole_content(folder / part["file"]) is None for part in mine)
        return int(self.world.total(torch.tensor(wrong))) == 0

    def _rows(self, folder: Path, parts: list[dict[str, Any]]) -> dict[str, Tensor]:
        """This rank's rows out of all parts, whoever wrote them."""
        from safetensors import safe_open

        found: dict[str, Tensor] = {}
        sizes = [0, 0]
        for part in parts:
            with safe_open(folder / part["file"], framework="pt") as file:
                for side, name in enumerate(("model.users", "model.items")):
                    sizes[side] += file.get_slice(name).get_shape()[1]
        placed = (Blocks.of_users, Blocks.of_items)
        wanted = [make(n, self.world.size).mine(self.world.rank) for make, n in zip(placed, sizes, strict=True)]
        for number, part in enumerate(parts):
            rows = []  # where this part's rows go, and which they are
            for make, n, mine in zip(placed, sizes, wanted, strict=True):
                written = make(n, len(parts))
                at = np.flatnonzero(written.owner(mine) == number)
                rows.append((torch.from_numpy(at), torch.from_numpy(written.local(mine[at]))))
            with safe_open(folder / part["file"], framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  (not a mapping)
                    which = 0 if _USERS.fullmatch(name) else 1 if _ITEMS.fullmatch(name) else None
                    if which is None:
                        found.setdefault(name, file.get_tensor(name))
                        continue
                    to, there = rows[which]
                    if name not in found:
                        like = file.get_slice(name)[:, :0]
                        found[name] = like.new_empty((like.shape[0], len(wanted[which]), *like.shape[2:]))
                    if len(to):
                        found[name][:, to] = file.get_tensor(name)[:, there]
        return found


def _differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Where two identities differ, to the name of the single setting.

    >>> _differences({"seeds": [0], "settings": {"lr": 1, "batch": 2}}, {"seeds": [0], "settings": {"lr": 3}})
    ['settings batch', 'settings lr']
    """
    found = []
    for name in sorted({*mine, *theirs}):
        a, b = _by_name(mine.get(name)), _by_name(theirs.get(name))
        if isinstance(a, dict) and isinstance(b, dict):
            found += [f"{name} {key}" for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        elif a != b:
            found.append(name)
    return found


def _by_name(value: Any) -> Any:
    """Settings of several replicas as one value for each name; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return {name: [one.get(name) for one in value] for name in value[0]}
    return value


def _whole_content(path: Path) -> bytes | None:
    """The content, if it can be read and has the SHA-256 at the end of the file's name."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if hashlib.sha256(content).hexdigest() == path.stem.rpartition("-")[2] else None


def _document(content: bytes) -> dict[str, Any]:
    """What `save` put beside the tensors: the header of a safetensors file is JSON after its length."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(json.loads(header["__metadata__"]["evenhand"]))


@contextmanager
def _fitting(folder: Path) -> Iterator[None]:
    """Whatever is wrong inside a file that is whole, the user hears of it in one sentence."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as problem:
        raise InputError(
            f"{folder} holds a checkpoint that evenhand did not write; start over with --force."
        ) from problem


def discard(folder: Path) -> None:
    """Remove checkpoints that are no longer needed, at one stroke: a kill leaves all of them or none.

    With some of them left, a finished run would look like one to go on with.
    """
    gone = folder.with_name(f"{folder.name}.old")
    shutil.rmtree(gone, ignore_errors=True)  # left by a process that was killed
    with suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
