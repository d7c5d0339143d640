"""benchmarks/contest.py: what one finished contender leaves behind, and that it is not done twice."""

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
from evenhand.encoders import ENCODERS
from evenhand.methods import METHODS
from evenhand.metrics.users import METRICS
from evenhand.paper.reproduce.people import recall

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import beyond_page
import contest
import contest_cost
import contest_results
import contest_splits
import contest_tables


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> eh.Split:
    """A world of a few hundred users in the place of `demo`."""
    split = eh.simulate(200, 150, 4000, seed=3).split
    monkeypatch.setitem(contest_splits.SPLITS, "demo", lambda data_dir: split)  # type: ignore[arg-type]
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


def entered(out: Path, contender: str, *more: str) -> dict[str, Any]:
    words = ["demo", contender, "--out", str(out), "--trials", "3", "--seeds", "2", *more]
    assert contest.main(words) == 0
    path = out / "demo" / f"{contest.safe_name(contender)}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_every_name_is_a_file_name_of_its_own() -> None:
    contenders = ["mf/auc-ns", "lightgcn/auc-ns", "blend", "blend:parts=ease+als", "mf/dns:candidates=2"]
    names = [contest.safe_name(one) for one in contenders]
    assert len(set(names)) == len(names)
    assert not set("".join(names)) & set("/:=+ ")
    assert contest.safe_name("blend:parts=ease+als") == "blend_parts_ease_als"


def test_a_baseline_is_tuned_on_validation_and_judged_as_evaluate_would(small: eh.Split, tmp_path: Path) -> None:
    found = entered(tmp_path, "ease")
    tried = found["search"]["tried"]
    assert len(tried) == found["search"]["trials"] == 3
    assert found["search"]["best_value"] == max(one["value"] for one in tried)
    assert found["search"]["default_value"] == tried[0]["value"]
    assert found["validation"]["mean"] == pytest.approx(found["search"]["best_value"], abs=1e-6)

    l2 = found["search"]["best"]["l2"]
    lists = eh.EASE(l2=l2).fit(small.train).recommend(k=20, exclude=small.consumed)
    judged = eh.evaluate(lists, small)
    for k in (5, 10, 20):
        for name in METRICS:
            mean = found["metrics"][f"{name}@{k}"]["mean"]
            if mean is not None:
                assert mean == pytest.approx(judged.at(k).metrics[name].mean, abs=2e-6)
        with_test = np.isin(lists["user"].to_numpy(), np.unique(small.test.users))
        shown = lists["item"].to_numpy()[with_test & (lists["rank"].to_numpy() <= k)]
        assert found["metrics"][f"coverage@{k}"]["values"] == [round(len(set(shown)) / small.n_items, 6)]
    assert found["seeds"] == 1


def test_a_trained_method_has_all_seeds_and_holds_what_it_is_told(small: eh.Split, tmp_path: Path) -> None:
    found = entered(tmp_path, "lightgcn/rns", "--epochs", "2", "--layers", "1", "--dim", "8", "--batch", "64")
    assert found["held"] == {"batch": 64, "epochs": 2, "layers": 1, "dim": 8}
    assert set(found["search"]["space"]) == {"lr", "l2"}
    assert len(found["metrics"]["ndcg@5"]["values"]) == len(found["chosen_epochs"]) == found["seeds"] == 2
    assert set(found["data"]) == {"train", "validation", "test"}
    assert "--layers 1" in found["command"]
    assert str(tmp_path) not in json.dumps(found)

    people = recall(tmp_path / ".work" / "demo", "lightgcn/rns")
    assert people is not None
    for seed, users in enumerate(people[10]):
        assert users.mean("ohr") == pytest.approx(found["metrics"]["ohr@10"]["values"][seed], abs=1e-6)
    assert (tmp_path / ".work" / ".gitignore").read_text(encoding="utf-8").strip() == "*"


def test_who_has_nothing_to_search_says_so(small: eh.Split, tmp_path: Path) -> None:
    assert entered(tmp_path, "popular")["search"]["trials"] == 0
    blend = entered(tmp_path, "blend:parts=ease+als")
    assert blend["search"]["trials"] == 0
    assert "settles its numbers itself" in blend["search"]["why"]


