"""`evenhand train` over several processes: one model, whatever their number, through kills, damage and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.utils.world import World
from ranks import on_ranks
from run_cli import evenhand

ASKED = (
    "--method",
    "auc-ns:ecdf=16",
    "--epochs",
    "3",
    "--seeds",
    "2",
    "--dim",
    "8",
    "--batch",
    "512",
    "--updates",
    "sparse",
)


def command(world: World, *arguments: str) -> tuple[int, str, str]:
    ended = evenhand(*arguments)
    return ended.code, ended.out, ended.err


def trained(size: int, log: Path, out: Path, *more: str) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = on_ranks(size, command, "train", str(log), "--out", str(out), *ASKED, *more)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("log") / "log.parquet"
    write_table(simulate_log(300, 200, 4000, seed=3).to_table(), place)
    return place


def vectors(folder: Path) -> list[np.ndarray]:
    model: Any = eh.load(folder)
    return [side.numpy() for side in model.vectors]


def test_the_model_and_its_numbers_do_not_depend_on_how_many_trained_it(log: Path, tmp_path: Path) -> None:
    ended = {size: trained(size, log, tmp_path / str(size), "--json") for size in (1, 2, 3)}
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
