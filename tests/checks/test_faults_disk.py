"""Disks that fail: one sentence, the exit code that says so, and what was there before is whole.

Every file operation of a command fails once; so does every write beyond a size, whichever library makes it;
and folders that cannot be written to are refused. `make torture` does the same with real, full disks.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from checks.faults import hook, state
from checks.faults.disk import can_mount, small_disk
from checks.faults.works import Work

from evenhand.baselines import Baseline
from evenhand.cli import main
from evenhand.report import audit_page
from evenhand.training.trained import Trained
from run_cli import Ended, evenhand, small_log, write_log

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")

FIT = "--epochs 1 --seeds 1 --dim 4 --batch 1024 --device cpu"
LISTS = "--train {in}/train.csv --test {in}/test.csv --recs mine={in}/recs.parquet --k 5"
WORKS = [
    Work("train", f"train {{in}}/log.csv --method rns --out {{out}}/model {FIT}",
         older=f"train {{in}}/log.csv --method dns --out {{out}}/model {FIT}", together=True),
    Work("train a rival", "train {in}/log.csv --method popular --seeds 1 --out {out}/model",
         older="train {in}/log.csv --method itemknn --seeds 1 --out {out}/model", together=True),
    Work("compare", "compare {in}/log.csv --methods popular --out {out}/run",
         older="compare {in}/log.csv --methods itemknn --out {out}/run"),
    Work("reproduce", "reproduce overall --data-dir {in}/paper --methods popular --out {out}/tables"),
    Work("update", "update {in}/model {in}/test.csv --out {out}/model --epochs 1 --device cpu",
         older="update {in}/model {in}/log.csv --out {out}/model --epochs 1 --device cpu", together=True),
    Work("export, parquet", "export {in}/model --to parquet --out {out}/vectors",
         older="export {in}/model --to parquet --out {out}/vectors --seed 1", together=True),
    Work("export, npz", "export {in}/model --to npz --out {out}/vectors.npz",
         older="export {in}/model --to npz --out {out}/vectors.npz --seed 1"),
    Work("recommend", "recommend {in}/model -k 9 --out {out}/recs.parquet",
         older="recommend {in}/model -k 5 --out {out}/recs.parquet"),
    Work("rerank", "rerank {in}/recs.parquet --train {in}/train.csv -k 5 --to {out}/lists.csv",
         older="rerank {in}/recs.parquet --train {in}/train.csv -k 3 --to {out}/lists.csv"),
    Work("audit", f"audit {LISTS} --out {{out}}/r.html",
         older=f"audit {LISTS} --hot 0.5 --out {{out}}/r.html"),
]  # fmt: skip
KEPT = (".checkpoints", ".work")
"""What a failed run may leave for the next one."""
works = pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)


@pytest.fixture(scope="module", autouse=True)
def plain_pages() -> Iterator[None]:
    """Drawing a report is most of what a command here would do, and whether it is written does not depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_page, "audit_page", lambda audit, *_: f"<!doctype html>{audit.rows}</html>")
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    split = small_log().split(test=0.3, validation=0)
    (folder / "paper").mkdir()
    for name, part in (
        ("log", small_log()),
        ("train", split.train),
        ("test", split.test),
        ("paper/paper_train", split.train),
        ("paper/paper_test", split.test),
    ):
        write_log(part, folder / f"{name}.csv")
    fit = FIT.replace("--seeds 1", "--seeds 2").split()
    assert (
        evenhand("train", folder / "train.csv", "--method", "rns", "--no-refit", *fit, "--out", folder / "model").code
        == 0
    )
    assert evenhand("recommend", folder / "model", "-k", 12, "--out", folder / "recs.parquet").code == 0
    return folder


def nothing(now: int, event: str) -> None:
    pass