def test_a_finished_contender_is_left_alone(
    small: eh.Split, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entered(tmp_path, "popular")
    path = tmp_path / "demo" / "popular.json"
    before = path.stat().st_mtime_ns
    assert contest.main(["demo", "popular", "--out", str(tmp_path), "--seeds", "9"]) == 0
    assert "already" in capsys.readouterr().out
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("contender", ["mf/ease", "rns", "gru/rns", "ease:l2=-1"])
def test_who_cannot_take_part_leaves_nothing(
    contender: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contest.main(["demo", contender, "--out", str(tmp_path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.json"))


PAGE = """before
<!-- contest:blend -->
what was there
<!-- /contest:blend -->
<!-- contest:tables -->
<!-- /contest:tables -->
after
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(contest_results, "DRAWS", 200)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "beyond.md").write_text(PAGE, encoding="utf-8")
    return docs / "beyond.md"


def test_the_page_shows_the_files_and_can_be_made_again_without_users(
    small: eh.Split, tmp_path: Path, page: Path
) -> None:
    results = tmp_path / "results"
    found = {one: entered(results, one) for one in ("popular", "als", "ease", "blend:parts=ease+als")}
    beyond_page.main(str(results), str(page.parent))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "what was there" not in text

    lines = [line for line in text.splitlines() if line.startswith("| `")]
    shown = [line.split("`")[1] for line in lines[: len(found)]]
    assert shown == sorted(found, key=lambda one: -found[one]["validation"]["mean"])
    ease = next(line for line in lines if line.startswith("| `ease`"))
    assert f"{found['ease']['metrics']['ndcg@5']['mean']:.4f}".removeprefix("0") in ease

    (field,) = contest_results.fields(results)
    for key in ("ndcg@5", "ohr@10"):
        gap = field.gaps["als", "ease", key].difference
        means = [found[one]["metrics"][key]["mean"] for one in ("als", "ease")]
        assert gap == pytest.approx(means[0] - means[1], abs=3e-6)
        assert field.gaps["ease", "als", key].difference == pytest.approx(-gap, abs=3e-6)
    assert field.gaps["popular", "ease", "ndcg@5"].side == -1

    shutil.rmtree(results / ".work")
    page.write_text(PAGE, encoding="utf-8")
    beyond_page.main(str(results), str(page.parent))
    assert page.read_text(encoding="utf-8") == text


def test_a_published_split_says_whom_it_lacks(small: eh.Split, tmp_path: Path) -> None:
    entered(tmp_path, "popular")
    (field,) = contest_results.fields(tmp_path)
    assert "Not measured" not in contest_tables.table(field)
    published = replace(field, name="ml-1m-paper")
    assert contest_tables.table(published).endswith("`lightgcn/auc-ns`.")
    there = {f"{encoder}/{method}": field.documents["popular"] for encoder in ENCODERS for method in METHODS}
    assert "Not measured" not in contest_tables.table(replace(published, documents=there))
    del there["mf/dns"]
    assert contest_tables.table(replace(published, documents=there)).endswith("\n\nNot measured yet: `mf/dns`.")


def test_costs_are_measured_once_and_only_of_what_the_search_found(small: eh.Split, tmp_path: Path) -> None:
    entered(tmp_path, "ease")
    entered(tmp_path, "mf/rns", "--epochs", "3", "--dim", "8", "--batch", "64")
    contest_results.fields(tmp_path, update=True)
    assert "seconds a seed" in contest_tables.table(contest_results.fields(tmp_path)[0])
    asked = contest_cost.options().parse_args(["demo", "--results", str(tmp_path)])
    assert contest_cost.run(asked) == 0
    path = tmp_path / "demo" / "cost.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert {name: one["epochs"] for name, one in found["contenders"].items()} == {"ease": 0, "mf/rns": 3}

    found["contenders"]["ease"]["seconds"] = 1234
    path.write_text(json.dumps(found), encoding="utf-8")
    assert contest_cost.run(asked) == 0
    (field,) = contest_results.fields(tmp_path)
    shown = contest_tables.table(field)
    assert "| seconds |" in shown
    assert "| 1,234 |" in shown

    found["contenders"]["ease"]["values"]["l2"] += 1
    path.write_text(json.dumps(found), encoding="utf-8")
    assert set(contest_results.fields(tmp_path)[0].costs) == {"mf/rns"}
    assert contest_cost.run(asked) == 0
    again = json.loads(path.read_text(encoding="utf-8"))["contenders"]
    assert again["ease"]["seconds"] < 1234
    assert again["mf/rns"] == found["contenders"]["mf/rns"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demos"], "unknown split 'demos'"),
        (["demo"], "no results"),
        (["ml-100k-paper", "--data-dir", "nowhere"], "nowhere"),
    ],
)
def test_costs_of_nothing_are_refused_in_a_sentence(
    small: eh.Split, words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert contest_cost.main([*words, "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_comparisons_of_other_numbers_are_not_kept(small: eh.Split, tmp_path: Path, page: Path) -> None:
    for one in ("popular", "als", "ease"):
        entered(tmp_path, one)
    contest_results.fields(tmp_path, update=True)
    shutil.rmtree(tmp_path / ".work")
    path = tmp_path / "demo" / "als.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["metrics"]["ndcg@5"]["mean"] += 0.1
    path.write_text(json.dumps(document), encoding="utf-8")
    (field,) = contest_results.fields(tmp_path, update=True)
    assert {pair[:2] for pair in field.gaps} == {("popular", "ease")}


def test_seeds_are_paired_with_what_has_one_value() -> None:
    one, many, fewer = ["e"], [*"abcde"], [*"xyz"]
    assert contest_results._paired(one, many) == (["e"] * 5, many)  # type: ignore[arg-type, comparison-overlap]
    assert contest_results._paired(many, fewer) == ([*"abc"], fewer)  # type: ignore[arg-type, comparison-overlap]


def test_the_paper_page_says_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "contest").mkdir()
    told = contest_tables.honest_tables(tmp_path)
    assert told.count("not measured yet") == 2
