"""Two processes in one place, and what a killed one leaves there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from checks.faults import hook

from evenhand.data.write import write_table
from evenhand.models.folder import FILES, load
from evenhand.paper import reproduce as reproduce_run
from evenhand.training.checkpoints import discard
from evenhand.utils import atomic as place
from evenhand.utils.atomic import atomic_file, atomic_folder, one_process, remove_abandoned, staging_folder
from evenhand.utils.errors import InputError
from run_cli import TINY, evenhand, small_log, write_log
from small_model import model

locks = pytest.mark.skipif(os.name == "nt", reason="no such locks here")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    log = write_log(small_log(), folder / "log.csv")
    split = small_log().split(test=0.3, validation=0)
    write_log(split.train, folder / "paper_train.csv")
    write_log(split.test, folder / "paper_test.csv")
    assert evenhand("train", log, "--method", "rns", *TINY, "--out", folder / "model").code == 0
    return folder


COMMANDS = {
    "train": "train {in}/log.csv --out {out} --epochs 1 --force",
    "train, resumed": "train {in}/log.csv --out {out} --epochs 1 --resume",
    "train a rival": "train {in}/log.csv --out {out} --method popular --force",
    "compare": "compare {in}/log.csv --out {out} --epochs 1 --force",
    "tune": "tune {in}/log.csv --out {out} --method rns --epochs 1 --trials 1",
    "tune, anew": "tune {in}/log.csv --out {out} --method rns --epochs 1 --trials 1 --force",
    "reproduce": "reproduce overall --data-dir {in} --methods popular --epochs 1 --out {out}",
    "update": "update {in}/model {in}/log.csv --out {out} --epochs 1 --force",
}


@locks
@pytest.mark.parametrize("name", COMMANDS)
def test_a_second_process_in_a_run_folder_is_refused(tmp_path: Path, inputs: Path, name: str) -> None:
    """A lock is its holder's alone, so that this process can play both parts."""
    out = tmp_path / "run"
    command = COMMANDS[name].replace("{in}", str(inputs)).replace("{out}", str(out)).split()
    with one_process(out):
        (out / ".checkpoints").mkdir()
        if "tune" in name:
            (out / "trials.log").touch()
        mine = out / ".checkpoints" / "mine"
        mine.write_text("unfinished")
        ended = evenhand(*command)
        assert ended.code == 2
        said = f"evenhand: another process is working in {out}; wait for it or choose another.\n"
        assert ended.err == said
        assert mine.read_text() == "unfinished"
        left = [".checkpoints", "trials.log"] if "tune" in name else [".checkpoints"]
        assert sorted(p.name for p in out.iterdir()) == left


# Files that two processes write at once


def table(values: list[int]) -> pa.Table:
    return pa.table({"n": values})


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_of_two_that_write_the_same_file_the_last_one_stays_whole(tmp_path: Path, ending: str) -> None:
    target, other = tmp_path / f"recs{ending}", tmp_path / f"other{ending}"
    write_table(table([1, 2, 3]), other)
    with atomic_file(target) as mine, mine.open("wb", buffering=0) as sink:
        sink.write(b"one half, ")
        write_table(table([1, 2, 3]), target)  # another one, from its beginning to its end
        sink.write(b"the other half")
        assert target.read_bytes() == other.read_bytes()
    assert target.read_bytes() == b"one half, the other half"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([other.name, target.name])


def test_of_two_that_save_a_model_the_last_one_stays_whole(tmp_path: Path) -> None:
    first, second = model("string"), model("integer")
    with atomic_folder(tmp_path / "m", FILES, force=True) as stage:
        second.save(tmp_path / "m")
        first.save(tmp_path / "first")
        for name in FILES:
            (tmp_path / "first" / name).rename(stage / name)
    assert load(tmp_path / "m").recommend(k=1).equals(first.recommend(k=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "m"]


def test_without_force_the_second_to_finish_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="is not empty; choose another folder or use --force"),
        atomic_folder(tmp_path / "m", (), force=False),
    ):
        model("string").save(tmp_path / "m")
    assert load(tmp_path / "m").seeds == (7, 3, 11)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


# What is left after a kill


