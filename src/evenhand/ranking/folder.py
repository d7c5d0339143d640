"""The model folder: what other programs and later versions may rely on.

Vectors are safetensors, ids and pairs Arrow, the rest JSON, so that any language can read it and nothing in
it is ever executed; docs/models.md describes every file.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError
from evenhand.ranking.card import model_card
from evenhand.ranking.model import Model
from evenhand.ranking.place import new_folder

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
"""Version of the folder's layout; a folder of another version is refused."""
CONTENT = ("model.safetensors", "users.arrow", "items.arrow", "known.arrow", "history.json")
"""What config.json holds checksums of."""
FILES = (*CONTENT, "README.md", "config.json")
"""Everything in the folder; config.json is written last, and without it there is no model."""


def write_model(model: Model, folder: str | Path, *, force: bool = False) -> None:
    """Write the folder, whole or not at all; one that exists is only replaced with `force`."""
    with new_folder(folder, FILES, force=force) as place:
        _write_tensors(place / "model.safetensors", _tensors(model))
        known = model.known
        _write_arrow(place / "users.arrow", {"id": known.user_ids})
        _write_arrow(place / "items.arrow", {"id": known.item_ids})
        _write_arrow(place / "known.arrow", {"user": pa.array(known.users), "item": pa.array(known.items)})
        _write_json(place / "history.json", [dict(record) for record in model.history])
        (place / "README.md").write_text(model_card(model, Path(folder).name), encoding="utf-8")
        config = {
            "format": FORMAT,
            "seeds": list(model.seeds),
            "best": model.best,
            "info": model.info,
            "metrics": model.metrics,
            "checksums": {name: _sha256(place / name) for name in CONTENT},
        }
        _write_json(place / "config.json", config)


def read_model(folder: str | Path, *, verify: bool = True) -> Model:
    """Read a folder that `write_model` wrote, and make sure that its parts belong together."""
    folder = Path(folder)
    config = _read_config(folder)
    try:
        if verify:
            _verify(folder, config.checksums)
        tensors = _read_tensors(folder / "model.safetensors")
        tables = ("user_tables", "item_tables")
        model = Model(
            user_vectors=tensors["user_vectors"],
            item_vectors=tensors["item_vectors"],
            known=_read_known(folder),
            seeds=config.seeds,
            best=config.best,
            info=config.info,
            history=tuple(json.loads((folder / "history.json").read_text(encoding="utf-8"))),
            metrics=config.metrics,
            tables=(tensors[tables[0]], tensors[tables[1]]) if set(tables) <= set(tensors) else None,
        )
    except InputError:
        raise
    except Exception as problem:
        # Whatever is wrong inside one of the files, its reader has its own kind of error for it.
        raise InputError(f"{folder} cannot be read as a model: {_one_line(problem)}.") from problem
    _check_shapes(folder, model)
    return model


@dataclass(frozen=True)
class _Config:
    """config.json, checked."""

    seeds: tuple[int, ...]
    best: int
    info: Mapping[str, Any]
    metrics: Mapping[str, Any]
    checksums: Mapping[str, str]


def _read_config(folder: Path) -> _Config:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder} is not a model folder: it has no config.json.")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise InputError(f"{folder} cannot be read as a model: config.json: {_one_line(problem)}.") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("format"), int) or "seeds" not in raw:
        raise InputError(f"{folder} cannot be read as a model: its config.json is not that of a model.")
    if raw["format"] != FORMAT:
        way_out = "update evenhand" if raw["format"] > FORMAT else "use the version that wrote it"
        raise InputError(
            f"{folder} has format {raw['format']}, this version of evenhand reads {FORMAT}; {way_out} or "
            "train the model anew."
        )
    shapes = {"seeds": list, "best": int, "info": dict, "metrics": dict, "checksums": dict}
    wrong = [name for name, kind in shapes.items() if not isinstance(raw.get(name), kind)]
    seeds = raw["seeds"]
    if not wrong and not (seeds and all(type(seed) is int for seed in seeds)):
        wrong = ["seeds"]
    if not wrong and not 0 <= raw["best"] < len(seeds):
        wrong = ["best"]
    if wrong:
        raise InputError(f"{folder} is damaged: '{wrong[0]}' in its config.json is missing or wrong.")
    return _Config(tuple(seeds), *(raw[name] for name in list(shapes)[1:]))


def _verify(folder: Path, checksums: Mapping[str, str]) -> None:
    for name in CONTENT:
        if not (folder / name).is_file():
            raise InputError(f"{folder} is damaged: {name} is missing; copy the folder anew.")
        if _sha256(folder / name) != checksums.get(name):
            raise InputError(
                f"{folder} is damaged: {name} is not the file that was saved; copy the folder anew."
            )


def _check_shapes(folder: Path, model: Model) -> None:
    """Vectors, ids and seeds must be as many as each other, whatever the checksums say."""
    replicas, dim = len(model.seeds), model.user_vectors.shape[-1]
    wanted = [(replicas, size, dim) for size in (model.known.n_users, model.known.n_items)]
    if [tuple(matrix.shape) for matrix in model.vectors] != wanted:
        raise InputError(f"{folder} is damaged: its vectors do not match its ids.")
    tables = model.tables or ()
    if any(t.shape[:2] != v.shape[:2] for t, v in zip(tables, model.vectors, strict=False)):
        raise InputError(f"{folder} is damaged: its tables do not match its ids.")


def _tensors(model: Model) -> dict[str, Tensor]:
    named = {"user_vectors": model.user_vectors, "item_vectors": model.item_vectors}
    if model.tables is not None:
        named |= {"user_tables": model.tables[0], "item_tables": model.tables[1]}
    return {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}


def _write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
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


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _write_arrow(path: Path, columns: Mapping[str, pa.Array]) -> None:
    table = pa.table(dict(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def _read_known(folder: Path) -> Interactions:
    users, items = (_ids(_read_arrow(folder / f"{name}.arrow")["id"]) for name in ("users", "items"))
    pairs = _read_arrow(folder / "known.arrow")
    user, item = (pairs[name].to_numpy().astype(np.int64) for name in ("user", "item"))
    if len(user) and not (
        user.min() >= 0 <= item.min() and user.max() < len(users) and item.max() < len(items)
    ):
        raise InputError(f"{folder} is damaged: known.arrow holds pairs of unknown users or items.")
    if (np.diff(user * len(items) + item) <= 0).any():
        raise InputError(f"{folder} is damaged: the pairs in known.arrow are not in order.")
    return Interactions(
        user_ids=users,
        item_ids=items,
        indptr=np.concatenate([[0], np.cumsum(np.bincount(user, minlength=len(users)))]).astype(np.int64),
        items=item.astype(np.int32),
    )


def _ids(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _write_json(path: Path, document: Any) -> None:
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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _one_line(problem: BaseException) -> str:
    return " ".join(str(problem).split()).rstrip(".") or type(problem).__name__
