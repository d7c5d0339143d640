"""Checkpoints of several processes: each writes its rows, then rank 0 a manifest that names every part.

Without a manifest there is no checkpoint. Parts and manifest are known by their SHA-256: where one is missing or
altered, all ranks take the checkpoint before. Rows are found by their number, so any number of processes can go on from
what any other number wrote.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from evenhand.training.checkpoints import Checkpoints, fitting, whole_content
from evenhand.utils.atomic import write_atomically
from evenhand.utils.errors import InputError
from evenhand.utils.world import Blocks, World

_USERS = re.compile(r"(model|average)\.users|loss\.beta|adam\.[01]\.(mean|square|clock)\.0|selection\.kept\.[02]")
_ITEMS = re.compile(r"(model|average)\.items|adam\.0\.(mean|square|clock)\.1|selection\.kept\.[13]")
"""Tensors [R, n, …] whose rows are spread; all others are alike on every rank."""


@dataclass
class SpreadCheckpoints(Checkpoints):
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
        with fitting(folder):
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
        if self.world.speaks and (content := whole_content(path)) is not None:
            document = json.loads(content)
        found: dict[str, Any] | None = self.world.share(document)
        return found

    def _complete(self, folder: Path, parts: list[dict[str, Any]]) -> bool:
        """Whether every part is there as it was written; the ranks look at some of them each."""
        mine = parts[self.world.rank :: self.world.size]
        wrong = sum(whole_content(folder / part["file"]) is None for part in mine)
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
