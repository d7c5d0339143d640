"""benchmarks/contest.py: what one finished method leaves behind, and that it is not done twice."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.experiments.results import Comparison, Results, Run
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.evaluate import UserMetrics
from evenhand.paper.claims import load

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import contest
import contest_blocks
import contest_compare
import contest_cost
import contest_field
import contest_splits


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> eh.Split:
    """A world of a few hundred users in the place of `demo`."""
    split = eh.simulate(200, 150, 4000, seed=3).split
    monkeypatch.setitem(contest_splits.SPLITS, "demo-random", lambda data_dir: split)  # type: ignore[arg-type]
    # A child process would have the real demo.
    monkeypatch.setattr(contest, "ProcessPoolExecutor", _HereAndNow)
    monkeypatch.setattr(contest_cost, "ProcessPoolExecutor", _HereAndNow)
    return split


class _HereAndNow:
    def __init__(self, *how: Any) -> None:
        pass

    def __enter__(self) -> _HereAndNow:
        return self

    def __exit__(self, *problem: Any) -> None:
        pass

    def submit(self, call: Any, *values: Any) -> Any:
        found = call(*values)
        return type("Future", (), {"result": lambda self: found})()


def entered(out: Path, method: str, *more: str) -> Run:
    words = ["demo-random", method, "--out", str(out), "--trials", "3", "--seeds", "2", *more]
    assert contest.main(words) == 0
    return Results(out).runs[f"contest/demo-random/{method}"]


def test_every_name_is_a_file_name_of_its_own() -> None:
    methods = ["mf/auc-ns", "lightgcn/auc-ns", "blend", "blend:parts=ease+als", "mf/dns:candidates=2"]
    names = [contest.safe_name(one) for one in methods]
    assert len(set(names)) == len(names)
    assert not set("".join(names)) & set("/:=+ ")
    assert contest.safe_name("blend:parts=ease+als") == "blend_parts_ease_als"


def test_a_baseline_is_tuned_on_validation_and_evaluated_as_evaluate_would(small: eh.Split, tmp_path: Path) -> None:
    found = entered(tmp_path, "ease")
    search = found.details["search"]
    assert len(search["tried"]) == search["trials"] == 3
    assert search["best_value"] == max(value for value, _ in search["tried"])
    assert search["default_value"] == search["tried"][0][0]
    assert found.summary("validation ndcg@10")["mean"] == pytest.approx(search["best_value"], abs=1e-6)

    l2 = search["best"]["l2"]
    lists = eh.EASE(l2=l2).fit_pairs(small.train).having(known=small.consumed).recommend(k=20)
    evaluated = eh.evaluate(lists, small)
    for k in (5, 10, 20):
        for name in METRICS:
            mean = found.summary(f"{name}@{k}")["mean"]
            if mean is not None:
                assert mean == pytest.approx(evaluated.at(k).metrics[name].mean, abs=2e-6)
        with_test = np.isin(lists["user"].to_numpy(), np.unique(small.test.users))
        shown = lists["item"].to_numpy()[with_test & (lists["rank"].to_numpy() <= k)]
        assert found.measured[f"coverage@{k}"] == [round(len(set(shown)) / small.n_items, 6)]
    assert len(found.measured["ndcg@5"]) == 1


def test_a_trained_method_has_all_seeds_and_holds_what_it_is_reported(small: eh.Split, tmp_path: Path) -> None:
    found = entered(tmp_path, "lightgcn/rns", "--epochs", "2", "--layers", "1", "--dim", "8", "--batch", "64")
    assert found.details["held"] == {"batch": 64, "epochs": 2, "layers": 1, "dim": 8}
    assert set(found.details["search"]["space"]) == {"lr", "l2", "weight_decay"}
    assert len(found.measured["ndcg@5"]) == len(found.measured["epoch"]) == 2
    assert set(found.details["data"]) == {"train", "validation", "test"}
    assert "--layers 1" in found.command
    assert str(tmp_path) not in json.dumps([found.command, found.details])

    users = load(tmp_path / ".work" / "demo-random", "lightgcn/rns")
    assert users is not None
    for seed, one in enumerate(users[10]):
        assert one.mean("ohr") == pytest.approx(found.measured["ohr@10"][seed], abs=1e-6)
    assert (tmp_path / ".work" / ".gitignore").read_text(encoding="utf-8").strip() == "*"


def test_who_has_nothing_to_search_says_so(small: eh.Split, tmp_path: Path) -> None:
    assert entered(tmp_path, "popular").details["search"]["trials"] == 0
    blend = entered(tmp_path, "blend:parts=ease+als")
    assert blend.details["search"]["trials"] == 0
    assert "settles its numbers itself" in blend.details["search"]["why"]


def test_a_finished_method_is_left_alone(small: eh.Split, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entered(tmp_path, "popular")
    path = tmp_path / "runs.parquet"
    before = path.stat().st_mtime_ns
    assert contest.main(["demo-random", "popular", "--out", str(tmp_path), "--seeds", "9"]) == 0
    assert "already" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before
    assert contest.main(["demo-random", "popular", "--out", str(tmp_path), "--seeds", "9", "--again"]) == 0
    assert path.stat().st_mtime_ns != before


@pytest.mark.parametrize("method", ["mf/ease", "rns", "gru/rns", "ease:l2=-1"])
def test_who_cannot_take_part_leaves_nothing(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert contest.main(["demo-random", method, "--out", str(tmp_path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_field_shows_the_results_and_needs_no_users(
    small: eh.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest_compare, "DRAWS", 200)
    found = {one: entered(tmp_path, one) for one in ("popular", "als", "ease", "blend:parts=ease+als")}
    shutil.rmtree(tmp_path / ".work")
    field = contest_field.fields(tmp_path)["demo-random"]
    validation = {one: run.summary("validation ndcg@10")["mean"] for one, run in found.items()}
    assert list(field.runs) == sorted(found, key=lambda one: -validation[one])
    lines = contest_blocks._table(field).splitlines()[2:]
    assert [line.split("`")[1] for line in lines] == list(field.runs)
    ease = next(line for line in lines if line.startswith("| `ease`"))
    assert f"{found['ease'].summary('ndcg@5')['mean']:.4f}".removeprefix("0") in ease
    for key in ("ndcg@5", "ohr@10"):
        gap = field.gaps["als", "ease", key].difference
        means = [found[one].summary(key)["mean"] for one in ("als", "ease")]
        assert gap == pytest.approx(means[0] - means[1], abs=3e-6)
        assert field.gaps["ease", "als", key].difference == pytest.approx(-gap, abs=3e-6)
        own = field.own("als", key)
        assert own is not None
        assert own.difference == pytest.approx(means[0], abs=3e-6)
    assert field.gaps["popular", "ease", "ndcg@5"].side == -1


def gap_of(users: tuple[float, float], seeds: tuple[float, float] | None, p: float) -> contest_field.Gap:
    where = ("contest", "d", "s", None, "a", "b")
    tests = {"users": users} | ({} if seeds is None else {"seeds": seeds})
    lines = tuple(Comparison(*where, over, "ndcg", 5, sum(one) / 2, *one, p) for over, one in tests.items())
    return contest_field.Field("d-s", {}, lines, {}).gaps["a", "b", "ndcg@5"]


def test_a_gap_is_beyond_chance_if_both_tests_and_holm_say_so() -> None:
    assert gap_of((0.01, 0.02), (0.01, 0.03), 0.01).side == 1
    assert gap_of((-0.02, -0.01), None, 0.01).side == -1
    assert gap_of((0.01, 0.02), (-0.01, 0.03), 0.01).side == 0
    assert gap_of((0.01, 0.02), (-0.03, -0.01), 0.01).side == 0
    assert gap_of((0.01, 0.02), (0.01, 0.03), 0.06).side == 0


def test_p_values_of_the_contest_are_adjusted_over_the_methods() -> None:
    """.03 alone is beyond chance; beside another .03 Holm makes it .06."""
    where = ("contest", "d", "s", None)
    one = Comparison(*where, "a", "b", "users", "ndcg", 5, 0.2, 0.1, 0.3, 0.03)
    alone = contest_field.Field("d-s", {}, (one,), {})
    both = contest_field.Field("d-s", {}, (one, replace(one, method="c")), {})
    assert alone.gaps["a", "b", "ndcg@5"].side == 1
    assert both.gaps["a", "b", "ndcg@5"].holm_p == pytest.approx(0.06)
    assert both.gaps["a", "b", "ndcg@5"].side == 0


def test_costs_are_measured_once_and_only_of_what_the_search_found(small: eh.Split, tmp_path: Path) -> None:
    entered(tmp_path, "ease")
    entered(tmp_path, "mf/rns", "--epochs", "3", "--dim", "8", "--batch", "64")
    assert "seconds" not in contest_blocks._table(contest_field.fields(tmp_path)["demo-random"])
    asked = contest_cost.options().parse_args(["demo-random", "--results", str(tmp_path)])
    assert contest_cost.run(asked) == 0
    costs = contest_field.fields(tmp_path)["demo-random"].costs
    assert {name: run.measured["epoch"] for name, run in costs.items()} == {"ease": [0], "mf/rns": [3]}

    def changed(**columns: Any) -> None:
        Results(tmp_path).add(replace(costs["ease"], **columns))

    changed(seconds=1234.0)
    assert contest_cost.run(asked) == 0
    shown = contest_blocks._table(contest_field.fields(tmp_path)["demo-random"])
    assert "| seconds |" in shown
    assert "| 1,234 |" in shown

    changed(seconds=1234.0, details={"values": {"l2": costs["ease"].details["values"]["l2"] + 1}})
    assert set(contest_field.fields(tmp_path)["demo-random"].costs) == {"mf/rns"}
    assert contest_cost.run(asked) == 0
    again = contest_field.fields(tmp_path)["demo-random"].costs
    assert again["ease"].seconds < 1234
    assert again["mf/rns"].seconds == costs["mf/rns"].seconds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demos"], "unknown split 'demos'"),
        (["demo-random"], "no results"),
        (["ml-100k-paper", "--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_costs_of_nothing_are_refused_in_a_sentence(
    small: eh.Split, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contest_cost.main([*words, "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_a_method_that_is_done_again_is_compared_again(
    small: eh.Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest_compare, "DRAWS", 200)
    for one in ("popular", "als", "ease"):
        entered(tmp_path, one)
    shutil.rmtree(tmp_path / ".work")
    entered(tmp_path, "als", "--again")
    pairs = {pair[:2] for pair in contest_field.fields(tmp_path)["demo-random"].gaps}
    assert pairs == {("popular", "ease")}, "the users of the others are gone, so als is compared with nobody"


def test_seeds_are_paired_with_what_has_one_value() -> None:
    one, many, fewer = ["e"], [*"abcde"], [*"xyz"]
    assert contest_compare.paired(one, many) == (["e"] * 5, many)  # type: ignore[arg-type, comparison-overlap]
    assert contest_compare.paired(many, fewer) == ([*"abc"], fewer)  # type: ignore[arg-type, comparison-overlap]


def users_of(values: dict[int, float]) -> dict[int, list[UserMetrics]]:
    """One seed at k 5, with this precision of each user."""
    array = np.array(list(values.values()))
    return {5: [UserMetrics(5, np.array(list(values)), {"precision": array}, {})]}


def test_over_several_splits_a_user_counts_once_with_the_mean() -> None:
    """User 2 is missing on one split and left out; the others have the mean of all three."""
    splits = [users_of({1: 0.0, 2: 1.0, 3: 0.2}), users_of({1: 0.3, 3: 0.4}), users_of({1: 0.6, 2: 0.5, 3: 0.6})]
    assert contest_compare._over_splits(splits, "precision", 5) == pytest.approx([0.3, 0.4])
