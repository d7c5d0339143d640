"""The file of a part: its finished rows, each with the command, numbers, versions and hardware behind it.

Rows are added as they finish, so an interrupted grid keeps them. Results of another version, other data or
other settings are never mixed in: the file refuses them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evenhand
from evenhand.data.describe import fingerprint
from evenhand.data.splits import Split
from evenhand.paper.reproduce.request import PARTS, Request
from evenhand.utils.atomic import write_whole
from evenhand.utils.errors import InputError, written_by_us

FORMAT = 1
WORK = ".work"
"""Beside the files: checkpoints, and the users behind the rows. Not to be kept in a repository."""

Document = dict[str, Any]
_PLAIN_LIST = re.compile(r"\[[^\[\]{}\"]*\]")
"""A list of numbers, which is easier to read on one line."""


@dataclass
class Record:
    """What is known of one part so far."""

    path: Path
    document: Document

    @property
    def entries(self) -> dict[str, Any]:
        """By the row's label, in the order in which they finished."""
        entries: dict[str, Any] = self.document["entries"]
        return entries

    def add(self, label: str, entry: Mapping[str, Any]) -> None:
        self.entries[label] = dict(entry)
        self.write()

    def write(self) -> None:
        """Whole or not at all."""
        text = json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        text = _PLAIN_LIST.sub(lambda found: " ".join(found[0].split()), text)
        with writing(self.path):
            write_whole(self.path, text.encode())


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """What the system has to say about a place that cannot be written to, in one sentence."""
    try:
        yield
    except OSError as problem:
        raise InputError(f"cannot write to {place}: {problem.strerror or problem}.") from problem


def open_record(folder: Path, request: Request, split: Split) -> Record:
    """The record of the part in this folder, new or to be gone on with; nothing is written."""
    check_writable(folder)
    for other in documents(folder).values():
        if other["evenhand"] != evenhand.__version__:
            raise InputError(
                f"{folder} holds results of evenhand {other['evenhand']}, but this is "
                f"{evenhand.__version__}; choose another --out."
            )
    mine = request.identity() | {
        "split": split.description,
        "data": {name: fingerprint(part) for name, part in split.parts().items()},
    }
    path = folder / f"{request.name}.json"
    if not path.exists():
        head = {"format": FORMAT, "evenhand": evenhand.__version__, "identity": mine}
        return Record(path, head | {"entries": {}, "over_users": []})
    found = read_document(path)
    other = found["identity"]
    differing = [name for name in mine if mine[name] != other.get(name)]
    if differing:
        told = ", ".join(_difference(name, other.get(name), mine[name]) for name in differing)
        raise InputError(f"{path} was made otherwise ({told}); ask for the same, or choose another --out.")
    return Record(path, found)


def read_document(path: Path) -> Document:
    """A file that `Record.write` wrote, or one sentence."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror}.") from problem
    except (ValueError, RecursionError):
        raise InputError(f"{path} is damaged: it is no JSON; remove it to start over.") from None
    parts = {"format", "evenhand", "identity", "entries", "over_users"}
    if not isinstance(found, dict) or not parts <= set(found) or found["format"] != FORMAT:
        raise InputError(f"{path} is not a file of `evenhand reproduce`; choose another --out.")
    with as_written(path):
        mappings = [found["identity"], found["entries"], *found["entries"].values(), *found["over_users"]]
        if not all(isinstance(one, dict) for one in mappings):
            raise TypeError("a row that is none")
    return found


@contextmanager
def as_written(place: Path) -> Iterator[None]:
    """Results that somebody changed by hand may lack anything; whoever reads them is told in one sentence."""
    with written_by_us(place, "results", "remove them"):
        yield


def documents(folder: Path) -> dict[str, Document]:
    """Every result file of a folder by its name without ending; other files are left alone."""
    return {path.stem: read_document(path) for path in _files(folder)}


def check_writable(folder: Path) -> None:
    """Refuse a place that could not be written to, before any work is done."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot write to {folder}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {folder}: {nearest} is read-only.")


def work_folder(folder: Path) -> Path:
    """Where unfinished work lies; a repository around it does not see it."""
    place = folder / WORK
    place.mkdir(parents=True, exist_ok=True)
    (place / ".gitignore").write_text("*\n", encoding="utf-8")
    return place


def _files(folder: Path) -> Iterator[Path]:
    for part in PARTS:
        yield from sorted(folder.glob(f"{part}-*.json"))


def _difference(name: str, theirs: Any, mine: Any) -> str:
    return "other data" if name == "data" else f"{name} {theirs}, now {mine}"
