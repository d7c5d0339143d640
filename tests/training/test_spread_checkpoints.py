"""Checkpoints in parts: any number of ranks reads what any other wrote; what is damaged is never taken for numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evenhand.training.checkpoints import SpreadCheckpoints
from evenhand.utils.errors import InputError
from evenhand.utils.world import Blocks, World
from ranks import on_ranks

USERS, ITEMS, DIM = 700, 150, 3


def whole(side: str, number: int) -> torch.Tensor:
    n = USERS if side == "users" else ITEMS
    return (torch.arange(2 * n * DIM).reshape(2, n, DIM) + 10_000 * number).float()


def held(world: World, number: int) -> dict[str, torch.Tensor]:
    """What a rank has of checkpoint `number`; the rows tell where they belong."""
    users = torch.from_numpy(Blocks.of_users(USERS, world.size).mine(world.rank))
    items = torch.from_numpy(Blocks.of_items(ITEMS, world.size).mine(world.rank))
    return {
        "model.users": whole("users", number)[:, users],
        "model.items": whole("items", number)[:, items],
        "adam.0.clock.0": whole("users", number)[:, users, 0].int(),
        "adam.0.mean.1": whole("items", number)[:, items] / 3,
        "selection.kept.2": whole("users", number)[:, users] / 7,
        "tally": torch.tensor([1.0, number]),
    }


def write(world: World, folder: Path, number: int) -> None:
    for n in range(1, number + 1):
        SpreadCheckpoints(folder, {"seeds": [0]}, world=world).save(held(world, n), {"step": n})


def read(world: World, folder: Path) -> tuple[int, list[str], bool]:
    """Which checkpoint it is, what was noted, and whether every row is right."""
    saved = SpreadCheckpoints(folder, {"seeds": [0]}, world=world)
    found = saved.load()
    if found is None:
        return 0, saved.notes, True
    tensors, facts = found
    expected = held(world, facts["step"])
    right = tensors.keys() == expected.keys() and all(torch.equal(tensors[name], expected[name]) for name in expected)
    return facts["step"], saved.notes, right


def test_any_number_of_ranks_reads_what_any_other_wrote(tmp_path: Path) -> None:
    on_ranks(3, write, tmp_path, 3)
    assert on_ranks(2, read, tmp_path) == [(3, [], True)] * 2
    assert read(World.alone(), tmp_path) == (3, [], True)
    assert len(list(tmp_path.glob("*.json"))) == 2, "two are kept"
    assert len(list(tmp_path.glob("*.safetensors"))) == 6
    write(World.alone(), tmp_path / "one", 1)
    assert on_ranks(3, read, tmp_path / "one") == [(1, [], True)] * 3


def parts(folder: Path, number: int) -> list[Path]:
    return sorted(folder.glob(f"{number:08d}-part-*"))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    on_ranks(2, write, folder, 2)
    return folder


@pytest.mark.parametrize("damage", ["missing", "torn", "altered", "swapped", "manifest"])
def test_damage_is_noted_and_the_one_before_is_used(two: Path, tmp_path: Path, damage: str) -> None:
    for file in two.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    first, second = parts(tmp_path, 2)
    if damage == "missing":
        second.unlink()
    elif damage == "torn":
        second.write_bytes(second.read_bytes()[:-100])
    elif damage == "altered":
        content = bytearray(second.read_bytes())
        content[-5] ^= 1
        second.write_bytes(bytes(content))
    elif damage == "swapped":
        one, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(one)
    else:
        (manifest,) = tmp_path.glob("00000002-*.json")
        manifest.write_bytes(manifest.read_bytes().replace(b'"step": 2', b'"step": 3'))
    note = "Checkpoint 2 is damaged; the one before it is used."
    assert read(World.alone(), tmp_path) == (1, [note], True)
    parts(tmp_path, 1)[0].unlink()
    step, notes, _ = read(World.alone(), tmp_path)
    assert (step, notes) == (0, ["No checkpoint could be read; starting over."])


def test_another_run_is_refused(two: Path) -> None:
    with pytest.raises(InputError, match="belongs to a run that differs in seeds"):
        SpreadCheckpoints(two, {"seeds": [1]}, world=World.alone()).load()


def test_of_other_work_it_is_passed_over_and_then_removed(two: Path, tmp_path: Path) -> None:
    for file in two.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    own = SpreadCheckpoints(tmp_path, {"seeds": [1]}, strict=False, world=World.alone())
    assert own.load() is None
    assert own.notes == []
    own.save(held(World.alone(), 3), {"step": 3})
    assert [path.name[:8] for path in tmp_path.iterdir()] == ["00000003"] * 2
    found = own.load()
    assert found is not None
    assert found[1] == {"step": 3}


def test_without_a_manifest_there_is_no_checkpoint(tmp_path: Path) -> None:
    write(World.alone(), tmp_path, 1)
    for manifest in tmp_path.glob("*.json"):
        manifest.unlink()
    assert read(World.alone(), tmp_path) == (0, [], True)
