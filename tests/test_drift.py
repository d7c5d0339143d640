"""Small runs of every method, encoder and baseline give the recorded accuracy and bias: see scripts/drift.py."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from evenhand.encoders import ENCODERS
from evenhand.methods import BASELINES, METHODS
from run_cli import one_thread


def script() -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / "drift.py"
    spec = importlib.util.spec_from_file_location("drift", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drift = script()
RECORDED = drift.recorded()


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_thread():
        yield


@pytest.mark.parametrize("name", drift.names())
def test_accuracy_and_bias_are_as_recorded(name: str) -> None:
    moved = drift.moves(RECORDED[name], drift.measure(name))
    assert not moved, f"{name}: {'; '.join(moved)}. If that is meant, run `make drift` and commit its file."


def test_every_method_encoder_and_baseline_is_recorded() -> None:
    wanted = {f"{method} {encoder}" for method in METHODS for encoder in ENCODERS} | set(BASELINES) - {"recipe"}
    assert set(RECORDED) == wanted


def test_no_run_could_be_taken_for_another() -> None:
    """A method that became another, or an encoder that fell away, would be seen."""
    for one, other in itertools.permutations(RECORDED, 2):
        assert len(drift.moves(RECORDED[one], RECORDED[other])) > 1, (one, other)


def test_a_slower_learning_rate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "SETTINGS", replace(drift.SETTINGS, lr=0.9 * drift.SETTINGS.lr))
    assert drift.moves(RECORDED["rns mf"], drift.measure("rns mf"))


def test_only_what_left_its_tolerance_is_reported() -> None:
    before = dict.fromkeys(drift.TOLERANCE, (0.5, 0.01))
    within = {metric: (0.5 + 0.9 * by, 0.0) for metric, by in drift.TOLERANCE.items()}
    assert drift.moves(before, within) == []
    assert drift.moves(before, within | {"ohr": (0.52, 0.0)}) == [
        "ohr@10 moved from 0.5000 to 0.5200, 2.0 standard deviations of a seed"
    ]
    assert drift.moves(before, within | {"ocr": (float("nan"), 0.0)})
