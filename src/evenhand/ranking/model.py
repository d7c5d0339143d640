"""A trained model: two matrices a replica, the ids they belong to, and what users already know.

It recommends by exact top-k and lives in a folder of safetensors, Arrow and JSON files; nothing in it is
ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError
from evenhand.ranking.topk import top_items

FORMAT = 1
"""Version of the folder's layout; a folder of another version is refused."""


@dataclass(frozen=True, eq=False)
class Model:
    """Scores are inner products: s_r(u, i) = user_vectors[r, u] · item_vectors[r, i]."""

    user_vectors: Tensor
    """float32 [R, n_users, d]"""
    item_vectors: Tensor
    """float32 [R, n_items, d]"""
    known: Interactions
    """Train and validation pairs: the vocabulary of users and items, and what is not recommended again."""
    seeds: tuple[int, ...]
    best: int = 0
    """Position of the replica that did best on validation: the one that recommends."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it came to be: method, settings, protocol, versions. Plain JSON values."""
    history: tuple[Mapping[str, Any], ...] = ()
    """One record an epoch: loss, diagnostics and metrics, each one value a replica."""

    @property
    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.user_vectors, self.item_vectors

    def recommend(
        self,
        users: Any = None,
        k: int = 20,
        *,
        seed: int | Literal["all"] | None = None,
        known: bool = False,
    ) -> pa.Table:
        """The k best items of the given users (ids; None means all): user, item, score, rank.

        `seed` picks a replica by its seed, "all" takes each and adds a column seed; `known=True` lets
        items through that the user has already touched.
        """
        wanted = np.arange(self.known.n_users) if users is None else self._indices_of(users)
        if seed == "all":
            tables = [self._table(r, wanted, k, known) for r in range(len(self.seeds))]
            return pa.concat_tables(
                t.append_column("seed", pa.array(np.full(len(t), s)))
                for s, t in zip(self.seeds, tables, strict=True)
            )
        if seed is not None and seed not in self.seeds:
            raise InputError(f"the model has no seed {seed}; it has {', '.join(map(str, self.seeds))}.")
        return self._table(self.best if seed is None else self.seeds.index(seed), wanted, k, known)

    def _table(self, replica: int, users: np.ndarray, k: int, known: bool) -> pa.Table:
        items, scores = top_items(
            self.user_vectors[replica],
            self.item_vectors[replica],
            users,
            k,
            exclude=None if known else self.known,
        )
        real = items >= 0
        rank = np.broadcast_to(np.arange(1, k + 1), items.shape)
        return pa.table(
            {
                "user": self.known.user_ids.take(pa.array(np.repeat(users, real.sum(1)))),
                "item": self.known.item_ids.take(pa.array(items[real])),
                "score": pa.array(scores[real]),
                "rank": pa.array(rank[real].astype(np.int32)),
            }
        )

    def _indices_of(self, users: Any) -> np.ndarray:
        asked = users if isinstance(users, (pa.Array, pa.ChunkedArray)) else pa.array(list(users))
        ids = self.known.user_ids
        try:
            found = pa.compute.index_in(asked.cast(ids.type), value_set=ids)
        except pa.ArrowInvalid:
            raise InputError(f"the model's users are {ids.type} ids, but {asked.type} were given.") from None
        missing = asked.filter(found.is_null()).to_pylist()
        if missing:
            some = ", ".join(repr(m) for m in missing[:10])
            more = f" and {len(missing) - 10:,} more" if len(missing) > 10 else ""
            raise InputError(f"{len(missing):,} unknown user{'s' * (len(missing) > 1)}: {some}{more}.")
        return np.asarray(found, dtype=np.int64)

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model folder; one that exists already is only replaced with `force`."""
        from safetensors.torch import save_file

        folder = Path(folder)
        if folder.is_file():
            raise InputError(f"{folder} is a file; a model needs a folder.")
        if folder.exists() and any(folder.iterdir()) and not force:
            raise InputError(f"{folder} is not empty; choose another folder or use --force.")
        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {
                "user_vectors": self.user_vectors.cpu().contiguous(),
                "item_vectors": self.item_vectors.cpu().contiguous(),
            },
            folder / "model.safetensors",
        )
        _write_arrow(folder / "users.arrow", pa.table({"id": self.known.user_ids}))
        _write_arrow(folder / "items.arrow", pa.table({"id": self.known.item_ids}))
        _write_arrow(
            folder / "known.arrow",
            pa.table({"user": pa.array(self.known.users), "item": pa.array(self.known.items)}),
        )
        config = {
            "format": FORMAT,
            "seeds": list(self.seeds),
            "best": self.best,
            "info": dict(self.info),
            "history": [dict(record) for record in self.history],
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path) -> Model:
    """Read a model folder that `Model.save` wrote."""
    from safetensors.torch import load_file

    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a model folder: it has no config.json.")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        version = config["format"]
        if version != FORMAT:
            raise InputError(
                f"{folder} has format {version}, this version of evenhand reads {FORMAT}; train it anew or "
                "use the version that wrote it."
            )
        tensors = load_file(folder / "model.safetensors")
        users, items, pairs = (_read_arrow(folder / f"{n}.arrow") for n in ("users", "items", "known"))
        known = Interactions.from_pairs(
            pairs["user"].to_numpy(),
            pairs["item"].to_numpy(),
            user_ids=users["id"].combine_chunks(),
            item_ids=items["id"].combine_chunks(),
        )
        model = Model(
            user_vectors=tensors["user_vectors"],
            item_vectors=tensors["item_vectors"],
            known=known,
            seeds=tuple(config["seeds"]),
            best=config["best"],
            info=config["info"],
            history=tuple(config["history"]),
        )
    except InputError:
        raise
    except Exception as problem:
        raise InputError(f"{folder} cannot be read as a model: {problem}") from problem
    shapes = (model.user_vectors.shape[:2], model.item_vectors.shape[:2])
    if shapes != ((len(model.seeds), known.n_users), (len(model.seeds), known.n_items)):
        raise InputError(f"{folder} is damaged: its vectors do not match its ids.")
    return model


def _write_arrow(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_arrow(path: Path) -> pa.Table:
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def on_cpu(vectors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Both matrices in main memory, as a model keeps them."""
    users, items = vectors
    return users.to("cpu", torch.float32), items.to("cpu", torch.float32)
