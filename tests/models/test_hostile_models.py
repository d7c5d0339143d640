"""Model folders whose files lie, with checksums that agree: refused in one sentence, and never followed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from checks.fuzz.targets.target import SEEDS
from safetensors.torch import save

from evenhand.models.card import model_card
from evenhand.models.folder import load
from evenhand.utils.errors import InputError
from run_cli import Ended, evenhand
from small_model import model


def exchanged(folder: Path, kind: str, file: str, content: bytes) -> Path:
    """A model of this kind with one file exchanged, and a checksum that fits."""
    shutil.copytree(SEEDS / "model" / kind, folder, dirs_exist_ok=True)
    (folder / file).write_bytes(content)
    if file != "config.json":
        config = json.loads((folder / "config.json").read_text())
        config["checksums"][file] = hashlib.sha256(content).hexdigest()
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def arrow(path: Path, **columns: Any) -> bytes:
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize("kind", ["vectors", "dense", "sparse", "counts", "blend"])
def test_as_they_are_they_can_be_used(kind: str, tmp_path: Path) -> None:
    assert len(load(SEEDS / "model" / kind).recommend(k=1)) > 0


def test_offsets_that_lie_are_not_followed(tmp_path: Path) -> None:
    """Without validation, Arrow reads the text at an address of the file's choosing."""
    whole = bytearray((SEEDS / "model/vectors/users.arrow").read_bytes())
    offsets = b"".join(n.to_bytes(4, "little") for n in range(0, 9, 3))
    place = whole.index(offsets)
    whole[place + 4 : place + 8] = (2**31 - 100).to_bytes(4, "little")
    assert "cannot be read as a model" in refusal(exchanged(tmp_path, "vectors", "users.arrow", bytes(whole)))


