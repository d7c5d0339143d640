"""Checkpoint files: whole or not there, the last two kept, and nothing loaded that does not belong."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as tensors_to_bytes

from evenhand.experiments.output import CHECKPOINTS, check_folder, run_folder
from evenhand.training import checkpoints as checkpoint
from evenhand.training.checkpoints import Checkpoints
from evenhand.utils.atomic import one_process, write_atomically
from evenhand.utils.errors import InputError, RunError

IDENTITY = {"data": {"train": "aa"}, "seeds": [0, 1], "settings": {"lr": 0.1, "milestones": (3, 5)}}
EXACT = {
    "float": torch.tensor([0.1, -0.0, float("inf"), float("nan"), 1e-45]),
    "double": torch.tensor([[1 / 3]], dtype=torch.float64),
    "whole": torch.tensor([-(2**62), 7]),
    "yes": torch.tensor([True, False]),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 4),
}


def checkpoints(folder: Path, **changes: Any) -> Checkpoints:
    return Checkpoints(folder, IDENTITY | changes, share=0)


def written(folder: Path, times: int = 2) -> list[Path]:
    """As many checkpoints, each with its number inside; the files that stayed, oldest first."""
    for n in range(1, times + 1):
        checkpoints(folder).save({"n": torch.tensor(n)}, {"n": n})
    return sorted(folder.iterdir())


def loaded(folder: Path) -> tuple[int | None, list[str]]:
    """The number inside what was loaded, and the notes."""
    mine = checkpoints(folder)
    found = mine.load()
    if found is None:
        return None, mine.notes
    assert int(found[0]["n"]) == found[1]["n"]
    return found[1]["n"], mine.notes


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def named(content: bytes, number: int = 3) -> str:
    return f"{number:08d}-{hashlib.sha256(content).hexdigest()}.safetensors"


def test_what_is_saved_comes_back_to_the_bit(tmp_path: Path) -> None:
    facts = {"step": 3, "history": [{"loss": [0.1, float("nan")], "seconds": 1e-17}], "name": "ä"}
    checkpoints(tmp_path / "new" / "folder").save(EXACT, facts)
    found = checkpoints(tmp_path / "new" / "folder").load()
    assert found is not None
    tensors, read = found
    assert repr(read) == repr(facts)
    assert tensors.keys() == EXACT.keys()
    for name, tensor in EXACT.items():
        assert (tensors[name].dtype, tensors[name].shape) == (tensor.dtype, tensor.shape)
        assert tensors[name].numpy().tobytes() == tensor.numpy().tobytes()
        tensors[name].add_(1) if tensor.is_floating_point() else None  # what training does: write into them


def test_tensors_that_share_memory_are_each_saved(tmp_path: Path) -> None:
    whole = torch.arange(6.0).view(2, 3)
    checkpoints(tmp_path).save({"a": whole, "same": whole, "row": whole[1], "turned": whole.T}, {})
    found = checkpoints(tmp_path).load()
    assert found is not None
    assert found[0]["row"].tolist() == [3, 4, 5]
    assert torch.equal(found[0]["a"], found[0]["same"])
    assert torch.equal(found[0]["turned"], whole.T)


def test_the_last_two_are_kept_and_the_newest_is_read(tmp_path: Path) -> None:
    files = written(tmp_path, times=5)
    assert [int(path.name[:8]) for path in files] == [4, 5]
    assert [path.name for path in files] == [named(path.read_bytes(), n) for path, n in zip(files, (4, 5), strict=True)]
    assert loaded(tmp_path) == (5, [])


def test_numbers_go_on_past_eight_digits(tmp_path: Path) -> None:
    (old,) = written(tmp_path, times=1)
    old.rename(old.with_name("99999999" + old.name[8:]))
    checkpoints(tmp_path).save({"n": torch.tensor(7)}, {"n": 7})
    assert loaded(tmp_path) == (7, [])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    altered = bytearray(path.read_bytes())
    altered[len(altered) // 2] ^= 1
    path.write_bytes(altered)


def renamed(path: Path) -> None:
    """The other's content under this name: sound in itself, but not what the name says."""
    path.write_bytes(next(p for p in path.parent.iterdir() if p != path).read_bytes())


DAMAGES = [cut, emptied, flipped, renamed]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    damage(written(tmp_path)[-1])
    before = content(tmp_path)
    assert loaded(tmp_path) == (1, ["Checkpoint 2 is damaged; the one before it is used."])
    assert content(tmp_path) == before


