"""Numbers that run away and memory that runs out: training stops in a good state, judging goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from evenhand.data.interactions import Interactions
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.methods import METHODS, parse
from evenhand.metrics.evaluate import score_lists
from evenhand.models import topk
from evenhand.models.topk import Products, top_by
from evenhand.objectives import BPR
from evenhand.training import Fit, Settings, run, train
from evenhand.training import checkpoints as checkpoint
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.engines import Engine, Plan
from evenhand.training.engines.base import TorchEngine
from evenhand.training.engines.numba_engine import NumbaEngine
from evenhand.training.engines.rows_engine import RowsEngine
from evenhand.utils.errors import InputError, RunError
from run_cli import evenhand, small_log, write_log

SPLIT = small_log().split(test=0.2, validation=0.15)
OBJECTIVES = [name for name, method in METHODS.items() if method.objective is not BPR]
PATHS: dict[str, tuple[Encoder, str, str]] = {
    "numba": (MF(dim=4), "auc-ns:alpha=auto", "auto"),
    "torch": (MF(dim=4), "auc-ns:alpha=auto", "torch"),
    "lightgcn": (LightGCN(dim=4), "rns", "auto"),
    **{name: (MF(dim=4), name, "auto") for name in OBJECTIVES},
}
paths = pytest.mark.parametrize("path", PATHS)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And a checkpoint at the end of every epoch, whatever it costs."""
    monkeypatch.setattr(run, "Checkpoints", partial(Checkpoints, share=0))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def fit(path: str, folder: Path | None = None, **changes: Any) -> Fit:
    encoder, method, engine = PATHS[path]
    settings = Settings(**{"epochs": 4, "batch": 64, "patience": None, "engine": engine} | changes)
    one = parse(method)
    return train(
        SPLIT, encoder, one.sampler, 2, settings,
        objective=one.objective, device="cpu", ks=(5,), checkpoints=folder, resume=True,
    )  # fmt: skip


def poisoned(monkeypatch: pytest.MonkeyPatch, epoch: int, step: int, what: str) -> None:
    """From this step on, the loss or the vectors of the second replica are no numbers."""
    for engine in (TorchEngine, NumbaEngine, RowsEngine):

        def run(self: Engine, plan: Plan, first: int, last: int, work: Any = engine.run) -> torch.Tensor:
            tally = work(self, plan, first, last)
            if plan.epoch == epoch and first <= step < last:
                if what == "loss":
                    tally[0, 1] = torch.inf
                else:
                    with torch.no_grad():
                        self.trainer.model.raw()[1][1, 3] = torch.nan
            return tally

        def start(self: Engine, loop: Any, work: Any = engine.__init__) -> None:
            work(self, loop)
            self.stride = 1

        monkeypatch.setattr(engine, "run", run)
        monkeypatch.setattr(engine, "__init__", start)


