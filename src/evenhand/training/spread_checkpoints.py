"""Checkpoints of several processes: each writes its rows, then rank 0 a manifest that names every part.

Without a manifest there is no checkpoint. Parts and manifest are known by their SHA-256: where one is missing or
altered, all ranks take the checkpoint before. Rows are found by their number, so any number of processes can go on from
what any other number wrote.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.training.checkpoints import Checkpoints, content_of, fitting
from evenhand.utils.atomic import write_atomically
from evenhand.utils.errors import InputError
from evenhand.utils.world import Blocks, World

PARTS_FORMAT = 2
_MANIFEST = re.compile(r"(\d{8,})-([0-9a-f]{64})\.json")
_PART = re.compile(r"(\d{8,})-part-\d{5}-([0-9a-f]{64})\.safetensors")
_USERS = re.compile(r"(model|average)\.users|loss\.beta|adam\.0\.(mean|square|clock)\.0|selection\.kept\.[02]")
_ITEMS = re.compile(r"(model|average)\.items|adam\.0\.(mean|square|clock)\.1|selection\.kept\.[13]")
"""Tensors [R, n, …] whose rows are spread; all others are alike on every rank."""


@dataclass
class SpreadCheckpoints(Checkpoints):
    world: World = field(default_factory=World.current)

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        from safetensors.numpy import save

        assert self.folder is not None
        began, world = time.monotonic(), self.world
        number = world.agree(1 + max((n for n, _ in self._manifests()), default=0))
        content = save({name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()})
        digest = hashlib.sha256(content).hexdigest()
        name = f"{number:08d}-part-{world.rank:05d}-{digest}.safetensors"
        with world.together(), self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / name, content)
        parts = world.gathered({"file": name, "bytes": len(content), "sha256": digest})
        with world.together(), self._writing():
            if world.speaks:
                document = {"format": PARTS_FORMAT, "identity": self.identity, "facts": facts, "parts": parts}
                manifest = json.dumps(document).encode()
                write_atomically(self.folder / f"{number:08d}-{hashlib.sha256(manifest).hexdigest()}.json", manifest)
                self._tidy()
        self._last = time.monotonic()
        self._cost = self._last - began

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        assert self.folder is not None
        self._damaged = []
        for path in reversed(self.world.share([p.name for _, p in self._manifests()])):
            document = self._manifest(self.folder / path)
            if document is None or not self._complete(document["parts"]):
                self._damaged.append(self.folder / path)
                continue
            with fitting(self.folder):
                if not self._is_of_this_run(document):
                    self._damaged.append(self.folder / path)
                    continue
                tensors, facts = self._rows(document["parts"]), dict(document["facts"])
            self.notes += [
                f"Checkpoint {int(p.name[:8])} is damaged; the one before it is used." for p in self._damaged
            ]
            return tensors, facts
        if self._damaged and self.strict:
            self.notes.append("No checkpoint could be read; starting over.")
        return None

    def _is_of_this_run(self, document: Mapping[str, Any]) -> bool:
        """All ranks have the same document, so they agree."""
        try:
            self._check(document)
        except InputError:
            if self.strict:
                raise
            return False
        return True

    @property
    def format(self) -> int:
        return PARTS_FORMAT

    def _manifest(self, path: Path) -> dict[str, Any] | None:
        """What rank 0 reads there, if it is what was written."""
        document = None
        if self.world.speaks and (content := content_of(path, path.stem.rpartition("-")[2])) is not None:
            document = json.loads(content)
        found: dict[str, Any] | None = self.world.share(document)
        return found

    def _complete(self, parts: list[dict[str, Any]]) -> bool:
        """Whether every part is there as it was written; the ranks look at some of them each."""
        assert self.folder is not None
        mine = parts[self.world.rank :: self.world.size]
        wrong = sum(content_of(self.folder / part["file"], part["sha256"]) is None for part in mine)
        return int(self.world.total(torch.tensor(wrong))) == 0

    def _rows(self, parts: list[dict[str, Any]]) -> dict[str, Tensor]:
        """This rank's rows out of all parts, whoever wrote them."""
        from safetensors import safe_open

        assert self.folder is not None
        found: dict[str, Tensor] = {}
        sizes = [0, 0]
        for part in parts:
            with safe_open(self.folder / part["file"], framework="pt") as file:
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
            with safe_open(self.folder / part["file"], framework="pt") as file:
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

    def _manifests(self) -> list[tuple[int, Path]]:
        return self._named(_MANIFEST)

    def _tidy(self) -> None:
        """Keep the two newest checkpoints that are whole; remove the rest, parts without a manifest too."""
        assert self.folder is not None
        kept = [(n, path) for n, path in self._manifests() if path not in self._damaged][-2:]
        numbers = {n for n, _ in kept}
        for _, path in (*self._manifests(), *self._named(_PART)):
            if int(path.name.partition("-")[0]) not in numbers:
                path.unlink(missing_ok=True)
        for path in self.folder.glob("*.partial"):
            path.unlink(missing_ok=True)
        self._damaged = []