class Trial:
    """A command, what its folder held before and, where nothing failed, what it holds after."""

    def __init__(self, work: Work, inputs: Path, home: Path) -> None:
        self.work, self.inputs, self.home, self.out = work, inputs, home, home / "out"
        (home / "older").mkdir()
        older = work.older_life(inputs, self.out)
        self.out.mkdir()
        if older is not None:
            assert evenhand(*older.arguments).code == 0
        shutil.copytree(self.out, home / "older", dirs_exist_ok=True)
        self.old = state.untimed(state.visible(self.out))
        self.operations, ended = self.run()
        assert ended.code == 0, ended.err
        self.new = state.untimed(state.visible(self.out))
        self.largest = max(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
        assert self.old != self.new

    def run(
        self, act: Callable[[int, str], None] = nothing, removals: bool = False, largest: int = 10**9
    ) -> tuple[list[str], Ended]:
        """From the older output on, with something done at every file operation: these, and how it ended."""
        shutil.rmtree(self.out)
        shutil.copytree(self.home / "older", self.out)
        with hook.watching(self.out, act, removals) as seen, hook.files_up_to(largest):
            return seen, evenhand(*self.work.life(self.inputs, self.out).arguments)

    def check(self, ended: Ended, place: str) -> None:
        said = ended.err.splitlines()
        files = state.visible(self.out)
        now = state.untimed(files)
        if ended.code == 0:  # what failed was only the tidying up, or a report that is not the result
            assert now == self.new or "note: no report was written" in ended.err, place
        else:
            assert ended.code in (1, 2), (place, ended.err)
            assert [line for line in said if line.startswith(("evenhand: ", "Traceback"))] == said[-1:], place
            assert said[-1].startswith("evenhand: cannot write "), place
            assert state.broken(files) == [], place
            assert set(self.old) <= set(now), place
            if self.old:
                assert all(now[name] in (self.old.get(name), self.new.get(name)) for name in now), place
            assert not self.work.together or now in (self.old, self.new), place
        left = [name for name in state.litter(self.out) if not any(part in name for part in KEPT)]
        assert left == [], place


def on_a_read_only_disk(now: int, event: str) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.fixture(scope="module", params=WORKS, ids=lambda work: work.name)
def trial(request: pytest.FixtureRequest, inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(request.param, inputs, tmp_path_factory.mktemp("trial"))


def test_every_file_operation_fails_in_turn(trial: Trial) -> None:
    assert len(trial.operations) >= 4
    for number, name in enumerate(trial.operations, start=1):
        if name.endswith("report.html") or ".report.html." in name:
            continue  # costs an audit each time, whose own report is tried here too
        trial.check(trial.run(hook.failing_at(number, errno.ENOSPC))[1], name)


def test_no_file_may_grow_large(trial: Trial) -> None:
    """The system refuses the write itself, to whichever library makes it."""
    for size in (100, trial.largest // 2):
        ended = trial.run(largest=size)[1]
        trial.check(ended, f"{size} bytes")
        assert ended.code in (1, 2) or "note: no report was written: InputError" in ended.err


def test_a_disk_that_is_read_only(trial: Trial) -> None:
    ended = trial.run(on_a_read_only_disk, removals=True)[1]
    assert ended.code in (1, 2)
    assert re.fullmatch(r"evenhand: cannot write .*: Read-only file system[.;].*\n", ended.err)
    assert state.untimed(state.visible(trial.out)) == trial.old


@works
def test_a_folder_without_leave_to_write_is_refused_before_any_work(
    work: Work, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system says it to anyone but root."""

    def no_work(*_: object, **__: object) -> None:
        raise AssertionError("work was done for a result that nobody can write")

    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    monkeypatch.setattr(Baseline, "fit_under", no_work)
    monkeypatch.setattr(Trained, "update", no_work)
    for place in ("training.run.Trainer", "models.rerank.rerank_lists", "audit.run_audit.audit"):
        module, name = f"evenhand.{place}".rsplit(".", 1)
        monkeypatch.setattr(import_module(module), name, no_work)
    (tmp_path / "out").mkdir()
    ended = evenhand(*replace(work, older=None).life(inputs, tmp_path / "out").arguments)
    if work.name.startswith("export"):  # makes no more of it than a model takes to be read
        return
    assert ended.code == 2
    assert re.search(r"is read-only\.|cannot write to the folder", ended.err), ended.err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if not can_mount(tmp_path):
        pytest.skip("only root can make a disk of its own")
    with small_disk(tmp_path / "disk", 16) as place:
        yield place


def test_a_real_disk_that_is_full_and_one_that_is_read_only(disk: Path, inputs: Path) -> None:
    recs = disk / "recs.csv"
    assert evenhand("recommend", inputs / "model", "-k", 3, "--out", recs).code == 0
    before = recs.read_bytes()
    (disk / "rest").write_bytes(bytes((16 - 1 - -(-len(before) // 4096)) * 4096))
    again = ("recommend", inputs / "model", "-k", 40, "--out", recs, "--force")
    ended = evenhand(*again)
    assert (ended.code, ended.err) == (2, f"evenhand: cannot write {recs}: No space left on device.\n")
    model = evenhand("train", inputs / "log.csv", *FIT.split(), "--out", disk / "model")
    assert model.code in (1, 2)
    assert model.err.count("\n") == 1
    assert "No space left on device" in model.err
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    for command in (again, ("train", inputs / "log.csv", *FIT.split(), "--out", disk / "model", "--force")):
        ended = evenhand(*command)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert re.search(r"is read-only|cannot write to the folder|Read-only file system", ended.err)
    assert recs.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", ["methods", "methods --json", "data list"])
def test_standard_output_on_a_full_disk(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["evenhand", *command.split()])
    with open("/dev/full", "w") as full, redirect_stdout(full), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "evenhand: the output cannot be written: No space left on device.\n"
