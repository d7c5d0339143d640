"""`evenhand train` over several processes: one model, whatever their number, through kills, damage and mistakes."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.training import settings
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.engines import sharded
from evenhand.training.engines.sharded import ShardedEngine
from evenhand.utils import world as world_module
from evenhand.utils.errors import InputError
from evenhand.utils.world import World
from ranks import on_ranks
from run_cli import evenhand

ASKED = (
    *("--method", "auc-ns:ecdf=16", "--epochs", "3", "--seeds", "1"),
    *("--dim", "8", "--batch", "512", "--updates", "sparse", "--l2", "0.01"),
)


def command(world: World, *arguments: str) -> tuple[int, str, str]:
    ended = evenhand(*arguments)
    return ended.code, ended.out, ended.err


def trained(size: int, log: Path, out: Path, *more: str) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = on_ranks(size, command, "train", str(log), "--out", str(out), *ASKED, *more)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files, of which each process reads some."""
    place = tmp_path_factory.mktemp("log")
    table = simulate_log(200, 150, 2000, seed=3).to_table()
    for number, first in enumerate(range(0, len(table), 800)):
        write_table(table.slice(first, 800), place / f"part-{number}.parquet")
    return place


def vectors(folder: Path) -> list[np.ndarray]:
    model: Any = eh.load(folder)
    return [side.numpy() for side in model.vectors]


