"""The folder of a run: results, recommendations and the resolved configuration, never written over."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand.data.write import write_table
from evenhand.experiments.compare import CompareResult
from evenhand.experiments.tune import TuneResult
from evenhand.training.checkpoints import discard
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError, StoppedError
from evenhand.utils.locks import one_process
from evenhand.utils.world import World

CHECKPOINTS = ".checkpoints"
"""Where an unfinished run keeps its checkpoints, in its own folder."""


def check_folder(folder: str | Path, force: bool, resume: bool = False) -> Path:
    """Refuse a folder that a run could not be written to, before any work is done; nothing is made yet."""
    folder = Path(folder)
    if not World.current().speaks:
        return folder
    if folder.is_dir():
        unfinished = (folder / CHECKPOINTS).is_dir()
        if unfinished and not force and not resume:
            raise InputError(f"{folder} holds an unfinished run; go on with --resume, or start over with --force.")
        if resume and any(folder.iterdir()) and not unfinished:
            raise InputError(f"{folder} holds no unfinished run, so there is nothing to resume.")
        if any(folder.iterdir()) and not force and not unfinished:
            raise InputError(f"{folder} already holds files; choose another folder or use --force.")
        nearest = folder
    else:
        nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot write to {folder}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {folder}: {nearest} is read-only.")
    return folder


@contextmanager
def run_folder(folder: Path | None, force: bool, resume: bool) -> Iterator[Path | None]:
    """Work in a folder as its only process; yields where checkpoints go, which are removed at the end."""
    if folder is None:
        yield None
        return
    checkpoints = folder / CHECKPOINTS
    world = World.current()
    if not world.speaks:  # rank 0 answers for the folder
        world.barrier()
        yield checkpoints
        world.barrier()
        return
    with one_process(folder):
        check_folder(folder, force, resume)  # again: another process may have finished here meanwhile
        if not resume:
            discard(checkpoints)
        world.barrier()
        with stops_explained(checkpoints, "go on with --resume"):
            yield checkpoints
        world.barrier()
        discard(checkpoints)


def checkpoints_beside(model: str | Path) -> Path:
    """Where the training of a model keeps its checkpoints: beside the folder, which is replaced at one stroke."""
    folder = Path(model)
    return folder.with_name(f".{folder.name}.checkpoints")


@contextmanager
def stops_explained(checkpoints: Path | None, how: str) -> Iterator[None]:
    """Whoever stops the work in the block reads in one line that it is kept, and how to go on.

    Without `checkpoints` something is kept in any case, as the trials of a search are.
    """
    try:
        yield
    except (StoppedError, KeyboardInterrupt) as stop:
        if checkpoints is not None and not checkpoints.is_dir():
            raise
        if isinstance(stop, StoppedError):
            raise StoppedError(stop.done, f"everything is saved: {how}") from stop
        raise StoppedError("stopped", f"what is finished is saved: {how}") from stop


def write_comparison(result: CompareResult, folder: Path, origin: dict[str, Any]) -> dict[str, pa.Table]:
    """`results.json`, `recommendations.parquet` (the best seed of every method) and `config.json`.

    `origin` says in `config.json` where the data came from. Returns the lists by method.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        history = {label: list(fit.history) for label, fit in result.fits.items()}
        _write_json(folder / "results.json", result.to_json() | {"history": history})
        _write_json(folder / "config.json", origin | result.configuration())
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    lists = {label: fit.lists(max(result.ks)) for label, fit in result.fits.items()}
    write_table(_in_one(lists), folder / "recommendations.parquet")
    return lists


def write_search(result: TuneResult, folder: Path, origin: dict[str, Any]) -> None:
    """`best.json` and `trials.parquet`; `origin` says where the data came from."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "best.json", origin | result.to_json())
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    write_table(result.table(), folder / "trials.parquet")


def data_record(
    data: str, files: Iterable[Path], reading: Any, splitting: Any, *, groups: str | None = None
) -> dict[str, Any]:
    """Which data was read, how, and the fingerprint of every file; `reading`, `splitting` are dataclasses.

    Folders are left out of every name: people publish models, and a path tells on its owner.
    """
    read = [*files, *([Path(groups.rpartition(":")[0])] if groups else [])]
    held_out = asdict(splitting)
    if held_out.get("test"):
        held_out["test"] = Path(held_out["test"]).name
    return {
        "source": data if data == "-" else Path(data).name,
        "files": [_fingerprint(file) for file in read],
        "reading": asdict(reading),
        "splitting": held_out,
        "groups": Path(groups).name if groups else None,
    }


def extended_record(old: Any, data: str, files: Iterable[Path], reading: Any) -> dict[str, Any]:
    """The record of a model that was given more data: both sources and the fingerprints of all files."""
    before: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {"reading": asdict(reading)}
    source = data if data == "-" else Path(data).name
    said = [before["source"]] if isinstance(before.get("source"), str) else []
    known = before["files"] if isinstance(before.get("files"), list) else []
    return {**before, "source": " + ".join([*said, source]), "files": [*known, *map(_fingerprint, files)]}


def _fingerprint(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}.") from problem
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _in_one(lists: dict[str, pa.Table]) -> pa.Table:
    """One table with a column `name` that tells the methods apart."""
    return pa.concat_tables(table.append_column("name", pa.repeat(label, len(table))) for label, table in lists.items())


def _write_json(path: Path, document: Any) -> None:
    """Whole or not at all: a reader never sees half a file."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