def saved(folder: Path) -> list[tuple[int, bool]]:
    """Of every checkpoint, oldest first: how many epochs it holds, and whether all its numbers are such."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        history = re.findall(rb'\\"epoch\\": (\d+)', path.read_bytes()[:100_000])
        tables = [tensor for name, tensor in tensors.items() if name.startswith(("model.", "loss.", "adam."))]
        found.append((len(history), all(bool(tensor.isfinite().all()) for tensor in tables)))
    return found


@paths
@pytest.mark.parametrize("what", ["loss", "vectors"])
def test_a_run_that_diverges_stops_and_keeps_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, what: str
) -> None:
    steps = -(-len(SPLIT.train) // 64)
    poisoned(monkeypatch, epoch=2, step=steps - 1, what=what)
    with pytest.raises(RunError) as stopped:
        fit(path, tmp_path)
    assert re.fullmatch(
        rf"the {what} became (inf|nan) in epoch 3; lower --lr, as 0\.\d+ is probably too high; "
        r"the last good checkpoint, after epoch 2, is kept: start over with --force\.",
        str(stopped.value),
    )
    assert saved(tmp_path) == [(1, True), (2, True)]


@pytest.mark.parametrize("path", ["numba", "torch", "lightgcn"])
def test_no_checkpoint_within_an_epoch_holds_what_has_run_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(checkpoint, "LONG_EPOCH", 0)
    poisoned(monkeypatch, epoch=1, step=2, what="vectors")
    with pytest.raises(RunError, match="the vectors became nan in epoch 2"):
        fit(path, tmp_path)
    assert saved(tmp_path) == [(1, True), (1, True)]


TOO_HIGH = r"the (loss|vectors) became (inf|nan) in epoch 1; lower --lr, as 1e\+30 is probably too high\."


@pytest.mark.parametrize("path", ["numba", "torch", "lightgcn"])
def test_a_learning_rate_that_is_far_too_high(tmp_path: Path, path: str) -> None:
    with pytest.raises(RunError, match=TOO_HIGH + "$"):
        fit(path, tmp_path, lr=1e30)
    assert saved(tmp_path) == []


def test_a_loss_that_is_a_number_and_yet_no_good_is_reported() -> None:
    """It is no reason to stop: lists depend on the order of scores, and validation chooses among epochs."""
    (note,) = (note for note in fit("numba", lr=1e6).notes if "loss" in note)
    assert re.fullmatch(
        r"The loss ended at \d(\.\d)?e\+1\d, where guessing has 0\.69; "
        r"lower --lr, as 1e\+06 is probably too high\.",
        note,
    )
    assert not any("loss" in note for path in ("numba", "bc-loss") for note in fit(path).notes)


def test_going_on_with_another_rate_is_refused_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        poisoned(patch, epoch=2, step=0, what="loss")
        with pytest.raises(RunError, match="start over with --force"):
            fit("numba", tmp_path)
    with pytest.raises(InputError, match=r"differs in settings lr; .* start over with --force\.$"):
        fit("numba", tmp_path, lr=0.004)
    assert len(fit("numba", tmp_path).history) == 4  # what was kept is good: without the fault it goes on


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    options = ("--epochs", 2, "--seeds", 1, "--dim", 4, "--device", "cpu", "--out", tmp_path / "model")
    ended = evenhand("train", log, "--lr", "1e30", *options)
    assert ended.code == 1
    assert re.fullmatch(rf"evenhand: {TOO_HIGH}\n", ended.err)
    assert not (tmp_path / "model").exists()
    assert evenhand("train", log, *options).code == 0


# Memory


def no_memory() -> None:
    raise MemoryError


def no_gpu_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def no_memory_of_torch() -> None:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")


SHORTAGES = [no_memory, no_gpu_memory, no_memory_of_torch]


def scores(most: int, fails: Callable[[], None]) -> tuple[topk.Score, list[int]]:
    """For 50 users and 30 items, failing for more at once than fit; and how many users it was asked for."""
    table = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    asked: list[int] = []

    def score(users: np.ndarray) -> torch.Tensor:
        asked.append(len(users))
        if len(users) > most:
            fails()
        return table[torch.from_numpy(users)].clone()

    return score, asked


@pytest.mark.parametrize("fails", SHORTAGES)
def test_lists_are_made_in_smaller_chunks_where_memory_is_short(fails: Callable[[], None]) -> None:
    users = np.arange(50)
    whole = top_by(scores(50, fails)[0], 30, users, 5)
    for most in (30, 7, 1):
        score, asked = scores(most, fails)
        found = top_by(score, 30, users, 5)
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found, whole, strict=True))
        shrunk = [size for size in asked if size <= most]
        assert sum(shrunk) == 50
        assert max(shrunk) > most // 2 - 1  # no smaller than it must be
    with pytest.raises((MemoryError, RuntimeError)):
        top_by(scores(0, fails)[0], 30, users, 5)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    def broken() -> None:
        raise RuntimeError("expected m1 and m2 to have the same dtype")

    score, asked = scores(3, broken)
    with pytest.raises(RuntimeError, match="same dtype"):
        top_by(score, 30, np.arange(50), 5)
    assert len(asked) == 1


def test_users_are_evaluated_in_halves_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    users = np.flatnonzero(SPLIT.test.activity > 0)
    top = np.argsort(np.random.default_rng(0).random((len(users), SPLIT.n_items)))[:, :10]
    hot = np.arange(SPLIT.n_items) < 12
    whole = score_lists(top, users, SPLIT.test, hot, (5, 10), consumed=SPLIT.train)
    contains, sizes = Interactions.contains, []

    def limited(self: Interactions, of: np.ndarray, items: np.ndarray) -> np.ndarray:
        if np.ndim(items) == 2:
            sizes.append(len(items))
            if len(items) > 9:
                no_memory()
        return contains(self, of, items)

    monkeypatch.setattr(Interactions, "contains", limited)
    found = score_lists(top, users, SPLIT.test, hot, (5, 10), consumed=SPLIT.train)
    for k in (5, 10):
        assert found[k].users.tolist() == whole[k].users.tolist()
        monkeypatch.setattr(Interactions, "contains", limited)
        means = found[k].means()
        assert 1 < min(sizes) <= 9
        monkeypatch.setattr(Interactions, "contains", contains)
        np.testing.assert_equal(means, whole[k].means())


@pytest.mark.parametrize("fails", [no_memory, no_gpu_memory])
def test_a_training_goes_on_when_evaluating_runs_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[], None]
) -> None:
    whole, product, refused = fit("numba"), Products.__call__, []

    def limited(self: Products, users: np.ndarray, out: torch.Tensor | None = None) -> torch.Tensor:
        if len(users) > 11:
            refused.append(len(users))
            fails()
        return product(self, users, out)

    monkeypatch.setattr(Products, "__call__", limited)
    found = fit("numba")
    assert refused
    assert torch.equal(found.model.user_vectors, whole.model.user_vectors)
    for k, results in found.results.items():
        for mine, theirs in zip(results, whole.results[k], strict=True):
            np.testing.assert_allclose(list(mine.metrics.values()), list(theirs.metrics.values()))


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")], ids=repr
)
def test_a_lack_of_memory_anywhere_is_one_line(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr("evenhand.data.reading.read.read_interactions", read)
    ended = evenhand("data", "describe", write_log(small_log(), tmp_path / "log.csv"))
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert ended.err.startswith("evenhand: there is not enough memory for this")
