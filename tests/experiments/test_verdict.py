"""Several kinds of test side by side: the method for each aim, and whether one serves all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_compare import fit_with

import evenhand as eh
from evenhand.experiments.verdict import AIMS, Answer, aims_named, aims_sentence, answer
from evenhand.metrics.statistics import Estimate
from evenhand.utils.errors import InputError
from run_cli import TINY, evenhand, one_thread, small_log, write_log

BASELINES = ("popular", "itemknn", "ease:l2=30")


def said(kind: str, best: str, *level: str) -> Answer:
    values = {name: {"ndcg": Estimate(0.25, 0.2, 0.3), "coverage": Estimate(0.4, 0.3, 0.5)} for name in ("a", "b", "c")}
    return Answer(AIMS[kind].title, AIMS[kind].aim, 10, values, best, level, "validation")


def test_the_sentence_names_the_method_for_each_aim_and_whether_one_serves_all() -> None:
    assert aims_sentence({"iid": said("iid", "a"), "shift": said("shift", "b", "c")}) == (
        "To predict the log: a (NDCG@10 0.2500; 40 % of the items reach somebody). To find each item its users: "
        "b (NDCG@10 0.2500; 40 % of the items reach somebody; level with c). No method serves both: choose by your aim."
    )
    three = {"iid": said("iid", "a"), "shift": said("shift", "a"), "time": said("time", "b", "a")}
    assert aims_sentence(three).endswith(" a serves all within the uncertainty.")
    assert aims_sentence({"iid": said("iid", "b"), "time": said("time", "b")}).endswith(" b is the choice for both.")


def test_the_choice_is_made_on_validation_and_who_is_clearly_worse_is_not_level() -> None:
    fits = {
        "chosen": fit_with([0.30, 0.30], [0.5, 0.5], [0.4, 0.4], spread=0.05),
        "near": fit_with([0.30, 0.299], [0.5, 0.5], [0.3, 0.3], spread=0.05),
        "better": fit_with([0.40, 0.40], [0.5, 0.5], [0.2, 0.2], spread=0.05),
        "worse": fit_with([0.10, 0.10], [0.5, 0.5], [0.1, 0.1], spread=0.05),
    }
    results = {label: fit.results for label, fit in fits.items()}
    found = answer("iid", results, {label: fit.validation for label, fit in fits.items()}, 10)
    assert found is not None
    assert (found.best, found.level, found.chosen_on) == ("chosen", ("near", "better"), "validation")
    # ± 0.05 around 0.3 over 40 users: the standard error is 0.05 / √40.
    value = found.values["chosen"]["ndcg"]
    assert value.value == pytest.approx(0.3)
    assert value.low is not None
    assert value.value - value.low == pytest.approx(2.02 * 0.05 / np.sqrt(40), rel=0.15)
    unvalidated = answer("uniform exposure", results, {}, 10)
    assert unvalidated is not None
    assert (unvalidated.best, unvalidated.chosen_on) == ("better", "test")
    assert answer("iid", {"a": {}}, {}, 10) is None


def test_every_method_is_fitted_to_the_split_of_each_test() -> None:
    log = small_log()
    with one_thread():
        found = eh.compare_tests(log, BASELINES, tests=("shift", "iid"), seeds=1, k=(5, 10), device="cpu")
        alone = eh.compare(log.split(how="popularity-shift"), BASELINES, seeds=1, k=(5, 10), device="cpu")
    assert list(found.answers) == list(found.by_test) == ["shift", "iid"]
    assert [row.to_json() for row in found.rows] == [row.to_json() for row in alone.rows]
    document = found.to_json()["tests"]
    assert document["iid"]["split"].startswith("random: ")
    assert document["shift"]["split"].startswith("popularity shift: ")
    assert "rows" not in document["shift"]
    by_hand = {row["name"]: row["metrics"]["ndcg"]["mean"] for row in document["iid"]["rows"] if row["k"] == 10}
    assert {name: one["ndcg"]["value"] for name, one in document["iid"]["methods"].items()} == pytest.approx(by_hand)
    assert found.sentence.startswith("To find each item its users: ")


def test_a_refit_is_fitted_to_train_and_validation_and_keeps_the_validation_values() -> None:
    split = small_log().split()
    with one_thread():
        plain = eh.compare(split, ["ease:l2=30", "als:factors=4", "rns"], seeds=2, k=5, device="cpu", settings=FEW)
        again = eh.compare(
            split, ["ease:l2=30", "als:factors=4", "rns"], seeds=2, k=5, device="cpu", settings=FEW, refit=True
        )
        alone = eh.EASE(l2=30).fit_pairs(split.consumed)
    for label, fit in again.fits.items():
        assert fit.validation == plain.fits[label].validation
        assert fit.epochs == plain.fits[label].epochs
        assert len(fit.results[5]) == (1 if label.startswith("ease") else 2)
        assert fit.results[5][0].metrics != plain.fits[label].results[5][0].metrics
    table = eh.evaluate(alone.having(known=split.consumed).recommend(k=5), split, k=(5,))
    assert again.row("ease:l2=30", 5)["ndcg"].mean == pytest.approx(table.rows[0].metrics["ndcg"].mean)
    seeds = again.fits["als:factors=4"].results[5]
    assert seeds[0].metrics["ndcg"] != seeds[1].metrics["ndcg"]
    assert again.to_json()["configuration"]["refit"] is True
    with pytest.raises(InputError, match="there is no validation part"):
        eh.compare(split, ["popular"], protocol="paper", refit=True)


FEW = eh.Settings(epochs=2)


def test_tests_are_named_once_and_known() -> None:
    assert aims_named(" iid,time") == ("iid", "time")
    for wrong, message in (("iid,iid", "each once"), ("", "each once"), ("shift,uniform", "unknown test 'uniform'")):
        with pytest.raises(InputError, match=message):
            aims_named(wrong)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tests", "iid,shift", "--split", "time"), "--tests makes its own splits; leave --split out."),
        (("--tests", "iid,time"), "a time split needs timestamps"),
        (("--tests", "iid", "--protocol", "paper"), "--tests makes its own splits; leave --protocol out."),
        (("--refit", "--protocol", "paper"), "--refit belongs to the honest protocol"),
    ],
)
def test_what_makes_no_sense_is_refused(more: tuple[str, ...], message: str, tmp_path: Path) -> None:
    log = small_log()
    pairs = "\n".join(f"{user},{item}" for user, item in zip(log.users, log.items, strict=True))
    (tmp_path / "log.csv").write_text(f"user,item\n{pairs}\n")  # without timestamps
    ended = evenhand("compare", tmp_path / "log.csv", "--methods", "popular", *more)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_the_command_shows_one_table_for_all_tests(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    asked = ("compare", log, "--methods", "popular,itemknn", "--tests", "iid,shift", "--refit", *TINY)
    ended = evenhand(*asked, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("what each test says, NDCG@10"))
    assert "predicts the log  finds each item its users" in " ".join(lines[start + 1].split("   "))
    assert [line.split()[0] for line in lines[start + 2 : start + 4]] == ["popular", "itemknn"]
    found = evenhand(*asked, "--json").document
    assert set(found["tests"]) == {"iid", "shift"}
    assert found["tests"]["shift"]["question"] == "finds each item its users"
    assert found["verdict"] in ended.out
    assert 'id="tests"' in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