def killed(work: Callable[[], None]) -> None:
    """Do the work in a process that is killed at its end, or wherever the work kills it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@forks
def test_a_half_written_file_goes_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "recs.csv"

    def half() -> None:
        with atomic_file(target) as partial:
            partial.write_text("half")
            die()

    killed(half)
    (left,) = tmp_path.iterdir()
    assert left.read_text() == "half"
    (tmp_path / ".recs.csv.notes.partial").write_text("somebody else's")
    write_table(table([1]), target)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".recs.csv.notes.partial", "recs.csv"]


@forks
@pytest.mark.parametrize("foreign", [False, True])
def test_a_half_written_folder_goes_with_the_next_one(tmp_path: Path, foreign: bool) -> None:
    model("string").save(tmp_path / "m")
    if foreign:
        (tmp_path / "m" / "notes.txt").write_text("mine")

    def half() -> None:
        with atomic_folder(tmp_path / "m", FILES, force=True) as stage:
            (stage / "config.json").write_text("half")
            die()

    killed(half)
    assert load(tmp_path / "m").seeds == (7, 3, 11)
    assert len([*tmp_path.glob(".*"), *(tmp_path / "m").glob(".*")]) == 1
    model("integer").save(tmp_path / "m", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
    assert {p.name for p in (tmp_path / "m").iterdir()} == {*FILES, *(["notes.txt"] if foreign else [])}


@pytest.mark.skipif(sys.platform != "linux", reason="folders cannot swap names here")
@pytest.mark.parametrize("after", [False, True])
def test_a_model_is_replaced_at_one_stroke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    """Killed right before or after the folders change names, there is a model, the old one or the new one."""
    old, new, exchange = model("string"), model("integer"), place._exchange
    old.save(tmp_path / "m")

    def deadly(one: Path, other: Path) -> bool:
        if after:
            exchange(one, other)
        die()
        return True

    monkeypatch.setattr(place, "_exchange", deadly)
    killed(lambda: new.save(tmp_path / "m", force=True))
    kept = new if after else old
    assert load(tmp_path / "m").recommend(k=1).equals(kept.recommend(k=1))


@forks
def test_a_model_moved_aside_comes_back(tmp_path: Path) -> None:
    """Where folders cannot swap names, a kill between two moves leaves none; the next writer finds it."""
    model("string").save(tmp_path / "m")

    def half() -> None:
        place._exchange = lambda a, b: False  # type: ignore[assignment]
        rename = os.rename

        def deadly(source: Path, target: Path) -> None:
            rename(source, target)
            die()

        os.rename = deadly  # type: ignore[assignment]
        model("integer").save(tmp_path / "m", force=True)

    killed(half)
    assert not (tmp_path / "m").exists()
    remove_abandoned(tmp_path / "m")
    assert load(tmp_path / "m").seeds == (7, 3, 11)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@forks
def test_the_work_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    with staging_folder(tmp_path / "m") as stage:
        (stage / "file").write_text("being written")
        killed(lambda: remove_abandoned(tmp_path / "m"))
        remove_abandoned(tmp_path / "m")
        assert (stage / "file").read_text() == "being written"
    assert list(tmp_path.iterdir()) == []


@forks
def test_the_checkpoints_of_a_finished_run_go_at_one_stroke(tmp_path: Path) -> None:
    """With some of them left, the run would be gone on with, and what they had be trained again."""
    folder = tmp_path / ".checkpoints"
    for operation in range(1, 9):
        for name in ("00/1", "00/2", "01/1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

        def removed(at: int = operation) -> None:
            with hook.watching(tmp_path, hook.dying_at(at)):
                discard(folder)

        killed(removed)
        left = [path for path in folder.rglob("*") if path.is_file()]
        assert len(left) in (0, 3)
        assert folder.exists() == bool(left)
    discard(folder)
    assert list(tmp_path.iterdir()) == []


@forks
def test_a_row_killed_before_it_is_on_record_is_not_trained_again(tmp_path: Path, inputs: Path) -> None:
    command = ("reproduce", "overall", "--data-dir", inputs, "--methods", "rns", "--seeds", "1")
    command += ("--epochs", "2", "--device", "cpu", "--out", tmp_path / "tables")

    def unrecorded() -> None:
        reproduce_run.claims.store = lambda *_: die()  # type: ignore[assignment]
        evenhand(*command)

    killed(unrecorded)
    trained: list[int] = []
    fit_batch = reproduce_run.fit_batch

    def watched(*given: object) -> object:
        def on_epoch(done: int, most: int, record: object) -> None:
            trained.append(done)

        return fit_batch(*given[:-1], on_epoch)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce_run, "fit_batch", watched)
        assert evenhand(*command).code == 0
    assert trained == []
    assert not list((tmp_path / "tables" / ".work").rglob("*.safetensors"))