def test_every_single_flipped_byte_is_noticed(tmp_path: Path) -> None:
    newest = written(tmp_path)[-1]
    sound = newest.read_bytes()
    for place in range(len(sound)):
        newest.write_bytes(sound[:place] + bytes([sound[place] ^ 0x10]) + sound[place + 1 :])
        assert loaded(tmp_path)[0] == 1
    newest.write_bytes(sound)
    assert loaded(tmp_path) == (2, [])


def test_where_none_is_whole_it_is_said(tmp_path: Path) -> None:
    for path in written(tmp_path):
        cut(path)
    assert loaded(tmp_path) == (None, ["No checkpoint could be read; starting over."])
    assert loaded(tmp_path / "nowhere") == (None, [])


def test_a_damaged_one_does_not_count_as_one_of_the_two_kept(tmp_path: Path) -> None:
    cut(written(tmp_path)[-1])
    going_on = checkpoints(tmp_path)
    assert going_on.load() is not None
    going_on.save({"n": torch.tensor(3)}, {"n": 3})
    files = sorted(tmp_path.iterdir())
    assert [int(path.name[:8]) for path in files] == [1, 3]
    cut(files[-1])
    assert loaded(tmp_path)[0] == 1


def test_what_a_killed_process_left_is_ignored_and_later_removed(tmp_path: Path) -> None:
    newest = written(tmp_path)[-1]
    half = tmp_path / f"{named(b'unfinished', 3)}.partial"
    half.write_bytes(b"unfin")
    foreign = tmp_path / "notes.txt"
    foreign.write_text("mine")
    (tmp_path / f"00000009-{'0' * 64}.safetensors").mkdir()
    assert loaded(tmp_path) == (2, [])
    assert half.exists()
    checkpoints(tmp_path).save({"n": torch.tensor(3)}, {"n": 3})
    assert not half.exists()
    assert newest.exists()
    assert foreign.read_text() == "mine"
    assert loaded(tmp_path) == (3, [])


# Writing fails


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_ends_the_run_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    written(tmp_path)
    before = content(tmp_path)
    monkeypatch.setattr(checkpoint.os, call, full_disk)
    with pytest.raises(RunError, match=r"cannot write a checkpoint to .*: No space left on device; the ones"):
        checkpoints(tmp_path).save({"n": torch.tensor(3)}, {"n": 3})
    assert content(tmp_path) == before
    monkeypatch.undo()
    assert loaded(tmp_path) == (2, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    target = tmp_path / "whole"
    target.write_bytes(b"old")
    (tmp_path / "whole.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, b"new" * 100_000)
    assert content(tmp_path) == {"whole": b"old"}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="cannot write a checkpoint to"):
        checkpoints(tmp_path / "file" / "below").save({}, {})
    with pytest.raises(InputError, match="is a file; name a folder"):
        check_folder(tmp_path / "file" / "below", force=False)
    with pytest.raises(InputError, match=r"cannot write to .*: ."), one_process(tmp_path / "file" / "below"):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="is read-only"):
        check_folder(tmp_path / "run", force=False)


# What does not belong


@pytest.mark.parametrize(
    ("changes", "named_difference"),
    [
        ({"data": {"train": "bb"}}, "data train"),
        ({"data": {"train": "aa", "test": "cc"}}, "data test"),
        ({"seeds": [0, 2]}, "seeds"),
        ({"settings": {"lr": 0.2, "milestones": (3, 5)}}, "settings lr"),
        ({"settings": {"lr": 0.2, "milestones": (3,)}}, "settings lr, settings milestones"),
        ({"method": "dns"}, "method"),
    ],
)
def test_another_run_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named_difference: str) -> None:
    written(tmp_path)
    before = content(tmp_path)
    with pytest.raises(InputError, match=rf"differs in {named_difference}; .*start over with --force\.$"):
        checkpoints(tmp_path, **changes).load()
    assert content(tmp_path) == before


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "format", 2)
    written(tmp_path)
    monkeypatch.undo()
    before = content(tmp_path)
    with pytest.raises(InputError, match="format 2, this version reads 1"):
        checkpoints(tmp_path).load()
    assert content(tmp_path) == before


