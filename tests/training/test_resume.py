"""A run that was stopped, killed or crashed goes on as if nothing had happened: the same model to the bit."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evenhand.cli import main
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.methods import METHODS, parse
from evenhand.models.folder import load
from evenhand.samplers import AUCSampler
from evenhand.training import Fit, Settings, run, train
from evenhand.training import checkpoints as checkpoint
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.engines import Engine, Plan
from evenhand.training.engines.base import TorchEngine
from evenhand.training.engines.numba_engine import NumbaEngine
from evenhand.training.trainer import Trainer
from evenhand.utils.errors import InputError, StoppedError
from prepared import Program
from run_cli import evenhand, small_log, write_log

VARIANTS = [*METHODS, "auc-ns:ecdf=16", "auc-ns:alpha=auto"]
SETTINGS = Settings(epochs=4, batch=40, lr=0.05, milestones=(2,), negatives=2, patience=2)
KS = (2, 5, 10)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits, and a forked process must not need it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def always_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint at the end of every epoch, whatever it costs."""
    monkeypatch.setattr(run, "Checkpoints", partial(Checkpoints, share=0))


def tiny_split(validation: float = 0.15) -> Split:
    rng = np.random.default_rng(3)
    pairs = np.nonzero(rng.random((24, 20)) < 0.35)
    return Interactions.from_pairs(*pairs, n_users=24, n_items=20).split(test=0.2, validation=validation)


SPLIT = tiny_split()


def fit(
    folder: Path | None = None,
    resume: bool = True,
    split: Split = SPLIT,
    encoder: Encoder = MF(dim=4),  # noqa: B008 (frozen)
    method: Any = "auc-ns:alpha=auto",
    seeds: Any = 2,
    settings: Settings = SETTINGS,
    **other: Any,
) -> Fit:
    if isinstance(method, str):
        asked = parse(method)
        method = asked.sampler
        other = {"objective": asked.objective, **other}
    return train(
        split,
        encoder,
        method,
        seeds,
        settings,
        device="cpu",
        ks=KS,
        checkpoints=folder,
        resume=resume,
        **other,
    )


def untimed(history: Any) -> list[Any]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def assert_same(a: Fit, b: Fit) -> None:
    """Everything but the time it took."""
    assert torch.equal(a.model.user_vectors, b.model.user_vectors)
    assert torch.equal(a.model.item_vectors, b.model.item_vectors)
    assert (a.model.tables is None) == (b.model.tables is None)
    for one, other in zip(a.model.tables or (), b.model.tables or (), strict=True):
        assert torch.equal(one, other)
    assert (a.epochs, a.model.best, a.model.seeds) == (b.epochs, b.model.best, b.model.seeds)
    assert a.model.info == b.model.info
    np.testing.assert_equal(untimed(a.model.history), untimed(b.model.history))
    np.testing.assert_equal(a.validation, b.validation)
    assert a.results.keys() == b.results.keys()
    for k, replicas in a.results.items():
        for one, other in zip(replicas, b.results[k], strict=True):
            np.testing.assert_equal(one.metrics, other.metrics)
            np.testing.assert_equal(one.users.arrays(), other.users.arrays())


def one_by_one(start: Callable[..., None]) -> Callable[..., None]:
    """Begin an engine so that it looks at the clock after every step."""

    def started(engine: Engine, loop: Trainer) -> None:
        start(engine, loop)
        engine.stride = 1

    return started


