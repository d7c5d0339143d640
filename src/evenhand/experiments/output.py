"""The folder of a run: results, recommendations and the resolved configuration, never written over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from evenhand.data.write import write_table
from evenhand.errors import InputError
from evenhand.experiments.compare import CompareResult
from evenhand.experiments.configuration import configuration


def check_folder(folder: str | Path, force: bool) -> Path:
    """Refuse a folder that a run could not be written to, before any work is done; nothing is made yet."""
    folder = Path(folder)
    if folder.is_dir():
        if any(folder.iterdir()) and not force:
            raise InputError(f"{folder} already holds files; choose another folder or use --force.")
        nearest = folder
    else:
        nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"cannot write to {folder}: {nearest} is a file; name a folder.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {folder}: {nearest} is read-only.")
    return folder


def write_comparison(result: CompareResult, folder: Path, origin: dict[str, Any]) -> None:
    """`results.json`, `recommendations.parquet` (the best seed of every contender) and `config.json`.

    `origin` says in `config.json` where the data came from.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        history = {label: list(fit.model.history) for label, fit in result.fits.items()}
        _write_json(folder / "results.json", result.to_json() | {"history": history})
        _write_json(folder / "config.json", origin | configuration(result))
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    write_table(_recommendations(result), folder / "recommendations.parquet")


def _recommendations(result: CompareResult) -> pa.Table:
    """The best seed's lists of every contender, with a column `name` that tells them apart."""
    tables = []
    for label, fit in result.fits.items():
        table = fit.model.recommend(k=max(result.ks))
        tables.append(table.append_column("name", pa.repeat(label, len(table))))
    return pa.concat_tables(tables)


def _write_json(path: Path, document: Any) -> None:
    """Whole or not at all: a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
