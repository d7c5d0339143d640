"""The files of a model folder, one kind each: tensors, tables, JSON, and their checksums."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from torch import Tensor


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
        # It makes the file readable to its owner alone, whatever the umask says.
        path.chmod(mode)
    except SafetensorError as problem:
        # It hides the system's error, such as a full disk, in one of its own.
        raise OSError(str(problem)) from problem


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def write_arrow(path: Path, columns: Mapping[str, pa.Array]) -> None:
    table = pa.table(dict(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    # Arrow believes the offsets in a file; a false one would be read as an address.
    table.validate(full=True)
    return table


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(_plain(document), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """The same in what JSON knows: numpy's numbers as numbers, undefined ones as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split()).rstrip(".") or type(problem).__name__