class Steps:
    """Counts training steps, and does something after a chosen one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.done = 0
        self.then: Callable[[], None] = lambda: None
        for engine in (TorchEngine, NumbaEngine):
            monkeypatch.setattr(engine, "run", self._counted(engine.run))
            monkeypatch.setattr(engine, "__init__", one_by_one(engine.__init__))

    def _counted(self, run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def counted(engine: Engine, plan: Plan, first: int, last: int) -> torch.Tensor:
            learned = run(engine, plan, first, last)
            self.done += 1
            self.left -= 1
            if self.left == 0:
                self.then()
            return learned

        return counted

    def interrupt_after(self, steps: int) -> None:
        """As Ctrl-C would, to this very process."""
        self.left, self.then = steps, partial(signal.raise_signal, signal.SIGINT)


def stopped_and_resumed(steps: Steps, folder: Path, gaps: Iterator[int], **how: Any) -> tuple[Fit, int]:
    """The fit of a run that is interrupted again and again, and how many times that was."""
    said: list[str] = []
    done = None
    while done is None:
        steps.interrupt_after(next(gaps))
        try:
            done = fit(folder, **how)
        except StoppedError as stopped:
            said.append(str(stopped))
    assert all("; everything is saved: go on with --resume." in one for one in said)
    return done, len(said)


EVERY_WAY = [(method, *way) for method in VARIANTS for way in ((MF(dim=4), "honest"), (LightGCN(dim=4), "paper"))]
EVERY_WAY += [("auc-ns", MF(dim=4), "paper"), ("auc-ns", LightGCN(dim=4), "honest")]
"""Each method with each encoder and with each protocol; one of them with every two."""


@pytest.mark.parametrize(("method", "encoder", "protocol"), EVERY_WAY, ids=str)
def test_a_run_stopped_again_and_again_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, encoder: Encoder, protocol: str
) -> None:
    how = {"method": method, "encoder": encoder, "protocol": protocol}
    steps = Steps(monkeypatch)
    whole = fit(**how)
    needed, steps.done = steps.done, 0
    draw = random.Random(repr((method, encoder, protocol)))
    gaps = iter(lambda: draw.randint(1, 3), None)
    again, stops = stopped_and_resumed(steps, tmp_path, gaps, **how)
    assert_same(again, whole)
    assert steps.done == needed  # no step was taken twice
    assert stops >= needed // 3 - 1


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_stopping_after_every_single_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    steps = Steps(monkeypatch)
    whole = fit(protocol=protocol)
    needed, steps.done = steps.done, 0
    again, stops = stopped_and_resumed(steps, tmp_path, iter(lambda: 1, None), protocol=protocol)
    assert_same(again, whole)
    assert (steps.done, stops) == (needed, needed), "after the last step it stops too, with everything saved"


def test_replicas_that_differ_and_a_run_without_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {
        "split": tiny_split(validation=0),
        "method": [AUCSampler(alpha="auto"), AUCSampler(alpha="auto", beta=0.1)],
        "seeds": (5, 3),
    }
    steps = Steps(monkeypatch)
    whole = fit(**how)
    again, stops = stopped_and_resumed(steps, tmp_path, iter(lambda: 2, None), **how)
    assert stops > 3
    assert_same(again, whole)


IMPATIENT = Settings(epochs=12, batch=20, lr=0.01, negatives=2, patience=2)


@pytest.mark.parametrize(
    ("method", "encoder"),
    [*((method, MF(dim=4)) for method in VARIANTS), ("auc-ns:alpha=auto", LightGCN(dim=4)), ("cause", LightGCN(dim=4))],
    ids=str,
)
def test_replicas_that_are_done_train_no_more_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, encoder: Encoder
) -> None:
    """Those that are left go on as they would have alone, interrupted or not."""
    how = {"method": method, "encoder": encoder, "settings": IMPATIENT}
    whole = fit(seeds=6, **how)
    trained = [sum(record["loss"][r] is not None for record in whole.history) for r in range(6)]
    assert len(set(trained)) > 1, "all stopped at once, which shows nothing"
    for place in range(6):
        alone = fit(seeds=(place,), **how)
        assert torch.equal(whole.model.item_vectors[place], alone.model.item_vectors[0])
        assert whole.epochs[place] == alone.epochs[0]
        assert trained[place] == len(alone.history)
    steps, draw = Steps(monkeypatch), random.Random(method)
    again, _ = stopped_and_resumed(steps, tmp_path, iter(lambda: draw.randint(1, 5), None), seeds=6, **how)
    assert_same(again, whole)


@pytest.mark.usefixtures("always_saving")
@pytest.mark.parametrize("protocol", ["honest", "paper"])
@pytest.mark.parametrize("crash", [1, 2, 3, 4])
def test_a_crash_at_the_end_of_an_epoch_costs_that_epoch_at_most(tmp_path: Path, crash: int, protocol: str) -> None:
    settings = Settings(epochs=4, batch=40, lr=0.05, patience=None)

    def fail(done: int, most: int, record: Mapping[str, Any]) -> None:
        if done == crash:
            raise ZeroDivisionError

    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, settings=settings, protocol=protocol, on_epoch=fail)
    again = fit(tmp_path, settings=settings, protocol=protocol, on_epoch=lambda done, most, record: seen.append(done))
    assert seen == list(range(crash, 5))
    assert_same(again, fit(settings=settings, protocol=protocol))


def test_what_is_finished_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fit(tmp_path)
    steps = Steps(monkeypatch)
    second = fit(tmp_path)
    assert steps.done == 0
    assert_same(second, first)
    assert second.model.history == first.model.history  # even the seconds: they were read, not measured
    assert second.seconds >= first.model.history[-1]["seconds"] - 0.001


def test_without_resume_a_run_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    first = fit(tmp_path)
    needed, steps.done = steps.done, 0
    assert_same(fit(tmp_path, resume=False), first)
    assert steps.done == needed


def test_a_stop_without_checkpoints_says_that_nothing_was_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.interrupt_after(1)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(StoppedError, match=r"stopped after 0 epochs; nothing was saved\."):
        fit()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.left = 3

    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    steps.then = twice
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    monkeypatch.undo()
    assert_same(fit(tmp_path), fit())


# Faults, as a run meets them


@pytest.mark.usefixtures("always_saving")
def test_a_damaged_checkpoint_is_passed_over_with_a_note(tmp_path: Path) -> None:
    whole = fit(tmp_path)
    older, newest = sorted(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    seen: list[int] = []
    again = fit(tmp_path, on_epoch=lambda done, most, record: seen.append(done))
    assert_same(again, whole)
    assert seen == [len(whole.model.history)]
    number = int(newest.name[:8])
    assert again.notes == (*whole.notes, f"Checkpoint {number} is damaged; the one before it is used.")
    assert older.exists()
    assert not newest.exists()


@pytest.mark.usefixtures("always_saving")
def test_where_no_checkpoint_can_be_read_the_run_starts_over_and_says_so(tmp_path: Path) -> None:
    whole = fit(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    again = fit(tmp_path)
    assert_same(again, whole)
    assert again.notes == (*whole.notes, "No checkpoint could be read; starting over.")


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"split": tiny_split(validation=0.2)}, "data train, data validation"),
        ({"encoder": MF(dim=5)}, "encoder dim"),
        ({"encoder": LightGCN(dim=4)}, "encoder layers, encoder name, settings l2"),
        ({"method": "dns"}, "method"),
        ({"method": AUCSampler(alpha="auto", beta=0.02)}, "method"),
        (
            {"settings": Settings(epochs=4, batch=40, lr=0.04, milestones=(2,), negatives=2, patience=2)},
            "settings lr",
        ),
        ({"seeds": 3}, "method, seeds"),
        ({"seeds": (0, 7)}, "seeds"),
        (
            {"protocol": "paper"},
            "protocol, settings average, settings drop_last, settings l2, .*settings updates, settings weight_decay",
        ),
        ({"hot": "0.3"}, "protocol"),
    ],
    ids=str,
)
def test_another_run_is_refused_and_the_folder_left_alone(
    tmp_path: Path, other: dict[str, Any], difference: str
) -> None:
    fit(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=rf"differs in {difference}; "):
        fit(tmp_path, **other)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# Killed


def newest_whole(folder: Path) -> dict[str, Any]:
    """Read without the library: the facts of the newest file whose content its name describes."""
    from hashlib import sha256

    for path in sorted(folder.glob("*.safetensors"), reverse=True):
        content = path.read_bytes()
        if sha256(content).hexdigest() in path.name:
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            return json.loads(header["__metadata__"]["evenhand"])["facts"]
    return {"history": [], "step": 0}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def child_process(folder: Path, prepare: Callable[[], None], started: Any, epochs: Any) -> None:
    run.Checkpoints = partial(Checkpoints, share=0)  # type: ignore[misc, assignment]
    checkpoint.LONG_EPOCH = 0  # every step is saved
    prepare()
    started.send(True)
    fit(folder, settings=KILLED, on_epoch=lambda done, most, record: epochs.send(done))


KILLED = Settings(epochs=6, batch=24, lr=0.05, patience=None, engine="torch")
"""A forked process trains with the plain engine."""


def run_until(folder: Path, prepare: Callable[[], None], delay: float | None) -> tuple[int | None, list[int]]:
    """Go on with the run in a new process and kill it after the delay: its exit code, its epochs."""
    fork = multiprocessing.get_context("fork")
    (started, start), (epochs, epoch) = fork.Pipe(duplex=False), fork.Pipe(duplex=False)
    process = fork.Process(target=child_process, args=(folder, prepare, start, epoch))
    process.start()
    start.close()
    epoch.close()
    assert started.recv()
    process.join(delay)
    process.kill()
    process.join()
    seen = []
    try:
        while True:
            seen.append(epochs.recv())
    except EOFError:
        return process.exitcode, seen


forks = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")


@forks
def test_a_run_killed_at_random_moments_ends_the_same(tmp_path: Path) -> None:
    whole = fit(settings=KILLED)
    draw = random.Random(0)
    kills = finished = 0
    folder = tmp_path / "0"
    while kills < 25 or not finished:
        before = newest_whole(folder)
        code, seen = run_until(folder, lambda: None, draw.uniform(0, 0.15))
        after = newest_whole(folder)
        reached = [(len(facts["history"]), facts["step"]) for facts in (before, after)]
        assert reached[0] <= reached[1]
        assert after["history"][: reached[0][0]] == before["history"]
        assert seen == list(range(reached[0][0] + 1, reached[0][0] + 1 + len(seen)))
        assert reached[1][0] >= reached[0][0] + len(seen) - 1  # at most the epoch being saved is repeated
        if code == 0:
            assert reached[1] == (KILLED.epochs, 0)
            assert not list(folder.glob("*.partial"))
            assert_same(fit(folder, settings=KILLED), whole)
            finished += 1
            folder = tmp_path / str(finished)
        else:
            assert code == -signal.SIGKILL
            kills += 1


def at_call(place: Any, name: str, call: int, *, after: bool = False) -> Callable[[], None]:
    """To be called in a child: it dies at that call of the function, before or after the work was done."""

    def prepare() -> None:
        work, calls = getattr(place, name), iter(range(1, 10**6))

        def deadly(*arguments: Any, **named: Any) -> Any:
            now = next(calls) == call
            if now and not after:
                die()
            result = work(*arguments, **named)
            if now:
                die()
            return result

        setattr(place, name, deadly)

    return prepare


def half_written() -> None:
    """Dies with half of the fifth file on disk."""
    write, calls = checkpoint.write_atomically, iter(range(1, 10**6))

    def deadly(target: Path, content: bytes) -> None:
        if next(calls) == 5:
            target.with_name(target.name + ".partial").write_bytes(content[: len(content) // 2])
            die()
        write(target, content)

    checkpoint.write_atomically = deadly  # type: ignore[assignment]


MOMENTS = {
    "before writing": (at_call(checkpoint, "write_atomically", 5), 4),
    "half written": (half_written, 4),
    "before the sync": (at_call(checkpoint.os, "fsync", 9), 4),
    "before the rename": (at_call(checkpoint.os, "replace", 5), 4),
    "after the rename": (at_call(checkpoint.os, "replace", 5, after=True), 5),
    "before an old one goes": (at_call(Path, "unlink", 3), 5),
    "after an old one went": (at_call(Path, "unlink", 3, after=True), 5),
}


@forks
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_while_a_checkpoint_is_written(tmp_path: Path, moment: str) -> None:
    prepare, saves = MOMENTS[moment]
    assert run_until(tmp_path, prepare, None)[0] == -signal.SIGKILL
    facts = newest_whole(tmp_path)
    steps = -(-len(SPLIT.train) // KILLED.batch)
    assert len(facts["history"]) * steps + facts["step"] == saves  # one save a step
    assert run_until(tmp_path, lambda: None, None)[0] == 0
    assert_same(fit(tmp_path, settings=KILLED), fit(settings=KILLED))
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 2
    assert all(name.endswith(".safetensors") for name in names)


# The command line


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(small_log(), tmp_path_factory.mktemp("log") / "log.csv")


LONG = (
    "--epochs",
    "120",
    "--patience",
    "120",
    "--seeds",
    "2",
    "--dim",
    "8",
    "--batch",
    "256",
    "--device",
    "cpu",
)


def wait_for(found: Callable[[], bool], process: Program) -> None:
    end = time.monotonic() + 60
    while not found():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


def checkpoints_in(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def test_ctrl_c_stops_train_politely_and_resume_completes_it(tmp_path: Path, log: Path) -> None:
    command = ("train", log, "--method", "auc-ns:alpha=auto", *LONG)
    out = tmp_path / "model"
    warm = evenhand(*command, "--epochs", 1, "--out", tmp_path / "warm")  # or the first would be done by then
    assert warm.code == 0, warm.err
    with Program(main, *command, "--out", out) as process:
        wait_for(lambda: checkpoints_in(out / ".checkpoints"), process)
        second = evenhand(*command, "--out", out, "--resume")
        assert second.code == 2
        assert second.err == f"evenhand: another process is working in {out}; wait for it or choose another.\n"
        process.send_signal(signal.SIGINT)
        printed, complaint = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    said = re.fullmatch(
        r"evenhand: stopped after (\d+) epochs?; everything is saved: go on with --resume\.\n", complaint
    )
    assert said, complaint
    assert [path.name for path in out.iterdir()] == [".checkpoints"]

    refused = evenhand(*command, "--out", out)
    assert (refused.code, refused.err) == (
        2,
        f"evenhand: {out} holds an unfinished run; go on with --resume, or start over with --force.\n",
    )
    other = evenhand(*command, "--out", out, "--resume", "--lr", "0.5")
    assert other.code == 2
    assert "differs in settings lr;" in other.err

    resumed = evenhand(*command, "--out", out, "--resume", "--json")
    whole = evenhand(*command, "--out", tmp_path / "whole", "--json")
    assert (resumed.code, whole.code) == (0, 0), resumed.err + whole.err
    assert resumed.document["rows"] == whole.document["rows"]
    mine, theirs = load(out), load(tmp_path / "whole")
    assert torch.equal(mine.user_vectors, theirs.user_vectors)
    assert torch.equal(mine.item_vectors, theirs.item_vectors)
    assert mine.metrics == theirs.metrics
    np.testing.assert_equal(untimed(mine.history), untimed(theirs.history))
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in (tmp_path / "whole").iterdir())
    assert 0 < int(said[1]) < len(mine.history)


def test_a_report_that_found_no_room_is_added_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results are shown and written at once; the run stays unfinished, so that --resume has something to go on with."""
    from evenhand import report

    log = write_log(small_log(), tmp_path / "log.csv")
    command = ("compare", log, "--methods", "popular,rns", "--dim", 4, "--epochs", 2, "--seeds", 1, "--device", "cpu")
    with monkeypatch.context() as full:

        def no_room(*_: object) -> None:
            raise InputError("cannot write report.html: No space left on device.")

        full.setattr(report, "write_comparison_report", no_room)
        first = evenhand(*command, "--out", tmp_path / "run")
    assert first.code == 1
    assert "No space left on device; the results are written, --resume adds the report." in first.err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    steps = Steps(monkeypatch)
    again = evenhand(*command, "--out", tmp_path / "run", "--resume")
    assert (again.code, steps.done) == (0, 0), again.err
    assert json.loads((tmp_path / "run" / "results.json").read_text())["rows"] == results["rows"]
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert not (tmp_path / "run" / ".checkpoints").exists()


