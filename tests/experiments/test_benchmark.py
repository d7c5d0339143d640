"""The benchmark: cells are run once and kept, whatever happens to one of them; published numbers have sources."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from evenhand.data.datasets.known import DATASETS
from evenhand.data.splits import Split
from evenhand.experiments import benchmark
from evenhand.experiments.benchmark import Cell, cells_of, method_named, run_benchmark, scoreboard
from evenhand.experiments.results import Results, Run
from evenhand.experiments.suite import QUESTIONS, Suite, Test, dataset_tests, known_suite, own_tests
from evenhand.utils.errors import InputError, StoppedError
from made_scoreboard import made_scoreboard
from run_cli import evenhand, small_log, write_log

SCHEMA = json.loads(Path(benchmark.__file__).with_name("scoreboard.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_log(small_log(), tmp_path_factory.mktemp("log") / "mine.csv"))


def cells(log: str, *methods: str, tests: tuple[str, ...] = ("iid", "shift"), trials: int = 0) -> list[Cell]:
    return cells_of(own_tests(log, tests, {}), methods, 1, trials, "cpu", None)


def run(cells: list[Cell], folder: Path, **options: Any) -> tuple[int, dict[str, str]]:
    return run_benchmark(cells, folder, isolated=False, **options)


# ---- what is known


def test_every_published_number_has_a_source_and_says_where_it_was_chosen() -> None:
    suite = known_suite()
    assert {one.chosen_on for one in suite.sources.values()} == {"validation", "test", "unknown"}
    assert suite.sources["bsl"].chosen_on == "test"
    cited = set()
    for test in suite.tests:
        assert len({row.method for row in test.published}) == len(test.published), test.key
        for row in test.published:
            cited.add(row.source)
            assert all(value is None or 0 < value < 1 for value in (row.recall, row.ndcg)), row
            assert row.recall is not None
    assert cited == set(suite.sources)
    assert all(one.title and one.url for one in suite.sources.values())


def test_the_tests_of_the_suite_are_of_known_kinds_and_data() -> None:
    tests = known_suite().tests
    assert len({test.key for test in tests}) == len(tests)
    for test in tests:
        assert test.test in QUESTIONS
        assert (test.dataset in DATASETS) or (test.folder and len(test.files) == 2)
    assert {test.test for test in known_suite().named(["amazon-electronic"])} == {"iid", "shift", "time"}
    assert [test.key for test in known_suite().named(["coat"])] == [("Coat", "exposure")]


def test_means_over_all_users_are_turned_into_means_over_users_who_have_tests(tmp_path: Path) -> None:
    board = scoreboard(Results(tmp_path), known_suite())
    (shift,) = [one for one in board["tests"] if (one["set"], one["test"]) == ("Amazon-Electronic", "shift")]
    row = next(one for one in shift["published"] if one["method"] == "MF, PSL-relu")
    assert row["printed"] == {"recall": 0.0241, "ndcg": 0.0149}
    assert (row["recall"], row["ndcg"], row["chosen_on"]) == (0.0257, 0.0159, "test")


def test_the_published_splits_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "gowalla").mkdir()
    for part, lines in (("train", ["0 1 2 3 4", "1 2 3 5 6", "2 1 4 5 6"]), ("test", ["0 5", "1 1", "2 3"])):
        (tmp_path / "gowalla" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    (test,) = known_suite().named(["gowalla"], ["iid"])
    assert test.missing(str(tmp_path)) is None
    split = test.split(str(tmp_path))
    assert (len(split.consumed), len(split.test), split.validation_how) == (12, 3, "random")
    (absent,) = known_suite().named(["amazon-book"])
    assert "amazon-book/train.txt" in str(absent.missing(str(tmp_path)))


def test_a_known_set_outside_the_suite_has_the_tests_of_its_parts() -> None:
    assert [one.test for one in dataset_tests("demo", None, None)] == ["exposure", "iid", "shift"]
    with pytest.raises(InputError, match="unknown test of demo 'given'"):
        dataset_tests("demo", ("given",), None)


def test_the_encoder_may_stand_before_the_method() -> None:
    assert (method_named("lightgcn/dns").encoder_name, method_named("lightgcn/dns").label) == ("lightgcn", "dns")
    assert method_named("softmax").encoder_name == "mf"
    with pytest.raises(InputError, match="ease is not trained"):
        method_named("lightgcn/ease")


# ---- cells are kept


def test_finished_cells_are_not_run_again_and_others_join_them(log: str, tmp_path: Path) -> None:
    lines: list[str] = []
    asked = cells(log, "popular", "itemknn")
    assert run(asked, tmp_path, on_cell=lines.append) == (4, {})
    assert lines[0] == "4 cells, 0 of them finished before"
    before = Results(tmp_path).runs
    assert run(asked, tmp_path) == (0, {})
    assert run(cells(log, "ease"), tmp_path) == (2, {})
    after = Results(tmp_path).runs
    assert {run_id: after[run_id].measured for run_id in before} == {i: one.measured for i, one in before.items()}
    assert len(after) == 6
    # More trials are another question to what is searched, and none to what has nothing to search.
    assert run(cells(log, "popular", "itemknn", trials=2), tmp_path) == (2, {})
    assert run(asked[:1], tmp_path, force=True) == (1, {})


def test_another_log_of_the_same_name_is_another_question(log: str, tmp_path: Path) -> None:
    assert run(cells(log, "popular"), tmp_path / "results") == (2, {})
    pairs = small_log()
    other = write_log(pairs.take(pairs.users != 3), tmp_path / "mine.csv")
    assert run(cells(str(other), "popular"), tmp_path / "results") == (2, {})


def test_a_benchmark_that_was_stopped_goes_on(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, begun = benchmark.measure, []

    def stopping(cell: Cell, work: Path | None = None) -> Run:
        begun.append(cell.label)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(cell, work)

    monkeypatch.setattr(benchmark, "measure", stopping)
    asked = cells(log, "popular", "itemknn")
    with pytest.raises(StoppedError, match="1 of 4 cells are finished and kept"):
        run(asked, tmp_path)
    assert run(asked, tmp_path) == (3, {})
    assert begun[1] == begun[2]


def test_a_cell_that_fails_is_marked_and_tried_again(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = benchmark.measure

    def short(cell: Cell, work: Path | None = None) -> Run:
        if cell.method == "popular":
            raise MemoryError
        return real(cell, work)

    asked = cells(log, "popular", "itemknn", tests=("iid",))
    with monkeypatch.context() as patched:
        patched.setattr(benchmark, "measure", short)
        done, failed = run(asked, tmp_path)
    assert (done, list(failed.values())) == (1, ["there is not enough memory for it."])
    (test,) = scoreboard(Results(tmp_path), Suite((), {}))["tests"]
    assert [(row["name"], row["status"]) for row in test["rows"]] == [("itemknn", "measured"), ("popular", "failed")]
    assert run(asked, tmp_path) == (1, {})
    # A failure does not replace what was measured before.
    with monkeypatch.context() as patched:
        patched.setattr(benchmark, "measure", short)
        assert run(asked, tmp_path, force=True)[0] == 1
    assert all(one.measured for one in Results(tmp_path).runs.values())


@dataclass(frozen=True)
class Deadly(Test):
    """Its data ends the process that reads it, as the system does where memory is short."""

    def split(self, data_dir: str | None) -> Split:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def test_a_process_that_is_killed_costs_its_cell_alone(log: str, tmp_path: Path) -> None:
    (test,) = own_tests(log, ("iid",), {})
    deadly = replace(Deadly("deadly", "iid", "random", "random"), content="x")
    asked = cells_of([deadly, test], ["popular"], 1, 0, "cpu", None)
    done, failed = run_benchmark(asked, tmp_path)
    assert done == 1
    assert list(failed) == ["deadly, iid: popular"]
    assert "-9" in failed["deadly, iid: popular"]
    kept = Results(tmp_path).of("scoreboard")["popular"]
    assert kept.dataset == "mine"
    assert kept.details["memory_mb"] > 50


# ---- the document and the command


def test_the_document_fits_its_schema(tmp_path: Path) -> None:
    board = made_scoreboard(tmp_path)
    jsonschema.validate(json.loads(json.dumps(board)), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**board, "k": 10}, SCHEMA)
    (iid,) = [one for one in board["tests"] if (one["set"], one["test"]) == ("Amazon-Electronic", "iid")]
    assert [row["name"] for row in iid["rows"]] == ["ease", "lightgcn/dns", "popular"]
    assert (iid["choice"], iid["best_published"]) == ("ease", "LightGCN, SL@20")


def test_the_command_writes_both_pages_and_a_document(log: str, tmp_path: Path) -> None:
    asked = ("benchmark", log, "--methods", "popular,itemknn", "--tune", "2", "--seeds", "1", "--out", tmp_path / "out")
    ended = evenhand(*asked, "--tests", "iid,time", "--json", "--quiet")
    assert ended.code == 0, ended.err
    assert ended.err == ""
    jsonschema.validate(ended.document, SCHEMA)
    assert [(one["set"], one["test"]) for one in ended.document["tests"]] == [("mine", "iid"), ("mine", "time")]
    page = (tmp_path / "out" / "scoreboard.md").read_text(encoding="utf-8")
    best = ended.document["tests"][0]["rows"][0]["metrics"]["ndcg"]["mean"]
    assert f"{best:.4f}".removeprefix("0") in page
    assert "Scoreboard" in (tmp_path / "out" / "scoreboard.html").read_text(encoding="utf-8")
    again = evenhand(*asked, "--tests", "iid")
    assert again.code == 0, again.err
    assert again.err == "2 cells, 2 of them finished before\n"
    assert [line.split()[:3] for line in again.out.splitlines()[1:3]] == [
        ["mine", "iid", row["name"]] for row in ended.document["tests"][0]["rows"]
    ]
