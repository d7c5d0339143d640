"""Runs on record: what MLflow has afterwards, in a store of files, and what happens where it has nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from evenhand.experiments.output import EXPERIMENT, tracking
from evenhand.utils.errors import InputError
from run_cli import TINY, evenhand, small_log, write_log


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow's client for an empty folder of runs."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (pip install mlflow-skinny)")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for a word before they write files
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    mlflow.set_tracking_uri(None)
    return mlflow.MlflowClient()


def runs(store: Any) -> dict[str, Any]:
    """By name; all of them in the one experiment."""
    experiment = store.get_experiment_by_name(EXPERIMENT)
    return {run.info.run_name: run for run in store.search_runs([experiment.experiment_id])}


def test_a_training_has_its_parameters_epochs_results_and_files(store: Any, tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    out = tmp_path / "model"
    ended = evenhand("train", log, "--method", "rns", *TINY, "--out", out, "--track", "mlflow", "--json")
    assert ended.code == 0, ended.err
    ((name, run),) = runs(store).items()
    assert (name, run.info.status) == ("train rns", "FINISHED")
    assert run.data.params["settings.epochs"] == "2"
    assert run.data.params["encoder.dim"] == "8"
    row = next(row for row in ended.document["rows"] if row["k"] == 10)
    assert run.data.metrics["ndcg_at_10"] == pytest.approx(row["metrics"]["ndcg"]["mean"])
    assert run.data.metrics["ndcg_at_10_std"] == pytest.approx(row["metrics"]["ndcg"]["std"])
    steps = store.get_metric_history(run.info.run_id, "validation/ndcg_at_10")
    assert sorted(one.step for one in steps) == [1, 2]
    assert len(store.get_metric_history(run.info.run_id, "loss")) == 2
    names = {file.path for file in store.list_artifacts(run.info.run_id)}
    assert names == {path.name for path in out.iterdir()}


def test_a_comparison_has_a_run_for_every_method(store: Any, tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    ended = evenhand(
        "compare", log, "--methods", "popular,dns:candidates=2", *TINY, "--k", "5", "--track", "mlflow", "--json"
    )
    assert ended.code == 0, ended.err
    found = runs(store)
    assert found.keys() == {f"compare {log}", "popular", "dns:candidates=2"}
    whole, one = found[f"compare {log}"], found["dns:candidates=2"]
    assert one.data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert one.data.params["sampler.candidates"] == "2"
    means = {row["name"]: row["metrics"]["recall"]["mean"] for row in ended.document["rows"]}
    for label, mean in means.items():
        assert found[label].data.metrics["recall_at_5"] == pytest.approx(mean)


def test_a_search_has_a_run_for_every_trial(store: Any, tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    given = ("--method", "ease", "--trials", "3", "--out", tmp_path / "search", "--track", "mlflow", "--json")
    ended = evenhand("tune", log, *given)
    assert ended.code == 0, ended.err
    found = runs(store)
    assert found.keys() == {"tune ease", "trial 1", "trial 2", "trial 3"}
    best = max(found[f"trial {n}"].data.metrics["ndcg_at_10"] for n in (1, 2, 3))
    assert found["tune ease"].data.metrics["ndcg_at_10"] == pytest.approx(best)
    assert "l2" in found["trial 2"].data.params
    assert "best.json" in {file.path for file in store.list_artifacts(found["tune ease"].info.run_id)}


def test_a_run_that_fails_is_on_record_as_failed(store: Any) -> None:
    with pytest.raises(ValueError, match="by hand"), tracking("mlflow", "a run"):
        raise ValueError("by hand")
    assert runs(store)["a run"].info.status == "FAILED"


def test_what_cannot_be_recorded_costs_the_record_alone(
    store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracking("mlflow", "a run") as record:
        record(lambda run: run.files(tmp_path / "nowhere"))
    assert "note: mlflow has not recorded all of it" in capsys.readouterr().err


def test_before_any_work_one_sentence_says_what_is_missing(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    with patch("evenhand.experiments.output.find_spec", lambda _: None):
        ended = evenhand("train", log, "--method", "popular", "--out", tmp_path / "model", "--track", "mlflow")
    assert ended.code == 2
    assert "pip install 'evenhand[mlflow]'" in ended.err
    assert not (tmp_path / "model").exists()
    with pytest.raises(InputError, match="unknown tracker 'mlfow'; did you mean 'mlflow'"), tracking("mlfow", "a run"):
        pass


def test_a_store_that_cannot_be_reached_is_said_before_any_work(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "file" / "runs").as_uri())
    with pytest.raises(InputError, match="mlflow cannot record the run"), tracking("mlflow", "a run"):
        pytest.fail("the work has begun")