def test_a_killed_compare_leaves_no_lock_and_keeps_what_had_finished(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("compare", log, "--methods", "rns,dns", "--l2", "0.01", *LONG)
    out = tmp_path / "run"
    with Program(main, *command, "--out", out) as process:
        wait_for(lambda: checkpoints_in(out / ".checkpoints" / "01"), process)
        process.kill()
    finished = newest_whole(out / ".checkpoints" / "00")["history"]
    begun = newest_whole(out / ".checkpoints" / "01")["history"]
    assert (len(finished), 0 < len(begun) < 120) == (120, True)

    steps = Steps(monkeypatch)
    resumed = evenhand(*command, "--out", out, "--resume", "--json")
    taken, steps.done = steps.done, 0
    whole = evenhand(*command, "--out", tmp_path / "whole", "--json")
    assert (resumed.code, whole.code) == (0, 0), resumed.err + whole.err
    assert resumed.document["rows"] == whole.document["rows"]
    assert resumed.document["verdict"] == whole.document["verdict"]
    assert taken * 240 == steps.done * (120 - len(begun))  # only what the second method lacked

    results = json.loads((out / "results.json").read_text())
    assert results["history"]["rns"] == finished
    assert results["history"]["dns"][: len(begun)] == begun
    written = ["config.json", "recommendations.parquet", "report.html", "results.json"]
    assert sorted(path.name for path in out.iterdir()) == written
    shutil.rmtree(out)


def test_resume_needs_a_folder_and_excludes_force(tmp_path: Path, log: Path) -> None:
    for options in ((), ("--out", tmp_path / "run", "--force")):
        refused = evenhand("compare", log, "--resume", *options)
        assert refused.code == 2
        assert refused.err.startswith("evenhand: --resume goes on with the run in --out")
        assert refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