def header_of(text: bytes, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def document(**changes: Any) -> bytes:
    whole = {"format": 1, "identity": json.loads(json.dumps(IDENTITY)), "facts": {"n": 1}} | changes
    kept = {name: value for name, value in whole.items() if value is not None}
    return tensors_to_bytes({"n": torch.tensor(1)}, metadata={"evenhand": json.dumps(kept)})


SOUND = document()
HOSTILE = {
    "nothing": b"",
    "short": b"abc",
    "garbage": bytes(range(256)) * 8,
    "a pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "not JSON": header_of(b"{]"),
    "not an object": header_of(b"[1]"),
    "deep": header_of(b"[" * 200_000),
    "a length beyond the end": header_of(b"{}", 2**63),
    "a length of one less": (int.from_bytes(SOUND[:8], "little") - 1).to_bytes(8, "little") + SOUND[8:],
    "no metadata": tensors_to_bytes({"n": torch.tensor(1)}),
    "other metadata": tensors_to_bytes({"n": torch.tensor(1)}, metadata={"format": "pt"}),
    "metadata that is no JSON": tensors_to_bytes({"n": torch.tensor(1)}, metadata={"evenhand": "yes"}),
    "metadata that is a list": tensors_to_bytes({"n": torch.tensor(1)}, metadata={"evenhand": "[1, 2]"}),
    "no format": document(format=None),
    "no identity": document(identity=None),
    "an identity that is text": document(identity="me"),
    "no facts": document(facts=None),
    "facts that are a number": document(facts=3),
    "tensors cut off": SOUND[:-1],
    "tensors run on": SOUND + b"\0",
    "offsets that lie": SOUND.replace(b'"data_offsets":[0,8]', b'"data_offsets":[0,9]'),
    "a type that is none": SOUND.replace(b'"I64"', b'"Q64"'),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_with_a_true_name_that_is_no_checkpoint_is_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    written(tmp_path)
    (tmp_path / named(HOSTILE[kind])).write_bytes(HOSTILE[kind])
    before = content(tmp_path)
    with pytest.raises(InputError, match=r"^[^\n]*a checkpoint that evenhand did not write; [^\n.]*\.$"):
        checkpoints(tmp_path).load()
    assert content(tmp_path) == before


def test_the_sound_document_of_these_tests_is_read(tmp_path: Path) -> None:
    (tmp_path / named(SOUND)).write_bytes(SOUND)
    assert loaded(tmp_path) == (1, [])


# How often


def test_writing_waits_until_its_cost_is_a_small_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)

    def slow(target: Path, content: bytes) -> None:
        nonlocal now
        now += 3.0

    monkeypatch.setattr(checkpoint, "write_atomically", slow)
    seldom = Checkpoints(tmp_path, IDENTITY, _last=now)
    assert (seldom.due(), seldom.due_within()) == (True, False)
    seldom.save({}, {})
    spent, asked = 0.0, 0.0
    for _ in range(1000):
        now, asked = now + 7.0, asked + 7.0
        assert seldom.due_within() == seldom.due()  # 100 s apart, which is longer than a long epoch
        if seldom.due():
            seldom.save({}, {})
            spent += 3.0
    assert 0.9 * 0.03 <= spent / asked <= 0.03


def test_a_long_epoch_is_saved_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    mine = Checkpoints(tmp_path, IDENTITY, _last=now)
    moments = []
    for now in range(1, 200):
        if mine.due_within():
            moments.append(now)
            mine.save({}, {})
    assert moments == [60, 120, 180]


# One process


HOLDER = """
import sys
from pathlib import Path
from evenhand.utils.atomic import one_process
with one_process(Path(sys.argv[1])):
    print("here", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_one_process_own_until_it_dies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"here\n"
        with (
            pytest.raises(InputError, match=r"another process is working in .*run; wait for it"),
            one_process(folder),
        ):
            pass
        assert folder.is_dir()
        holder.kill()
    with one_process(folder):
        (folder / "kept").write_text("x")
    assert content(folder) == {"kept": b"x"}


def test_no_lock_and_no_empty_folder_stays_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), one_process(tmp_path / "run"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_worked_on_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with one_process(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


def test_checkpoints_outlive_a_failure_but_not_a_success_or_a_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def work(resume: bool, fail: bool) -> list[int]:
        """The numbers that were there at the start."""
        with run_folder(folder, not resume, resume) as place:
            assert place == folder / CHECKPOINTS
            there = [int(path.name[:8]) for path in sorted(place.iterdir())] if place.is_dir() else []
            checkpoints(place).save({"n": torch.tensor(0)}, {"n": 0})
            if fail:
                raise RunError("failed")
        return there

    for resume in (False, True, False):
        with pytest.raises(RunError, match="failed"):
            work(resume, fail=True)
        with pytest.raises(InputError, match="holds an unfinished run; go on with --resume"):
            check_folder(folder, force=False)
        assert check_folder(folder, force=False, resume=True) == check_folder(folder, force=True) == folder
    assert work(resume=True, fail=False) == [1]
    assert not folder.exists()
