"""Model folders and checkpoints in which one file is not what it says; its checksum is made to fit."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from checks.fuzz.arrays import odd_table
from checks.fuzz.inputs import document, mutated
from checks.fuzz.targets.target import SEEDS, Target
from evenhand.models.folder import CONTENT, load
from evenhand.models.vector_files import vectors_from
from evenhand.training.checkpoints import Checkpoints

IDENTITY = {"seeds": [0], "settings": {"lr": 0.1}}
_TYPES = ("F32", "F64", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "X")
_SIZES = (0, 1, 2, 3, 9, 12, 4, 2**31, 2**62, 2**64 - 1, -1, 1.5, "x", None)


def _folder(kind: str, file: str) -> Callable[[bytes, Path], object]:
    """Load the model of this kind with one file exchanged, and use it."""

    def read(data: bytes, folder: Path) -> None:
        for name in (*CONTENT, "config.json"):
            (folder / name).write_bytes((SEEDS / "model" / kind / name).read_bytes())
        (folder / file).write_bytes(data)
        if file in CONTENT:
            config = json.loads((folder / "config.json").read_text())
            config["checksums"][file] = hashlib.sha256(data).hexdigest()
            (folder / "config.json").write_text(json.dumps(config))
        model = load(folder)
        model.recommend(k=1).to_pylist()
        model.recommend(k=1, seed="all", known=True)
        if kind != "counts":  # which knows nothing of two items together
            model.similar(model.known.item_ids[0].as_py(), 1)
        model.fold_in(pa.table({"user": ["new"], "item": model.known.item_ids[:1]}))
        model.save(folder / "again")

    return read


def tensors(random: Random, seeds: list[bytes]) -> bytes:
    """A header that lies: other types, shapes and places of the same bytes."""
    if random.random() < 0.4:
        return mutated(random, seeds)
    whole = random.choice(seeds)
    size = int.from_bytes(whole[:8], "little")
    try:
        header: dict[str, Any] = json.loads(whole[8 : 8 + size])
    except ValueError:
        return mutated(random, seeds)
    body = whole[8 + size :]
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(header))
        if not isinstance(header[name], dict) or "shape" not in header[name]:
            continue
        entry = dict(header[name])
        what = random.randrange(5)
        if what == 0:
            entry["dtype"] = random.choice(_TYPES)
        elif what == 1:
            entry["shape"] = [random.choice(_SIZES) for _ in range(random.randrange(5))]
        elif what == 2:
            entry["data_offsets"] = [random.choice((0, 8, len(body), 2**62, -8)) for _ in range(2)]
        elif what == 3:
            entry["dtype"], entry["shape"] = "U8", [entry["data_offsets"][1] - entry["data_offsets"][0]]
        else:
            dtype, bytes_each = random.choice((("F32", 4), ("I32", 4), ("F64", 8), ("I64", 8), ("F16", 2), ("BOOL", 1)))
            shape = [random.choice((1, 2, 3, 4, 9, 12)) for _ in range(random.randrange(4))]
            body = np.random.default_rng(random.randrange(99)).bytes(int(np.prod(shape)) * bytes_each)
            entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(body)]}
            header = {name: entry}
            continue
        header[name] = entry
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def arrow(*names: str) -> Callable[[Random, list[bytes]], bytes]:
    def make(random: Random, seeds: list[bytes]) -> bytes:
        if random.random() < 0.6:
            return mutated(random, seeds)
        made, sink = odd_table(random, names), io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=random.choice((None, "lz4", "zstd")))
        with pa.ipc.new_file(sink, made.schema, options=options) as writer:
            writer.write_table(made)
        return mutated(random, [sink.getvalue()]) if random.random() < 0.3 else sink.getvalue()

    return make


def _json(random: Random, seeds: list[bytes]) -> bytes:
    return mutated(random, seeds) if random.random() < 0.3 else document(random, seeds[0])


def _vectors(ending: str) -> Callable[[bytes, Path], object]:
    """Vectors that another system wrote, for the users and items of a log."""

    def read(data: bytes, folder: Path) -> None:
        known = load(SEEDS / "model" / "vectors").known
        if ending == "npz":
            path = folder / "vectors.npz"
            path.write_bytes(data)
        else:
            path = folder
            (folder / "users.parquet").write_bytes(data)
            (folder / "items.parquet").write_bytes((SEEDS / "vectors-parquet" / "users.parquet").read_bytes())
        vectors_from(path, known).recommend(k=1)

    return read


def _checkpoint(data: bytes, folder: Path) -> None:
    name = f"00000001-{hashlib.sha256(data).hexdigest()}.safetensors"
    (folder / name).write_bytes(data)
    Checkpoints(folder, IDENTITY).load()


def _checkpoints(random: Random, seeds: list[bytes]) -> bytes:
    if random.random() < 0.5:
        return tensors(random, seeds)
    whole = random.choice(seeds)
    size = int.from_bytes(whole[:8], "little")
    try:
        header = json.loads(whole[8 : 8 + size])
        inner = document(random, header["__metadata__"]["evenhand"].encode()).decode("utf-8", "replace")
    except (ValueError, KeyError, TypeError):
        return mutated(random, seeds)
    header["__metadata__"]["evenhand"] = inner
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + size :]


TARGETS = (
    Target("model-config", _folder("vectors", "config.json"), _json, weight=0.3),
    Target("model-history", _folder("vectors", "history.json"), _json, weight=0.1),
    Target("model-vectors", _folder("vectors", "model.safetensors"), tensors, weight=0.3),
    Target("model-dense", _folder("dense", "model.safetensors"), tensors, weight=0.1),
    Target("model-sparse", _folder("sparse", "model.safetensors"), tensors, weight=0.3),
    Target("model-counts", _folder("counts", "model.safetensors"), tensors, weight=0.1),
    Target("model-users", _folder("vectors", "users.arrow"), arrow("id"), weight=0.3),
    Target("model-known", _folder("sparse", "known.arrow"), arrow("user", "item", "touched"), weight=0.3),
    Target("model-blend", _folder("blend", "model.safetensors"), tensors, weight=0.3),
    Target("vectors-npz", _vectors("npz"), weight=0.5),
    Target("vectors-parquet", _vectors("parquet"), weight=0.5),
    Target("checkpoint", _checkpoint, _checkpoints, weight=0.5),
)
