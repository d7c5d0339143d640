"""Commands that go on from a model or from vectors that somebody else made."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from checks.fuzz.inputs import document, mutated
from checks.fuzz.targets.commands import run
from checks.fuzz.targets.models import arrow, tensors
from checks.fuzz.targets.target import SEEDS, Target
from evenhand.baselines import blend
from evenhand.data.write import write_table
from evenhand.models.folder import CONTENT, load
from evenhand.training.engines.base import TorchEngine
from evenhand.training.method import Method
from evenhand.utils.errors import InputError

NEWER = "user,item\nu00,i00\nu00,i01\nu00,i02\nu00,i03\nu01,i11\nu02,i10\nnew,i01\nnew,i02\n"


@contextlib.contextmanager
def _short_training() -> Iterator[None]:
    """One epoch of what a blend trains, and the plain engine: to compile takes longer than an input may."""
    fit_part = blend.fit_part

    def short(part: Method, *rest: Any) -> Any:
        return fit_part(part.having({"epochs": 1}) if part.side_by_side else part, *rest)

    with patch.object(blend, "fit_part", short), patch("evenhand.training.trainer.engine_for", TorchEngine):
        yield


def _update(data: bytes, folder: Path) -> None:
    """`update` of a model whose config.json says odd things of how it was trained."""
    place, out = folder / "model", folder / "out"
    kind = next((name for name in ("dense", "sparse", "counts", "blend") if f'"{name}"'.encode() in data), "")
    _copy(kind or "vectors", place)
    (place / "config.json").write_bytes(data)
    (folder / "newer.csv").write_text(NEWER)
    # Without --epochs, which a baseline has none of, a config that asks for a billion would be obeyed.
    epochs = () if kind else ("--epochs", 1)
    try:
        with _short_training():
            # Exit code 1: what the model asks for fits, but its training ran out of memory or numbers.
            asked = ("update", place, folder / "newer.csv", "--out", out, "--device", "cpu", *epochs)
            run(*asked, fails=(1, 2))
    except InputError:
        assert not out.exists(), "a refused update left something behind"
        raise
    load(out).recommend(k=1)


def _copy(kind: str, place: Path) -> None:
    place.mkdir()
    for name in (*CONTENT, "config.json"):
        (place / name).write_bytes((SEEDS / "model" / kind / name).read_bytes())


def _configs(random: Random, seeds: list[bytes]) -> bytes:
    """Most of the faults where `update` looks: in what the model says of itself."""
    whole = random.choice(seeds)
    if random.random() < 0.2:
        return mutated(random, [whole])
    if random.random() < 0.8:
        config = json.loads(whole)
        info = json.dumps(config.pop("info")).encode()
        return json.dumps(config)[:-1].encode() + b', "info": ' + document(random, info) + b"}"
    return document(random, whole)


def _blend(data: bytes, folder: Path) -> None:
    """`recommend`, `similar` and `export` of a blend with one file exchanged; its beginning tells which."""
    place = folder / "model"
    _copy("blend", place)
    file = "config.json" if data[:1] == b"{" else "model.safetensors"
    if data[:6] == b"ARROW1":
        file = "known.arrow" if b"touched" in data else "items.arrow"
    (place / file).write_bytes(data)
    if file in CONTENT:
        config = json.loads((place / "config.json").read_text())
        config["checksums"][file] = hashlib.sha256(data).hexdigest()
        (place / "config.json").write_text(json.dumps(config))
    (folder / "new.csv").write_text(NEWER)
    with contextlib.suppress(InputError):  # a blend has no vectors, whatever else is wrong with it
        run("export", place, "--to", "npz", "--out", folder / "x.npz")
        raise AssertionError("vectors of a model that has none")
    run("recommend", place, "--k", 1, "--out", folder / "lists.csv")
    run("recommend", place, "--k", 2, "--json", "--seed", "all", "--known")
    # Not as csv: to what is no terminal that goes byte for byte.
    run("recommend", place, "--k", 1, "--new-users", folder / "new.csv", "--json")
    run("similar", place, "i00", "--k", 1)


def _blends(random: Random, seeds: list[bytes]) -> bytes:
    whole = random.choice(seeds)
    if whole[:1] == b"{":
        return mutated(random, [whole]) if random.random() < 0.3 else document(random, whole)
    if whole[:6] == b"ARROW1":
        names = ("user", "item", "touched") if b"touched" in whole else ("id",)
        return arrow(*names)(random, [whole])
    return tensors(random, [whole])


def _base(data: bytes, folder: Path) -> None:
    """`train --base` on vectors from elsewhere: an .npz file, a folder of parquet files, a model folder."""
    write_table(load(SEEDS / "model" / "vectors").known.to_table(), folder / "log.csv")
    base = folder / "base"
    if data[:2] == b"PK":
        base = folder / "base.npz"
        base.write_bytes(data)
    elif data[:4] == b"PAR1":
        base.mkdir()
        sound = (SEEDS / "vectors-parquet" / "users.parquet").read_bytes()
        for name, content in (("users", sound), ("items", data))[:: 1 if len(data) % 2 else -1]:
            (base / f"{name}.parquet").write_bytes(content)
    else:
        _copy("vectors", base)
        (base / "config.json").write_bytes(data)
    out = folder / "out"
    arguments = ("--method", "rns", "--encoder", "mf", "--seeds", 1, "--k", "1,3", "--device", "cpu")
    with _short_training():
        try:
            run("train", folder / "log.csv", "--base", base, *arguments, "--out", out)
        except InputError:
            assert not (out / "config.json").exists(), "a refused training left a model"
            raise
    load(out).recommend(k=1)


def _bases(random: Random, seeds: list[bytes]) -> bytes:
    whole = random.choice(seeds)
    return document(random, whole) if whole[:1] == b"{" and random.random() < 0.7 else mutated(random, [whole])


TARGETS = (
    Target("update-command", _update, _configs, weight=0.3),
    Target("blend-command", _blend, _blends, weight=0.2),
    Target("base-command", _base, _bases, weight=0.2),
)