IDS: dict[str, Any] = {
    "numbers with a point": pa.array(np.arange(9.0)),
    "lists": pa.array([[n] for n in range(9)]),
    "a gap": pa.array([None, *"abcdefgh"]),
    "one twice": pa.array(list("aabcdefgh")),
    "no text": pa.array([b"\xff%d" % n for n in range(9)]).view(pa.string()),
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_that_are_none_are_refused(kind: str, tmp_path: Path) -> None:
    refusal(exchanged(tmp_path, "vectors", "users.arrow", arrow(tmp_path / "x", id=IDS[kind])))


TENSORS: dict[str, tuple[str, dict[str, torch.Tensor]]] = {
    "no vectors": ("vectors", {"x": torch.zeros(1)}),
    "one number": ("vectors", {"user_vectors": torch.tensor(1.0), "item_vectors": torch.tensor(1.0)}),
    "whole numbers": (
        "vectors",
        {"user_vectors": torch.zeros(1, 9, 4).long(), "item_vectors": torch.zeros(1, 12, 4).long()},
    ),
    "half precision": (
        "vectors",
        {"user_vectors": torch.zeros(1, 9, 4).half(), "item_vectors": torch.zeros(1, 12, 4).half()},
    ),
    "flat tables": (
        "vectors",
        {
            "user_vectors": torch.zeros(1, 9, 4),
            "item_vectors": torch.zeros(1, 12, 4),
            "user_tables": torch.zeros(1, 9),
            "item_tables": torch.zeros(1, 12),
        },
    ),
    "a dense table of truth values": ("dense", {"weights": torch.zeros(12, 12).bool()}),
    "places that are no places": (
        "sparse",
        {"indptr": torch.zeros(13), "items": torch.zeros(0).int(), "weights": torch.zeros(0)},
    ),
    "weights of double width": (
        "sparse",
        {"indptr": torch.zeros(13).long(), "items": torch.zeros(0).int(), "weights": torch.zeros(0).double()},
    ),
    "a blend with weights that are truth values": (
        "blend",
        {"weights": torch.zeros(1).bool(), "0.counts.counts": torch.zeros(12).double()},
    ),
    "counts beyond all bounds": ("counts", {"counts": torch.full((12,), 1e300, dtype=torch.float64)}),
    "counts below nothing": ("counts", {"counts": torch.full((12,), -1.0, dtype=torch.float64)}),
    "counts of another kind": ("counts", {"counts": torch.zeros(12).long()}),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_of_another_shape_or_type_are_refused(kind: str, tmp_path: Path) -> None:
    of, tensors = TENSORS[kind]
    refusal(exchanged(tmp_path, of, "model.safetensors", save(tensors)))


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    whole = (SEEDS / "model/vectors/model.safetensors").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for header in (2**63, size + 1, 0):
        refusal(exchanged(tmp_path, "vectors", "model.safetensors", header.to_bytes(8, "little") + whole[8:]))
    longer = whole[8 : 8 + size].replace(b"[1,9,4]", b"[1,9,5]")
    assert longer != whole[8 : 8 + size]
    refusal(exchanged(tmp_path, "vectors", "model.safetensors", whole[:8] + longer + whole[8 + size :]))


CONFIGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "deep": lambda config: None,
    "metrics that are numbers": lambda config: config | {"metrics": {"5": 1}},
    "a mean that is text": lambda config: config | {"metrics": {"5": {"ohr": {"mean": "x"}}}},
    "a spread that is a list": lambda config: config | {"metrics": {"5": {"ohr": {"mean": 1, "std": []}}}},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_that_is_none_is_refused(kind: str, tmp_path: Path) -> None:
    config = json.loads((SEEDS / "model/vectors/config.json").read_text())
    text = "[" * 100_000 if kind == "deep" else json.dumps(CONFIGS[kind](config))
    refusal(exchanged(tmp_path, "vectors", "config.json", text.encode()))


@pytest.mark.parametrize("text", ["{}", "[1]", '"x"', "[" * 100_000])
def test_a_history_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    refusal(exchanged(tmp_path, "vectors", "history.json", text.encode()))


def test_the_card_of_an_odd_name_stays_a_card() -> None:
    name = 'a"; rm -rf ~ #\n## Free\n<script>\x1b[31m'
    made = model_card(model("string"), name)
    assert made.splitlines()[0].startswith('# a"; rm -rf ~ #\\n## Free\\n&lt;script&gt;\\x1b[31m')
    assert "\n## Free" not in made
    assert "\nevenhand recommend 'a\"; rm -rf ~ #\\n## Free\\n<script>\\x1b[31m' -k 20" in made
    assert "\x1b" not in made


@pytest.mark.parametrize("make", [None, Path.touch, Path.mkdir], ids=["nothing", "a file", "empty"])
def test_a_place_that_holds_no_model_is_reported_as_it_is(make: Callable[[Path], None] | None, tmp_path: Path) -> None:
    place = tmp_path / "model"
    if make is not None:
        make(place)
    message = {None: "does not exist", Path.touch: "is a file", Path.mkdir: "has no config.json"}[make]
    assert message in refusal(place)


HOW = {
    "encoder": {"name": "mf", "dim": 4},
    "sampler": {"kind": "UniformSampler"},
    "objective": {"kind": "BPR"},
    "settings": {"lr": 0.01, "batch": 64},
}
"""What a model says of its training."""


def update(folder: Path, kind: str, info: Any) -> Ended:
    """`evenhand update` of a model that says this of how it was made."""
    config = json.loads((SEEDS / "model" / kind / "config.json").read_text()) | {"info": info}
    exchanged(folder / "model", kind, "config.json", json.dumps(config).encode())
    (folder / "newer.csv").write_text("user,item\nu00,i00\nu00,i01\nu00,i02\nu01,i03\nnew,i01\n")
    return evenhand("update", folder / "model", folder / "newer.csv", "--out", folder / "out", "--device", "cpu")


def test_a_model_of_few_items_is_updated(tmp_path: Path) -> None:
    assert update(tmp_path, "vectors", HOW | {"settings": {"epochs": 1}}).code == 0
    assert len(load(tmp_path / "out").known.user_ids) == 10


@pytest.mark.parametrize(
    ("kind", "info"),
    [
        ("vectors", {}),
        ("vectors", HOW | {"encoder": "mf"}),
        ("vectors", HOW | {"encoder": ["mf"]}),
        ("vectors", HOW | {"encoder": {"name": "mf", "dim": 1e300}}),
        ("vectors", HOW | {"encoder": {"name": ["mf"]}}),
        ("vectors", HOW | {"sampler": []}),
        ("vectors", HOW | {"sampler": {"kind": {}}}),
        ("vectors", HOW | {"objective": {"kind": "BPR", "more": 1}}),
        ("vectors", HOW | {"settings": [1]}),
        ("vectors", HOW | {"settings": {"lr": "x"}}),
        ("vectors", HOW | {"settings": {"engine": 3}}),
        ("dense", {"rival": 1}),
        ("dense", {"rival": {"name": ["ease"]}}),
        ("dense", {"rival": {"name": "ease", "l2": "x"}}),
        ("dense", {"rival": {"name": "ease", "l2": 1e-300}}),
        ("dense", {"rival": {"name": "blend", "encoder": 2}}),
        ("dense", {"rival": {"name": "als", "alpha": 1e300}}),
        ("dense", {"rival": {"name": "als", "iterations": 10**30}}),
        ("dense", {"rival": {"name": "als", "factors": 10**9}}),
        ("dense", {"rival": {"name": "als", "l2": 1e-300, "steps": 0}}),
    ],
)
def test_a_model_that_lies_about_its_making_is_not_updated(kind: str, info: Any, tmp_path: Path) -> None:
    ended = update(tmp_path, kind, info)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert not (tmp_path / "out").exists()
