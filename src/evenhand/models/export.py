"""A model's vectors in files that other systems read: parquet, numpy's npz, or an index of FAISS.

Serving rarely runs evenhand itself; all it needs is two matrices and the ids of their rows.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from evenhand.models.factors import FactorModel
from evenhand.utils.atomic import atomic_file, atomic_folder, check_folder
from evenhand.utils.errors import InputError, unknown

Form = Literal["parquet", "npz", "faiss"]


def export(model: FactorModel, to: str, out: str | Path, *, seed: int | None = None, force: bool = False) -> None:
    """Write the vectors of one replica (the best, or that of `seed`) to the folder or .npz file `out`."""
    out = Path(out)
    check_export(to, out, force)
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
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(out) as partial, partial.open("wb") as file:
            np.savez(
                file,
                user_ids=_plain_ids(model.known.user_ids),
                item_ids=_plain_ids(model.known.item_ids),
                user_vectors=users,
                item_vectors=items,
            )
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
