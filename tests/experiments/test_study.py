"""Trials that somebody else wrote, or that were changed: refused in one sentence, before any training."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenhand.data.splits import Split
from evenhand.experiments.search_result import parse_goals
from evenhand.experiments.search_space import Range
from evenhand.experiments.tune import TuneResult, tune
from evenhand.utils.errors import InputError
from run_cli import evenhand, small_log, write_log

RANGES = {"neighbours": Range(1, 5, integer=True), "shrink": Range(1, 9)}
FINISHED, PARAMETER, NOTE, IDENTITY = 6, 5, 8, 2
"""Optuna's codes for lines of a journal."""
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def split() -> Split:
    return small_log().split(test=0.2, validation=0.1)


def search(split: Split, journal: Path, trials: int = 3) -> TuneResult:
    return tune(split, "itemknn", trials=trials, metric="ndcg@5", ranges=RANGES, storage=journal)


def changed(code: int, **values: Any) -> Callable[[Lines], None]:
    """The last line of this kind says something else."""
    return lambda lines: next(line for line in reversed(lines) if line["op_code"] == code).update(values)


def without(code: int) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        lines[:] = [line for line in lines if line["op_code"] != code]

    return change


@pytest.mark.parametrize(
    "change",
    [
        changed(FINISHED, values=[{"a": 1}]),
        changed(FINISHED, values=[0.5, 0.5]),
        changed(FINISHED, values=[float("inf")]),
        changed(PARAMETER, param_name="other"),
        changed(PARAMETER, param_value_internal=float("nan")),
        changed(PARAMETER, distribution="{}"),
        changed(NOTE, user_attr={"seconds": [1]}),
        changed(NOTE, user_attr={"margins": 3}),
        changed(NOTE, user_attr={"margins": ["a"]}),
        changed(NOTE, user_attr={"problem": {"a": 1}}),
        changed(IDENTITY, user_attr={"identity": 7}),
        changed(IDENTITY, user_attr={"identity": ["data"]}),
        without(IDENTITY),
    ],
)
def test_trials_that_evenhand_cannot_have_written_are_refused(
    change: Callable[[Lines], None], split: Split, tmp_path: Path
) -> None:
    journal = tmp_path / "trials.log"
    search(split, journal, trials=2)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    change(lines)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = journal.read_bytes()
    with pytest.raises(InputError) as refused:
        search(split, journal)
    assert "trials.log" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert journal.read_bytes().startswith(before)  # Optuna notes down that somebody was here


@pytest.mark.parametrize("cell", ["trials SET state", "trial_values SET value_type"])
def test_a_database_with_other_values_is_refused_when_it_is_opened(cell: str, split: Split, tmp_path: Path) -> None:
    place = tmp_path / "trials.db"
    url = f"sqlite:///{place}"
    tune(split, "itemknn", trials=2, metric="ndcg@5", ranges=RANGES, storage=url)
    with contextlib.closing(sqlite3.connect(place)) as database:
        database.execute(f"UPDATE {cell} = '<script>'")
        database.commit()
    with pytest.raises(InputError, match="the trials cannot be kept in sqlite"):
        tune(split, "itemknn", trials=3, metric="ndcg@5", ranges=RANGES, storage=url)


def test_a_point_to_be_tried_that_lies_elsewhere_is_refused(split: Split, tmp_path: Path) -> None:
    journal = tmp_path / "trials.log"
    search(split, journal, trials=1)
    waiting = {"op_code": 4, "worker_id": "x", "study_id": 0, "state": 4, "values": None, "params": {}}
    waiting |= {"value": None, "distributions": {}, "user_attrs": {}, "intermediate_values": {}}
    waiting |= {"datetime_start": None, "system_attrs": {"fixed_params": {"neighbours": 10**6, "shrink": 2}}}
    with journal.open("a") as file:
        file.write(json.dumps(waiting) + "\n")
    with pytest.raises(InputError, match=r"neighbours lies outside of 1\.\.5"):
        search(split, journal)


def test_the_command_refuses_a_file_that_is_no_journal(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    folder = tmp_path / "search"
    folder.mkdir()
    (folder / "trials.log").write_bytes(b'[1]\n"\x00\xff\n')
    ended = evenhand("tune", log, "--method", "itemknn", "--trials", 1, "--out", folder)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "trials.log" in ended.err
    assert [path.name for path in folder.iterdir()] == ["trials.log"]


@pytest.mark.parametrize("k", ["1000000000", "9" * 5000, "0", "\u0663\u0663" * 9])
def test_a_metric_at_any_length_is_refused(k: str) -> None:
    with pytest.raises(InputError, match=r"up to 10,000|name@k"):
        parse_goals(f"ndcg@{k}")
