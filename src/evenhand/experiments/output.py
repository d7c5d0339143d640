"""The folder of a run or a search: results, lists, trials and the resolved configuration, never written over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand.data.write import write_table
from evenhand.experiments.compare import CompareResult
from evenhand.experiments.results import check_writable, writing
from evenhand.experiments.tune import TuneResult
from evenhand.models.folder import check_ours
from evenhand.training.checkpoints import discard
from evenhand.utils.atomic import atomic_file, one_process, remove_abandoned
from evenhand.utils.errors import InputError, StoppedError
from evenhand.utils.world import World

CHECKPOINTS = ".checkpoints"
"""Where an unfinished run keeps its checkpoints, in its own folder."""
JOURNAL, BEST, TRIALS, FRONT = SEARCH = ("trials.log", "best.json", "trials.parquet", "front.html")
"""The files of a search."""


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
    check_writable(folder)
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
def search_folder(out: str, force: bool, local: bool) -> Iterator[Path]:
    """Yields the file for the trials. A search that is in the folder goes on, or with force begins again."""
    folder = Path(out)
    remove_abandoned(folder / JOURNAL)
    own = any((folder / name).exists() for name in SEARCH)
    check_folder(folder, force or own)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if force and local:
            with one_process(folder):
                for name in SEARCH:
                    (folder / name).unlink(missing_ok=True)
            folder.mkdir(exist_ok=True)
    try:
        yield folder / JOURNAL
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise


def check_model_folder(model: str | None, out: str, refit: bool, force: bool) -> None:
    """Refuse a place for the model that could not be written to after the search, before it begins."""
    if model is None:
        if refit:
            raise InputError("--refit is for the model that --model writes; name a folder for it.")
        return
    folder, search = Path(model).resolve(), Path(out).resolve()
    if folder == search or folder in search.parents:
        raise InputError(f"--model {model} holds the folder of the search; name another one for the model.")
    unfinished = checkpoints_beside(model).is_dir()
    if folder.is_dir() and any(folder.iterdir()) and not force and not unfinished:
        # Not a word of --force, which would begin the search again.
        raise InputError(f"{model} already holds files; name another folder for the model.")
    check_folder(model, force=True)
    check_ours(folder)


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
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        history = {label: list(fit.history) for label, fit in result.fits.items()}
        _write_json(folder / "results.json", result.to_json() | {"history": history})
        _write_json(folder / "config.json", origin | result.configuration())
    lists = {label: fit.lists(max(result.ks)) for label, fit in result.fits.items()}
    named = (table.append_column("name", pa.repeat(label, len(table))) for label, table in lists.items())
    write_table(pa.concat_tables(named), folder / "recommendations.parquet")
    return lists


def write_search(result: TuneResult, folder: Path, origin: dict[str, Any]) -> None:
    """`best.json` and `trials.parquet`; `origin` says where the data came from."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / BEST, origin | result.to_json())
    write_table(result.table(), folder / TRIALS)


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


def _write_json(path: Path, document: Any) -> None:
    """Whole or not at all: a reader never sees half a file."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
