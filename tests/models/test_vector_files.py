"""Exported vectors are the model's, readable without evenhand and without unpickling anything."""

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.models.blend_model import BlendModel
from evenhand.models.vector_files import export
from evenhand.utils.errors import InputError
from run_cli import evenhand
from small_model import model

module = sys.modules["evenhand.models.vector_files"]
KINDS = ["string", "integer"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("seed", "replica"), [(None, 1), (11, 2)])
def test_parquet_holds_ids_and_vectors(tmp_path: Path, kind: str, seed: int | None, replica: int) -> None:
    made = model(kind)
    export(made, "parquet", tmp_path / "out", seed=seed)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["items.parquet", "users.parquet"]
    for name, ids, vectors in (
        ("users", made.known.user_ids, made.user_vectors),
        ("items", made.known.item_ids, made.item_vectors),
    ):
        table = pq.read_table(tmp_path / "out" / f"{name}.parquet")
        assert table.schema.field("vector").type == pa.list_(pa.float32(), 4)
        assert table["id"].combine_chunks().equals(ids)
        assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), vectors[replica].numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_npz_loads_without_pickle(tmp_path: Path, kind: str) -> None:
    made = model(kind)
    export(made, "npz", tmp_path / "new" / "vectors.npz", seed=7)
    with np.load(tmp_path / "new" / "vectors.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"user_ids", "item_ids", "user_vectors", "item_vectors"}
        assert arrays["user_ids"].tolist() == made.known.user_ids.to_pylist()
        assert arrays["item_ids"].tolist() == made.known.item_ids.to_pylist()
        assert np.array_equal(arrays["user_vectors"], made.user_vectors[0].numpy())
        assert np.array_equal(arrays["item_vectors"], made.item_vectors[0].numpy())


class FlatIndex:
    """Stands in for faiss.IndexFlatIP: keeps what is added."""

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def add(self, vectors: np.ndarray) -> None:
        assert vectors.dtype == np.float32
        assert vectors.shape[1] == self.dim
        self.vectors = vectors


def test_faiss_gets_the_item_vectors_in_the_order_of_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = SimpleNamespace(
        IndexFlatIP=FlatIndex, serialize_index=lambda index: index.vectors.view(np.uint8).ravel()
    )
    monkeypatch.setitem(sys.modules, "faiss", fake)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    made = model("string")
    export(made, "faiss", tmp_path / "out")
    written = np.frombuffer((tmp_path / "out" / "items.faiss").read_bytes(), np.float32).reshape(12, 4)
    assert np.array_equal(written, made.item_vectors[1].numpy())
    assert pq.read_table(tmp_path / "out" / "ids.parquet")["id"].to_pylist() == made.known.item_ids.to_pylist()


def test_a_real_faiss_index_recommends_as_the_model_does(tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    made = model("string")
    export(made, "faiss", tmp_path / "out")
    index = faiss.read_index(str(tmp_path / "out" / "items.faiss"))
    users = pq.read_table(tmp_path / "out" / "users.parquet")
    _, found = index.search(np.array(users["vector"].to_pylist(), np.float32), 5)
    ids = pq.read_table(tmp_path / "out" / "ids.parquet")["id"]
    assert ids.take(pa.array(found.ravel())).to_pylist() == made.recommend(k=5, known=True)["item"].to_pylist()


def test_faiss_that_is_not_there_is_reported_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        export(model("string"), "faiss", tmp_path / "out")
    assert str(caught.value) == "faiss is not installed; install it with: pip install 'evenhand[faiss]'."
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("to", "out"), [("npz", "v.npz"), ("parquet", "v")])
def test_nothing_is_written_over_without_force(tmp_path: Path, to: str, out: str) -> None:
    export(model("string"), to, tmp_path / out)
    with pytest.raises(InputError, match="use --force"):
        export(model("integer"), to, tmp_path / out)
    export(model("integer"), to, tmp_path / out, force=True)
    if to == "npz":
        first = np.load(tmp_path / out)["user_ids"].tolist()
    else:
        first = pq.read_table(tmp_path / out / "users.parquet")["id"].to_pylist()
    assert first == list(range(100, 109))
    assert [p.name for p in tmp_path.iterdir()] == [out]


@pytest.mark.parametrize(("to", "out", "fails"), [("npz", "v.npz", "savez"), ("parquet", "v", "write_table")])
@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, out: str, fails: str, exists: bool
) -> None:
    if exists:
        export(model("string"), to, tmp_path / out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np if to == "npz" else pq, fails, full)
    with pytest.raises(InputError, match="No space left on device"):
        export(model("integer"), to, tmp_path / out, force=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert len(list(tmp_path.iterdir())) == exists


@pytest.mark.parametrize(
    ("to", "out", "seed", "match"),
    [
        ("onnx", "v", None, "unknown form of export 'onnx'"),
        ("npz", "vectors", None, r"must end in \.npz"),
        ("parquet", "v", 5, "no seed 5; it has 7, 3, 11"),
    ],
)
def test_impossible_exports_are_refused(tmp_path: Path, to: str, out: str, seed: int | None, match: str) -> None:
    with pytest.raises(InputError, match=match):
        export(model("string"), to, tmp_path / out, seed=seed)
    assert not list(tmp_path.iterdir())


def test_the_command_exports(tmp_path: Path) -> None:
    model("integer").save(tmp_path / "model")
    arguments = ("export", tmp_path / "model", "--to", "npz", "--out", tmp_path / "v.npz")
    document = evenhand(*arguments, "--json").document
    assert document == {"out": str(tmp_path / "v.npz"), "to": "npz", "seed": 3, "users": 9, "items": 12}
    assert np.load(tmp_path / "v.npz")["item_ids"].tolist() == list(range(0, 120, 10))
    again = evenhand(*arguments)
    assert again.code == 2
    assert again.err.endswith("v.npz exists already; choose another name or use --force.\n")
    assert evenhand(*arguments, "--force").out.startswith("Vectors of 9 users and 12 items written to ")


def test_a_blend_that_ends_with_one_part_of_vectors_is_exported_as_that_part(tmp_path: Path) -> None:
    made = model("string")
    part = made.having(user_vectors=made.user_vectors[:1], item_vectors=made.item_vectors[:1], seeds=(7,), best=0)
    blend = BlendModel((part,), (0.7,), known=part.known, seeds=(7,), info={"method": "blend"})
    assert blend.recommend(k=5)["item"].equals(part.recommend(k=5)["item"])
    blend.save(tmp_path / "blend")
    assert evenhand("export", tmp_path / "blend", "--to", "npz", "--out", tmp_path / "vectors.npz").code == 0
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["item_vectors"], part.item_vectors[0].numpy())
    card = (tmp_path / "blend" / "README.md").read_text(encoding="utf-8")
    assert "inner product of their two vectors" in card
    assert "1 models" not in card
    two = BlendModel((part, part), (0.5, 0.5), known=part.known, seeds=part.seeds, info={"method": "blend"})
    with pytest.raises(InputError, match="a model of blend has no vectors to export"):
        export(two, "npz", tmp_path / "two.npz")
