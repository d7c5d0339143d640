"""Lists in parts: the rows of one file, the same files by any number of processes, and nothing read that is torn."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.write import MANIFEST, write_table
from evenhand.models.factors import FactorModel
from evenhand.utils.world import World
from object_store import ObjectStore
from ranks import on_ranks
from run_cli import evenhand


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 300 users and 90 items, and its log as train, test and new users."""
    folder = tmp_path_factory.mktemp("lists")
    log: Interactions = simulate_log(300, 90, 4000, seed=0)
    split = log.split(test=0.2, validation=0)
    draw = torch.Generator().manual_seed(0)
    vectors = (torch.randn(2, n, 16, generator=draw) for n in (log.n_users, log.n_items))
    FactorModel(*vectors, known=split.train, seeds=(0, 1), best=1, info={}, history=(), metrics={}).save(
        folder / "model"
    )
    for name, part in split.parts().items():
        write_table(part.to_table(), folder / f"{name}.parquet")
    (folder / "new.csv").write_text("user,item\n1001,3\n1001,7\n1002,5\n1003,99999\n")
    return folder


WAYS: dict[str, list[str]] = {
    "all": [],
    "seeds": ["--seed", "all"],
    "new": ["--new-users", "PLACE/new.csv", "--fallback"],
}


def recommend(world: World, place: str) -> list[tuple[int, Any]]:
    """Every way of asking, in four parts; rank 0 alone prints."""
    found = []
    for name, more in WAYS.items():
        options = [one.replace("PLACE", place) for one in more]
        target = f"{place}/{name}-{world.size}"
        done = evenhand("recommend", f"{place}/model", "-k", "5", "--out", target, "--parts", "4", "--json", *options)
        found.append((done.code, json.loads(done.out) if done.out else done.err))
    return found


def test_any_number_of_processes_writes_the_same_parts(place: Path) -> None:
    answers = {1: [recommend(World.alone(), str(place))], 3: on_ranks(3, recommend, str(place))}
    assert all(other == [(0, "")] * len(WAYS) for other in answers[3][1:])
    for number, (name, more) in enumerate(WAYS.items()):
        options = [one.replace("PLACE", str(place)) for one in more]
        whole = evenhand(
            "recommend", str(place / "model"), "-k", "5", "--out", str(place / f"{name}.parquet"), "--json", *options
        )
        assert whole.code == 0, whole.err
        expected = pq.read_table(place / f"{name}.parquet")
        manifests = [json.loads((place / f"{name}-{size}" / MANIFEST).read_text()) for size in answers]
        assert manifests[0] == manifests[1]
        assert manifests[0]["rows"] == len(expected)
        for size, answer in answers.items():
            folder = place / f"{name}-{size}"
            message = answer[0][number]
            assert message == (0, {**whole.document, "out": str(folder), "parts": len(manifests[0]["parts"])})
            for part in manifests[0]["parts"]:
                content = (folder / part["file"]).read_bytes()
                assert (len(content), hashlib.sha256(content).hexdigest()) == (part["bytes"], part["sha256"])
                assert pq.read_metadata(folder / part["file"]).num_rows == part["rows"]
            keys = [(one, "ascending") for one in ("seed", "user", "rank") if one in expected.column_names]
            assert pq.read_table(folder).sort_by(keys).equals(expected.sort_by(keys))
        if name == "all":
            in_order = [pq.read_table(place / "all-3" / part["file"]) for part in manifests[0]["parts"]]
            assert [user for part in in_order for user in part["user"].to_pylist()] == expected["user"].to_pylist()


def test_a_folder_of_parts_is_evaluated_and_audited_as_one_file(place: Path) -> None:
    folder, file = place / "mine", place / "mine.parquet"
    for out in (f"{folder}/", str(file)):
        assert evenhand("recommend", str(place / "model"), "-k", "10", "--out", out).code == 0
    known = ["--train", str(place / "train.parquet"), "--test", str(place / "test.parquet"), "--k", "5,10", "--json"]
    for command in (["evaluate"], ["audit", "--recs"]):
        in_parts, whole = (evenhand(*command, str(source), *known) for source in (folder, file))
        assert in_parts.code == 0
        assert in_parts.out == whole.out
    (part,) = folder.glob("part-*.parquet")
    content = part.read_bytes()
    for damage, said in ((None, "is missing"), (content + b"x", "was changed")):
        part.unlink() if damage is None else part.write_bytes(damage)
        ended = evenhand("evaluate", str(folder), *known)
        assert (ended.code, said in ended.err) == (2, True)
    part.write_bytes(content)
    (folder / "part-00009.parquet").write_bytes(content)
    assert (
        "holds part-00009.parquet, which its _manifest.json does not name"
        in evenhand("evaluate", str(folder), *known).err
    )


def test_a_folder_is_written_over_only_when_asked(place: Path, tmp_path: Path) -> None:
    model, out = str(place / "model"), f"{tmp_path}/lists"
    first = evenhand("recommend", model, "--out", out, "--parts", "3", "--json")
    assert first.document["parts"] == 3
    again = evenhand("recommend", model, "--out", out, "--parts", "1")
    assert (again.code, "is not empty" in again.err) == (2, True)
    assert evenhand("recommend", model, "--out", out, "--parts", "1", "--force").code == 0
    assert sorted(path.name for path in Path(out).iterdir()) == [MANIFEST, "part-00000.parquet"]
    for options, said in (
        (["--parts", "2"], "name the folder with --out"),
        (["--parts", "2", "--out", f"{tmp_path}/lists.csv"], "name the folder with --out"),
        (["--parts", "0", "--out", f"{tmp_path}/new"], "one part or more"),
        (["--parts", "2", "--out", f"{place}/model/config.json/"], "is a file"),
    ):
        ended = evenhand("recommend", model, *options)
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_lists_and_logs_in_an_object_store(place: Path, object_store: ObjectStore) -> None:
    """Written and read through a server that speaks S3."""
    out = object_store.uri("lists")
    command = ["recommend", str(place / "model"), "-k", "5", "--out", out, "--parts", "3", "--json"]
    assert evenhand(*command).document["parts"] == 3
    assert "is not empty" in evenhand(*command).err
    assert evenhand(*command, "--force").code == 0
    assert evenhand("recommend", str(place / "model"), "-k", "5", "--out", f"{place}/here/").code == 0
    for name in ("train", "test"):
        object_store.put(place / f"{name}.parquet", f"{name}/part-0.parquet")
    known = ["--train", object_store.uri("train"), "--test", object_store.uri("test"), "--k", "5", "--json"]
    there, here = (evenhand("audit", "--recs", f"mine={source}", *known) for source in (out, place / "here"))
    assert there.code == 0, there.err
    assert there.document == here.document
    object_store.remove("lists/part-00001.parquet")
    assert "part-00001.parquet of 's3://" in evenhand("audit", "--recs", f"mine={out}", *known).err
    assert "cannot write" in evenhand(*command[:5], object_store.uri("lists", bucket="nowhere")).err