def test_a_folder_in_parts_is_read_by_one_process_as_any_other(log: Path, tmp_path: Path) -> None:
    folders = {size: tmp_path / str(size) for size in (1, 3)}
    for size, folder in folders.items():
        assert trained(size, log, folder, "--no-refit")[0][0] == 0
    one, three = (eh.load(folder) for folder in folders.values())
    assert one.recommend(k=5).equals(three.recommend(k=5))
    for side in ("user_ids", "item_ids"):
        assert getattr(one.known, side).equals(getattr(three.known, side))
    assert np.array_equal(one.known.keys, three.known.keys)
    config = json.loads((folders[3] / "config.json").read_text())
    assert config["format"] == 2
    n = one.known.n_users
    assert [part["users"] for part in config["parts"]] == [[r * n // 3, (r + 1) * n // 3] for r in range(3)]
    three.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["format"] == 1
    part = folders[3] / "part-00001.safetensors"
    part.write_bytes(part.read_bytes()[:-4] + bytes(4))
    with pytest.raises(InputError, match=r"part-00001.safetensors is not the file that was saved"):
        eh.load(folders[3])
    part.unlink()
    with pytest.raises(InputError, match=r"part-00001.safetensors is missing"):
        eh.load(folders[3])


def test_the_model_and_its_numbers_do_not_depend_on_how_many_trained_it(log: Path, tmp_path: Path) -> None:
    ended = {size: trained(size, log, tmp_path / str(size), "--json", "--explain") for size in (1, 2, 3)}
    for answers in ended.values():
        assert [code for code, _, _ in answers] == [0] * len(answers), answers
        assert all(out == err == "" for _, out, err in answers[1:])  # rank 0 speaks
    first = json.loads(ended[1][0][1])
    for size in (2, 3):
        assert json.loads(ended[size][0][1])["rows"] == first["rows"]
        pairs = zip(vectors(tmp_path / "1"), vectors(tmp_path / str(size)), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    plain = evenhand("train", log, "--out", tmp_path / "plain", *ASKED, "--json").document["rows"]
    for ours, one in zip(first["rows"], plain, strict=True):
        assert ours["metrics"]["ndcg"]["mean"] == pytest.approx(one["metrics"]["ndcg"]["mean"], abs=0.01)


def test_several_processes_settle_and_drop_what_is_done_as_one_does(log: Path, tmp_path: Path) -> None:
    """Three seeds, the regularisation left open, and patience that ends them apart."""
    asked = ["--method", "dns", "--epochs", "9", "--patience", "1", "--seeds", "3", "--dim", "8", "--updates", "sparse"]
    for size in (1, 2):
        answers = on_ranks(size, command, "train", str(log), "--out", str(tmp_path / str(size)), *asked, "--no-refit")
        assert [code for code, _, _ in answers] == [0] * size, answers
    assert same(vectors(tmp_path / "1"), vectors(tmp_path / "2"))
    history = [json.loads((tmp_path / str(size) / "history.json").read_text()) for size in (1, 2)]
    trained = [[[loss is None for loss in record["loss"]] for record in one] for one in history]
    assert trained[0] == trained[1]
    assert len({sum(seed) for seed in zip(*trained[0], strict=True)}) > 1, "all were done at once, which shows nothing"


def with_few_rows_dense(world: World, *arguments: str) -> tuple[int, str, str]:
    settings.DENSE_UP_TO = 250  # less than there are, more than each of two processes holds
    return command(world, *arguments)


def test_which_rows_move_does_not_depend_on_how_many_processes_hold_them(log: Path, tmp_path: Path) -> None:
    for size in (1, 2):
        once_each = [*once(log, tmp_path / str(size)), "--updates", "auto"]
        assert on_ranks(size, with_few_rows_dense, *once_each)[0][0] == 0
    assert same(vectors(tmp_path / "1"), vectors(tmp_path / "2"))


def interrupted(world: World, how: str, at: int, *arguments: str) -> tuple[int, str, str]:
    """The command with a checkpoint after every step, and something done to rank 1 before step `at`."""
    if how != "SIGINT":  # rank 1 will hear nothing
        world_module._LAST_WORD = timedelta(seconds=1)
    Checkpoints.due = Checkpoints.due_within = lambda self: self.folder is not None  # type: ignore[method-assign]
    sharded.POSITIVES_A_STRIDE = 1
    run, done = ShardedEngine.run, [0]

    def counted(self: ShardedEngine, plan: Any, first: int, last: int) -> Any:
        done[0] += last - first
        if done[0] == at and world.rank == 1:
            os.kill(os.getpid(), getattr(signal, how))
        return run(self, plan, first, last)

    ShardedEngine.run = counted  # type: ignore[method-assign]
    return command(world, *arguments)


def once(log: Path, out: Path) -> tuple[str, ...]:
    return ("train", str(log), "--out", str(out), *ASKED, "--no-refit")


@pytest.fixture(scope="module")
def expected(log: Path, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The vectors of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("expected") / "model"
    assert on_ranks(1, command, *once(log, out))[0][0] == 0
    return vectors(out)


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_killed_run_goes_on_with_another_number_of_processes(
    log: Path, tmp_path: Path, expected: list[np.ndarray]
) -> None:
    first, *_ = on_ranks(2, interrupted, "SIGKILL", 9, *once(log, tmp_path / "a"), lost=(1,))
    assert first[0] == 1
    assert "another process left" in first[2]
    ended = on_ranks(3, command, *once(log, tmp_path / "a"), "--resume")
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert same(vectors(tmp_path / "a"), expected)


def test_a_killed_run_has_the_edges_of_its_users_back(log: Path, tmp_path: Path) -> None:
    """SL@K renews β in the third epoch, in whose second step the run is killed."""
    asked = ("--method", "slatk:shared=32:temperature=0.2:refresh=2:k=5")
    assert on_ranks(1, command, *once(log, tmp_path / "whole"), *asked)[0][0] == 0
    assert on_ranks(3, interrupted, "SIGKILL", 8, *once(log, tmp_path / "a"), *asked, lost=(1,))[0][0] == 1
    (manifest,) = sorted((tmp_path / "a").rglob("*.json"))[-1:]
    facts = json.loads(manifest.read_text())["facts"]
    assert (len(facts["history"]), facts["step"]) == (2, 1)
    ended = on_ranks(2, command, *once(log, tmp_path / "a"), *asked, "--resume")
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert same(vectors(tmp_path / "a"), vectors(tmp_path / "whole"))


def test_ctrl_c_at_one_rank_saves_and_ends_all(log: Path, tmp_path: Path, expected: list[np.ndarray]) -> None:
    ended = on_ranks(2, interrupted, "SIGINT", 4, *once(log, tmp_path / "a"))
    assert [code for code, _, _ in ended] == [130, 130]
    assert "everything is saved: go on with --resume" in ended[0][2]
    assert ended[1][2] == ""
    assert on_ranks(1, command, *once(log, tmp_path / "a"), "--resume")[0][0] == 0
    assert same(vectors(tmp_path / "a"), expected)


def test_a_hung_rank_ends_the_others_at_the_timeout(log: Path, tmp_path: Path) -> None:
    first, *_ = on_ranks(2, interrupted, "SIGSTOP", 3, *once(log, tmp_path / "a"), wait_for=8, lost=(1,))
    assert first[0] == 1
    assert "did not answer in time" in first[2]


def with_its_own_log(world: World, logs: list[str], out: str) -> tuple[int, str, str]:
    return command(world, "train", logs[world.rank], "--out", out, *ASKED)


def test_a_mistake_at_one_rank_is_one_sentence_from_rank_0(log: Path, tmp_path: Path) -> None:
    logs = [str(log), str(tmp_path / "nothing.parquet")]
    (code, out, said), (other, _, quiet) = on_ranks(2, with_its_own_log, logs, str(tmp_path / "a"))
    assert (code, other, quiet, out) == (2, 2, "", "")
    assert said.count("\n") == 1
    assert "nothing.parquet" in said
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("asked", "way_out"),
    [
        (("--method", "ease"), "start it without torchrun"),
        ((), "start it without torchrun"),
        (("--method", "rns", "--encoder", "lightgcn"), "--encoder mf"),
        (("--method", "auc-ns"), "auc-ns:ecdf=64"),
        (("--method", "rns", "--protocol", "paper"), "the paper's protocol is for one process"),
    ],
)
def test_what_is_refused_over_processes(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], way_out: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setattr(world_module, "_current", None)
    ended = evenhand("train", log, "--out", tmp_path / "a", *asked)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert way_out in ended.err
