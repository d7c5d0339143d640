"""Vectors from elsewhere as a model: a model folder, or parquet or npz files as `export` writes them.

The scores are inner products. Vectors are found by their ids, so what is beside them does not matter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from evenhand.data.interactions import Interactions
from evenhand.models.factors import FactorModel, load
from evenhand.models.files import one_line
from evenhand.models.id_lookup import positions
from evenhand.utils.errors import InputError

_LAYOUT = (
    "a model folder, a folder with users.parquet and items.parquet (columns id and vector), or an .npz file "
    "with user_ids, item_ids, user_vectors and item_vectors"
)


def vectors_from(path: str | Path, data: Interactions) -> FactorModel:
    """The vectors at `path` for the users and items of `data`; every one of them must have one."""
    path = Path(path).expanduser()
    try:
        sides = _read(path)
    except InputError:
        raise
    except Exception as problem:
        # Whatever is wrong inside one of the files, its reader has its own kind of error for it.
        raise InputError(f"{path} cannot be read as vectors: {one_line(problem)}.") from problem
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
        model = load(path)
        if not isinstance(model, FactorModel):
            raise model.no_vectors()
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
