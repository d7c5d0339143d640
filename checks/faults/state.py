"""What lies in a folder, read without the library: how far a run has come, and whether files are whole."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

COMPLETE, SET_STATE = 1, 6
"""Optuna's numbers in a journal of trials."""
_TEMPORARY = re.compile(r".*\.(partial|old)|\..*checkpoints|\.work|.*\.lock.*|work|lock|\.live\.new")


def saved_epochs(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The history in the newest whole checkpoint of every folder of such, by the names of that folder and its own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in _checkpoints(folder):
        if _as_named(path):
            found[f"{path.parent.parent.name}/{path.parent.name}"] = _document(path)["facts"]["history"]
    return found


def torn_checkpoints(folder: Path) -> int:
    return sum(not _as_named(path) for path in _checkpoints(folder))


def _checkpoints(folder: Path) -> list[Path]:
    """Of one process, or the manifests of several."""
    return [
        path for path in sorted(folder.rglob("*")) if re.fullmatch(r"\d{8}-[0-9a-f]{64}\.(safetensors|json)", path.name)
    ]


def finished_parts(folder: Path) -> set[str]:
    """Of blends and recipes: a part has its record last."""
    return {path.parent.name for path in folder.rglob("part.json")}


def finished_trials(journal: Path) -> dict[int, Any]:
    """Trial → its values, for all that have finished; a last line that was cut off does not count."""
    found = {}
    for line in journal.read_bytes().split(b"\n")[:-1] if journal.exists() else ():
        entry = json.loads(line)
        if entry["op_code"] == SET_STATE and entry["state"] == COMPLETE:
            found[entry["trial_id"]] = entry["values"]
    return found


def rows_on_record(folder: Path) -> dict[str, Any]:
    """Finished runs of `reproduce`, by their key."""
    runs = folder / "runs.parquet"
    return {row["run"]: row for row in pq.read_table(runs).to_pylist()} if runs.exists() else {}


def visible(folder: Path) -> dict[str, bytes]:
    """Every file that a person would take for a result, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())
    named = ((path.relative_to(folder), path) for path in files)
    return {
        str(name): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        for name, path in named
        if not any(_TEMPORARY.fullmatch(part) for part in name.parts)
    }


def litter(folder: Path) -> list[str]:
    """What only an unfinished run may leave."""
    return [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if _TEMPORARY.fullmatch(p.name)]


def untimed(files: dict[str, bytes]) -> dict[str, Any]:
    """The same without what differs between two runs that were not disturbed: how long they took."""
    return {name: _untimed(name, content) for name, content in files.items()}


def broken(files: dict[str, bytes]) -> list[str]:
    """Files that are not whole, as far as they tell."""
    return [name for name, content in files.items() if not _is_whole(name, content)]


def _is_whole(name: str, content: bytes) -> bool:
    ending = name.rpartition(".")[2]
    if ending == "json":
        try:
            json.loads(content)
        except ValueError:
            return False
        return True
    ends = {
        "parquet": (b"PAR1", b"PAR1"),
        "arrow": (b"ARROW1", b"ARROW1"),
        "html": (b"<!doctype html>", b"</html>"),
        "csv": (b"", b"\n"),
        "npz": (b"PK", b""),
    }.get(ending, (b"", b""))
    return bool(content) and content.startswith(ends[0]) and content.endswith(ends[1])


def _untimed(name: str, content: bytes) -> Any:
    if name.endswith(".json"):
        return _without_times(json.loads(content))
    if name.endswith((".log", "trials.parquet")):
        return None  # trials are compared by their values
    if name.endswith("runs.parquet"):
        rows = pq.read_table(io.BytesIO(content)).to_pylist()
        return [_without_times({**row, "details": json.loads(row["details"])}) for row in rows]
    if name.endswith((".md", ".html")):
        content = re.sub(rb"<time .*?</time>| --resume(?=</code>)", b"", content)
        return re.sub(rb"\d+(\.\d+)? (s|seconds)\b|\| [\d.e+-]+ \| [^|]* threads? \|", b"", content)
    return hashlib.sha256(content).hexdigest()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in ("seconds", "checksums")}
        return {k: _without_times(v) for k, v in kept.items()}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def _as_named(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == path.stem[9:]


def _document(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    if path.suffix == ".json":
        return dict(json.loads(content))
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(json.loads(header["__metadata__"]["evenhand"]))
