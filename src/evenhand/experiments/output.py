"""The folder of a run: results, recommendations and the resolved configuration, never written over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.errors import InputError
from evenhand.experiments.compare import CompareResult


def claim_folder(folder: str | Path, force: bool) -> Path:
    """Make sure a run can be written here, before any work is done."""
    folder = Path(folder)
    if folder.is_file():
        raise InputError(f"{folder} is a file; name a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise InputError(f"{folder} already holds files; choose another folder or use --force.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".evenhand-probe"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    return folder


def write_comparison(result: CompareResult, folder: Path, configuration: dict[str, Any]) -> None:
    """`results.json`, `recommendations.parquet` (the best seed of every contender) and `config.json`."""
    document = result.to_json() | {"history": {n: list(f.model.history) for n, f in result.fits.items()}}
    write_json(folder / "results.json", document)
    write_json(folder / "config.json", configuration)
    k = max(result.ks)
    tables = []
    for label, fit in result.fits.items():
        table = fit.model.recommend(k=k)
        tables.append(
            table.append_column("name", pa.array(np.full(len(table), label, dtype=object), pa.string()))
        )
    pq.write_table(pa.concat_tables(tables), folder / "recommendations.parquet", compression="zstd")


def write_json(path: Path, document: Any) -> None:
    """Whole or not at all: a reader never sees half a file."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
