"""A model's vectors in files that other systems read and write: parquet, numpy's npz, or an index of FAISS."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import torch

from evenhand.data.interactions import Interactions
from evenhand.models.base import Model
from evenhand.models.factors import FactorModel
from evenhand.models.filters import positions
from evenhand.models.folder import load, read_as
from evenhand.utils.atomic import atomic_file, atomic_folder, check_folder
from evenhand.utils.errors import InputError, unknown

Form = Literal["parquet", "npz", "faiss"]


def export(model: Model, to: str, out: str | Path, *, seed: int | None = None, force: bool = False) -> None:
    """Write the vectors of one replica (the best, or that of `seed`) to the folder or .npz file `out`."""
    out = Path(out)
    check_export(to, out, force)
    model = model.as_vectors()
    replica = model.replica(seed)
    users, items = (vectors[replica].numpy() for vectors in model.vectors)
    if to == "npz":
        _write_npz(model, users, items, out)
        return
    names = ("users.parquet", "items.parquet" if to == "parquet" else "ids.parquet", "items.faiss")
    with atomic_folder(out, names[:2] if to == "parquet" else names, force=force) as place:
        _write_parquet(place / "users.parquet", model.known.user_ids, users)
        if to == "parquet":
            _write_parquet(place / "items.parquet", model.known.item_ids, items)
        else:
            _write_parquet(place / "ids.parquet", model.known.item_ids, None)
            _write_index(place / "items.faiss", items)


def check_export(to: str, out: Path, force: bool) -> None:
    """Refuse what could not be written, before a model is read."""
    if to not in get_args(Form):
        raise unknown("form of export", to, get_args(Form))
    if to == "faiss" and find_spec("faiss") is None:
        raise InputError("faiss is not installed; install it with: pip install 'evenhand[faiss]'.")
    if to != "npz":
        check_folder(out, force)
        return
    if out.suffix != ".npz":
        raise InputError(f"'{out}' must end in .npz.")
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file.")
    if out.exists() and not force:
        raise InputError(f"{out} exists already; choose another name or use --force.")


def _write_npz(model: FactorModel, users: np.ndarray, items: np.ndarray, out: Path) -> None:
    ids = {"user_ids": _plain_ids(model.known.user_ids), "item_ids": _plain_ids(model.known.item_ids)}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as partial, partial.open("wb") as file:
            np.savez(file, **ids, user_vectors=users, item_vectors=items)  # type: ignore[arg-type]
    except OSError as problem:
        raise InputError(f"cannot write {out}: {problem.strerror or problem}.") from problem


def _plain_ids(ids: pa.Array) -> np.ndarray:
    """Integers, or texts of fixed width: an array of objects could only be read by unpickling."""
    if pa.types.is_integer(ids.type):
        return ids.to_numpy(zero_copy_only=False)
    return np.array(ids.to_pylist(), dtype=np.str_)


def _write_parquet(path: Path, ids: pa.Array, vectors: np.ndarray | None) -> None:
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"id": ids}
    if vectors is not None:
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    pq.write_table(pa.table(columns), path, compression="zstd")


def _write_index(path: Path, items: np.ndarray) -> None:
    faiss: Any = import_module("faiss")
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(np.ascontiguousarray(items, dtype=np.float32))
    # By way of bytes, because faiss reports a full disk with an error of its own.
    path.write_bytes(faiss.serialize_index(index).tobytes())


_LAYOUT = (
    "a model folder, a folder with users.parquet and items.parquet (columns id and vector), or an .npz file "
    "with user_ids, item_ids, user_vectors and item_vectors"
)


def vectors_from(path: str | Path, data: Interactions) -> FactorModel:
    """The vectors at `path` for the users and items of `data`; every one of them must have one."""
    path = Path(path).expanduser()
    with read_as("vectors", path):
        sides = _read(path)
    users, items = (
        _in_order(path, ids, vectors, wanted, kind)
        for (ids, vectors), wanted, kind in zip(sides, (data.user_ids, data.item_ids), ("user", "item"), strict=True)
    )
    if users.shape[1] != items.shape[1]:
        raise InputError(f"{path}: vectors of users have {users.shape[1]} numbers and those of items {items.shape[1]}.")
    return FactorModel(
        torch.from_numpy(users)[None],
        torch.from_numpy(items)[None],
        known=data,
        seeds=(0,),
        info={"method": f"vectors of {path.name}"},
    )


def _read(path: Path) -> list[tuple[pa.Array, np.ndarray]]:
    if (path / "config.json").is_file():
        model = load(path).as_vectors()
        ids = model.known.user_ids, model.known.item_ids
        return [(own, side[model.best].numpy()) for own, side in zip(ids, model.vectors, strict=True)]
    if path.suffix == ".npz" and path.is_file():
        with np.load(path, allow_pickle=False) as found:
            return [(pa.array(found[f"{one}_ids"]), found[f"{one}_vectors"]) for one in ("user", "item")]
    files = [path / "users.parquet", path / "items.parquet"]
    if not all(file.is_file() for file in files):
        raise InputError(f"{path} holds no vectors; it must be {_LAYOUT}.")
    return [_parquet(file) for file in files]


def _parquet(file: Path) -> tuple[pa.Array, np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table(file, columns=["id", "vector"]).combine_chunks()
    lists: Any = table["vector"].combine_chunks()
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    return table["id"].combine_chunks(), flat.reshape(len(table), -1)


def _in_order(path: Path, ids: pa.Array, vectors: np.ndarray, wanted: pa.Array, kind: str) -> np.ndarray:
    """float32 [n, d]: the vector of every wanted id."""
    if vectors.ndim != 2 or len(vectors) != len(ids) or not np.issubdtype(vectors.dtype, np.floating):
        raise InputError(f"{path}: the vectors of {kind}s must be one row of numbers for each id.")
    place = positions(wanted, ids)
    if (place < 0).any():
        missing = wanted.filter(pa.array(place < 0))
        raise InputError(
            f"{path} has no vector for {len(missing):,} of the data's {len(wanted):,} {kind}s, the first "
            f"being {missing[0].as_py()!r}; it must come from the same data."
        )
    found = np.ascontiguousarray(vectors[place], dtype=np.float32)
    if not np.isfinite(found).all():
        raise InputError(f"{path}: a vector of the {kind}s holds something that is no number.")
    return found
