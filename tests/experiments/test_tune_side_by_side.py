"""Trials that train side by side: each has the value that it has alone, and an interruption loses none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evenhand.data.splits import Split
from evenhand.encoders import MF
from evenhand.experiments.search_result import Verdict
from evenhand.experiments.search_space import Choice
from evenhand.experiments.study import Study
from evenhand.experiments.tune import ON_GPU, TrialEvaluator, TuneResult, group_size, together, tune
from evenhand.methods import parse
from evenhand.samplers import AUCSampler, UniformSampler
from evenhand.training import Settings, train, trained
from evenhand.training.method import Conditions, Method
from evenhand.training.trained import Trained
from evenhand.utils.errors import InputError, StoppedError
from run_cli import evenhand, small_log, write_log

SETTINGS = Settings(epochs=4, batch=256, patience=1)
CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def split() -> Split:
    return small_log().split(test=0.2, validation=0.1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Method]]:
    """The setups of every run that was trained."""
    made: list[list[Method]] = []
    tested = TrialEvaluator.evaluated

    def values(evaluator: TrialEvaluator, setups: Sequence[Method]) -> list[Verdict]:
        made.append(list(setups))
        return tested(evaluator, setups)

    monkeypatch.setattr(TrialEvaluator, "evaluated", values)
    return made


@pytest.fixture
def hill(monkeypatch: pytest.MonkeyPatch) -> list[list[Method]]:
    """Runs that cost nothing; best where lr is 0.01, and better with more candidates."""
    made: list[list[Method]] = []

    def values(evaluator: TrialEvaluator, setups: Sequence[Method]) -> list[Verdict]:
        made.append(list(setups))
        points = [setup.parameters() for setup in setups]
        heights = [np.exp(-((np.log10(p["lr"]) + 2) ** 2)) + 0.01 * p["candidates"] for p in points]
        return [Verdict((float(height),)) for height in heights]

    monkeypatch.setattr(TrialEvaluator, "evaluated", values)
    return made


def trials_of(result: TuneResult) -> list[tuple[dict[str, Any], float]]:
    return [(dict(trial.parameters), trial.value) for trial in result.trials]


def sizes(runs: list[list[Method]]) -> list[int]:
    return [len(run) for run in runs]


# replicas with parameters of their own


def test_a_replica_with_its_own_settings_and_sampler_learns_what_it_learns_alone(split: Split) -> None:
    samplers = [AUCSampler(alpha=0.6), AUCSampler(alpha=0.6), AUCSampler(alpha=0.9, beta=0.2)]
    settings = [replace(SETTINGS, lr=lr, weight_decay=w) for lr, w in ((0.01, 0), (0.03, 1e-3), (0.002, 1e-5))]
    seeds = [0, 1, 0]
    beside = train(split, MF(), samplers, seeds, settings)
    for r in range(3):
        alone = train(split, MF(), samplers[r], [seeds[r]], settings[r])
        assert (alone.validation, alone.epochs) == (
            (beside.validation or ())[r : r + 1],
            beside.epochs[r : r + 1],
        )
        for mine, others in zip(alone.vectors, beside.vectors, strict=True):
            assert torch.equal(mine[0], others[r])
    best = beside.model.best
    assert beside.model.info["settings"]["lr"] == settings[best].lr
    assert [one["sampler"]["alpha"] for one in beside.model.info["replicas"]] == [0.6, 0.6, 0.9]
    assert [one["settings"]["lr"] for one in beside.model.info["replicas"]] == [0.01, 0.03, 0.002]
    assert "replicas" not in alone.model.info


def test_settings_that_do_not_go_together_are_refused(split: Split) -> None:
    lists: list[tuple[list[int], Any, str]] = [
        ([0, 1], [SETTINGS], "2 seeds need as many settings, but 1 were given"),
        ([0, 1], [SETTINGS, replace(SETTINGS, batch=128)], "may differ in lr, weight_decay and l2 only"),
        ([0, 0], SETTINGS, "all different"),
        ([0, 0], None, "all different"),
    ]
    for seeds, settings, sentence in lists:
        with pytest.raises(InputError, match=sentence):
            train(split, MF(), UniformSampler(), seeds, settings)


def test_a_checkpoint_of_other_settings_is_not_resumed(split: Split, tmp_path: Path) -> None:
    settings = [SETTINGS, replace(SETTINGS, lr=0.05)]
    train(split, MF(), UniformSampler(), [0, 0], settings, checkpoints=tmp_path)
    again = train(split, MF(), UniformSampler(), [0, 0], settings, checkpoints=tmp_path, resume=True)
    assert len(again.history) > 1
    with pytest.raises(InputError, match="settings"):
        train(split, MF(), UniformSampler(), [0, 0], settings[::-1], checkpoints=tmp_path, resume=True)


# which trials make a run


def test_setups_that_agree_in_shape_are_put_together() -> None:
    def dns(**values: Any) -> Method:
        return parse("dns").having(values)

    setups = [
        dns(candidates=2),
        dns(candidates=3),
        dns(candidates=2, lr=0.1),
        dns(candidates=3, weight_decay=0.0),
    ]
    assert together(setups, 8) == [[0, 2], [1, 3]]
    assert together([dns(lr=0.1 * n) for n in (1, 2, 3, 4, 5)], 2) == [[0, 1], [2, 3], [4]]
    assert together([dns(), dns(dim=8), dns(batch=7)], 8) == [[0], [1], [2]]
    for method, name in (("pns", "exponent"), ("macr", "item_weight"), ("ease", "l2")):
        assert together([parse(method).having({name: v}) for v in (0.1, 0.2)], 8) == [[0], [1]]
    assert together([parse("ease")] * 2, 8) == [[0], [1]]
    for name in ("alpha", "beta", "gamma"):
        assert together([parse("auc-ns").having({name: v}) for v in (0.5, 0.6)], 8) == [[0, 1]]


def test_how_many_at_once() -> None:
    honest, paper = parse("rns"), parse("rns", settings=Settings().under("paper"))
    assert [group_size("auto", honest, device) for device in (CPU, GPU)] == [1, 1]
    assert [group_size("auto", paper, device) for device in (CPU, GPU)] == [1, ON_GPU]
    assert group_size("auto", parse("ease"), GPU) == 1
    assert group_size(5, honest, CPU) == 5
    for wrong in (0, -1, "many", 1.5, True):
        with pytest.raises(InputError, match="from 1 on or 'auto'"):
            group_size(wrong, honest, CPU)  # type: ignore[arg-type]


def test_memory_bounds_a_run_but_not_the_search(
    split: Split, hill: list[list[Method]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = tune(split, "dns:candidates=3", trials=9, side_by_side=4, seeds=2)
    assert sizes(hill) == [4, 4, 1]
    monkeypatch.setattr(Trained, "room_for", lambda *given: 5)
    hill.clear()
    assert trials_of(tune(split, "dns:candidates=3", trials=9, side_by_side=4, seeds=2)) == trials_of(wide)
    assert sizes(hill) == [2, 2, 2, 2, 1]


def test_larger_replicas_leave_room_for_fewer(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = Conditions.of(split, device="cpu")
    monkeypatch.setattr(trained, "available_bytes", lambda device: 2**27)
    small, large = (parse("rns").having({"dim": dim, "batch": 64}) for dim in (16, 64))
    assert small.room_for(conditions) > 2 * large.room_for(conditions) > 0
    monkeypatch.setattr(trained, "available_bytes", lambda device: 0)
    assert small.room_for(conditions) == 1


# the values


@pytest.mark.parametrize("method", ["rns", "auc-ns:candidates=3", "dns"])
def test_a_trial_beside_others_has_the_value_it_has_alone(split: Split, runs: list[list[Method]], method: str) -> None:
    def search(at_once: int) -> TuneResult:
        return tune(split, method, trials=8, seeds=2, settings=SETTINGS, side_by_side=at_once)

    alone = search(1)
    assert sizes(runs) == [1] * 8
    runs.clear()
    # The first group is drawn at random, and so are ten points that are asked for one at a time.
    assert trials_of(search(8)) == trials_of(alone)
    assert max(sizes(runs)) > 1
    assert sum(sizes(runs)) == 8


def test_another_metric_is_that_of_each_trial(split: Split) -> None:
    one, three = (
        tune(split, "rns", trials=3, seeds=2, settings=SETTINGS, metric="recall@7", side_by_side=n) for n in (1, 3)
    )
    assert trials_of(one) == trials_of(three)
    assert len({value for _, value in trials_of(one)}) > 1


def test_one_that_cannot_be_trained_takes_nobody_along(split: Split, runs: list[list[Method]]) -> None:
    def search(at_once: int) -> TuneResult:
        ranges = {"lr": Choice((0.01, 1e30))}
        return tune(split, "rns", trials=6, settings=SETTINGS, ranges=ranges, seed=3, side_by_side=at_once)

    alone = search(1)
    bad = [trial for trial in alone.trials if trial.problem]
    assert 0 < len(bad) < 6
    runs.clear()
    beside = search(6)
    assert trials_of(beside) == trials_of(alone)
    assert [trial.problem for trial in beside.trials] == [trial.problem for trial in alone.trials]
    assert sizes(runs)[0] == 6


# the search


def test_points_of_a_group_differ_and_a_search_in_groups_finds_the_hill(split: Split, hill: list[list[Method]]) -> None:
    result = tune(split, "dns:candidates=5", trials=48, side_by_side=8)
    assert len({tuple(point.values()) for point, _ in trials_of(result)}) == 48
    assert abs(np.log10(result.parameters["lr"]) + 2) < 0.1
    assert sizes(hill) == [8] * 6
    assert result.trials[0].parameters["lr"] == MF.lr


def stopped(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int) -> Callable[[], None]:
    """Interrupt the call of a method after so many; returns what undoes it."""
    before, calls = getattr(owner, name), []

    def call(*given: Any) -> Any:
        calls.append(given)
        if len(calls) > after:
            raise KeyboardInterrupt
        return before(*given)

    monkeypatch.setattr(owner, name, call)
    return lambda: monkeypatch.setattr(owner, name, before)


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        *((TrialEvaluator, "evaluated", after) for after in (0, 1, 20)),
        *((Study, "_ask", after) for after in (0, 2, 35)),
        *((Study, "tell", after) for after in (0, 3, 35)),
    ],
)
def test_an_interrupted_search_in_groups_ends_like_one_that_was_not(
    split: Split, tmp_path: Path, hill: list[list[Method]], monkeypatch: pytest.MonkeyPatch,
    owner: type, name: str, after: int,
) -> None:  # fmt: skip
    def search(storage: Path | None = None) -> TuneResult:
        return tune(split, "dns", trials=42, side_by_side=4, storage=storage)

    whole = trials_of(search())
    assert any(size > 1 for size in sizes(hill))
    hill.clear()
    again = stopped(monkeypatch, owner, name, after)
    with pytest.raises(StoppedError, match=r"of 42 trials; run the same command again"):
        search(tmp_path / "trials.log")
    again()
    assert trials_of(search(tmp_path / "trials.log")) == whole
    # Only what a run had found but not yet told is trained twice.
    assert sum(sizes(hill)) <= 42 + 4


def test_what_a_group_has_finished_is_not_trained_again(
    split: Split, tmp_path: Path, hill: list[list[Method]], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = stopped(monkeypatch, TrialEvaluator, "evaluated", 1)
    with pytest.raises(StoppedError, match=r"stopped after \d of 8 trials"):
        tune(split, "dns", trials=8, side_by_side=8, storage=tmp_path / "trials.log")
    again()
    tune(split, "dns", trials=8, side_by_side=8, storage=tmp_path / "trials.log")
    tried = [tuple(setup.parameters().values()) for run in hill for setup in run]
    assert len(tried) == len(set(tried)) == 8


def test_a_database_asks_for_the_interrupted_points_again(
    split: Split, tmp_path: Path, hill: list[list[Method]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    again = stopped(monkeypatch, TrialEvaluator, "evaluated", 1)
    with pytest.raises(StoppedError):
        tune(split, "dns", trials=6, side_by_side=6, storage=url)
    again()
    points = [point for point, _ in trials_of(tune(split, "dns", trials=6, side_by_side=6, storage=url))]
    whole = [point for point, _ in trials_of(tune(split, "dns", trials=6, side_by_side=6))]
    assert sorted(map(repr, points)) == sorted(map(repr, whole))
    assert points[0] == whole[0]


def test_a_search_may_go_on_with_another_number_at_once(split: Split, tmp_path: Path, hill: list[list[Method]]) -> None:
    first = trials_of(tune(split, "dns", trials=5, side_by_side=4, storage=tmp_path / "trials.log"))
    second = trials_of(tune(split, "dns", trials=9, side_by_side=1, storage=tmp_path / "trials.log"))
    assert second[:5] == first
    assert len(second) == 9


def test_the_command_line_trains_side_by_side(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    command = ("tune", log, "--method", "rns", "--epochs", 2, "--dim", 8, "--batch", 256)
    values = []
    for number in (1, 4):
        out = tmp_path / str(number)
        assert evenhand(*command, "--trials", 4, "--out", out, "--side-by-side", number).code == 0
        values.append(json.loads((out / "best.json").read_text())["value"])
    assert values[0] == values[1]
    once = evenhand(*command, "--trials", 1, "--out", tmp_path / "once")
    assert "Best of 1 trial on validation" in once.out
