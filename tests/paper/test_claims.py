"""What results say of the paper's claims, on results made up so that the answer is known; and the page."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.metrics.statistics import holm, paired_over_seeds, summarise
from evenhand.paper.claims import claims
from evenhand.paper.experiment import swept_values
from evenhand.paper.published import cell
from evenhand.paper.tables import Pair
from made_results import document, entry, interval, write_document
from run_cli import evenhand


def noisy(mean: float, by: float) -> Any:
    """Seeds that vary by more than the difference to others, in another order."""
    made = entry()
    made["metrics"]["precision@5"] = summarise(mean + np.array([by, -by, 2 * by, -2 * by])).to_json()
    return made


def test_better_needs_seeds_and_users() -> None:
    entries = {
        "auc-ns": entry(precision_at_5=0.43),
        "rns": entry(precision_at_5=0.37),
        "dns": noisy(0.425, 0.01),
        "pns": entry(precision_at_5=0.40),
        "ease": entry(precision_at_5=0.45),
    }
    users = [
        interval("rns", "precision", 0.05, 0.07),
        interval("dns", "precision", 0.001, 0.009),
        interval("pns", "precision", -0.01, 0.07),
        interval("ease", "precision", -0.03, -0.01),
    ]
    found = claims({"x": document("overall", entries, users)})
    mine = {claim.other: claim for claim in found if claim.metric == "precision@5"}
    assert [mine[name].holds for name in ("rns", "dns", "pns", "ease")] == [True, False, False, False]
    assert mine["rns"].text.endswith("higher beyond chance.")
    assert mine["dns"].text.endswith("within the uncertainty.")
    assert mine["pns"].text.endswith("within the uncertainty.")
    assert mine["ease"].text.endswith("lower beyond chance.")
    assert mine["rns"].gap == pytest.approx(0.06)
    assert mine[""].holds is False
    assert "1 of 3 of the paper's baselines (not dns, pns) and 0 of 1 of the other rows" in mine[""].text


def test_a_lower_ohr_is_what_is_claimed() -> None:
    entries = {"auc-ns": entry(ohr_at_5=0.57), "rns": entry(ohr_at_5=0.63)}
    found = claims({"x": document("overall", entries)})
    mine = {claim.other: claim for claim in found if claim.metric == "ohr@5"}
    assert mine["rns"].holds is True
    assert mine["rns"].text.startswith("ohr@5, auc-ns − rns: −0.0600 (over 4 seeds")
    assert mine[""].holds is True


def test_p_values_are_adjusted_over_all_rows_of_a_metric() -> None:
    """Alone, a row is beyond chance; beside nine others like it, it is not."""
    close = noisy(0.42, 0.003)
    values = (entry(precision_at_5=0.43)["metrics"], close["metrics"])
    raw = paired_over_seeds(*(np.array(side["precision@5"]["values"]) for side in values))
    assert raw is not None
    assert raw.p < 0.05 < holm([raw.p] * 9)[0], "the example is as the test says"

    def evaluated(rows: int) -> bool | None:
        names = [f"row{n}" for n in range(rows)]
        entries = {"auc-ns": entry(precision_at_5=0.43), **dict.fromkeys(names, close)}
        found = claims({"x": document("overall", entries)})
        return next(c.holds for c in found if (c.metric, c.other) == ("precision@5", "row0"))

    assert evaluated(1) is True
    assert evaluated(9) is False


def test_one_seed_cannot_tell() -> None:
    entries = {"auc-ns": entry(), "rns": entry()}
    for one in entries.values():
        one["metrics"] = {key: summarise([0.5]).to_json() for key in one["metrics"]}
    assert {claim.holds for claim in claims({"x": document("overall", entries)})} == {None}


def test_an_undefined_number_cannot_tell() -> None:
    pns = entry()
    pns["metrics"]["ohr@5"] = {"mean": None, "std": None, "values": [None] * 4}
    found = claims({"x": document("overall", {"auc-ns": entry(), "pns": pns})})
    (claim,) = [one for one in found if (one.metric, one.other) == ("ohr@5", "pns")]
    assert (claim.holds, claim.gap) == (None, None)
    assert "undefined" in claim.text


def test_what_has_one_value_stands_for_every_seed() -> None:
    ease = entry()
    ease["metrics"]["precision@5"] = summarise([0.30]).to_json()
    found = claims({"x": document("overall", {"auc-ns": entry(precision_at_5=0.43), "ease": ease})})
    assert next(c.holds for c in found if (c.metric, c.other) == ("precision@5", "ease")) is True


def test_without_auc_ns_there_is_nothing_to_say() -> None:
    assert claims({"x": document("overall", {"rns": entry(), "pns": entry()})}) == []


@pytest.mark.parametrize(
    ("heights", "holds"),
    [([0.40, 0.43, 0.39], True), ([0.40, 0.41, 0.43], False), ([0.4299, 0.43, 0.39], False)],
    ids=["inside", "at the end", "no better than the start"],
)
def test_an_inverted_u_has_its_top_inside(heights: list[float], holds: bool) -> None:
    """In the third, the seeds of the start and of the top go different ways, so that nothing is sure."""
    entries = {
        value: entry(precision_at_5=height, ohr_at_5=1 - height)
        for value, height in zip(("0.5", "0.75", "1"), heights, strict=True)
    }
    if heights[0] > 0.42:
        for key in ("precision@5", "ohr@5"):
            values = entries["0.5"]["metrics"][key]["values"]
            entries["0.5"]["metrics"][key]["values"] = [values[1], values[3], values[0], values[2]]
    found = claims({"x": document("beta", entries)})
    assert [claim.holds for claim in found] == [holds, holds]
    assert ("an inverted U" in found[0].text and "no inverted U" not in found[0].text) is holds


@pytest.mark.parametrize(
    ("rates", "holds"),
    [([0.57, 0.56, 0.61], True), ([0.61, 0.56, 0.60], False), ([0.60, 0.58, 0.57], False)],
    ids=["at the end", "at the start more", "falls"],
)
def test_ohr_over_alpha_rises_at_the_end(rates: list[float], holds: bool) -> None:
    entries = {value: entry(ohr_at_5=rate) for value, rate in zip(("0.5", "0.75", "1"), rates, strict=True)}
    claim = claims({"x": document("alpha", entries)})[-1]
    assert claim.holds is holds
    assert claim.text.startswith(f"ohr@5 over alpha: 0.5 {rates[0]:.4f}, ")
    assert (": a rise at the end (Holm p" in claim.text) is holds


def test_longer_lists_may_want_a_larger_gamma() -> None:
    entries = {
        "0.006": entry(precision_at_5=0.43, precision_at_10=0.35, precision_at_20=0.28),
        "0.1": entry(precision_at_5=0.42, precision_at_10=0.36, precision_at_20=0.27),
    }
    ten, twenty = claims({"x": document("gamma", entries)})
    assert (ten.holds, twenty.holds) == (True, False)
    assert "best gamma 0.1, that of top 5 is 0.006" in ten.text


@pytest.mark.parametrize(
    ("ours", "std", "verdict"),
    [
        (0.4320, 0.001, "as printed"),
        (0.4260, 0.001, "near"),
        (0.4200, 0.001, "lower"),
        (0.4500, 0.001, "higher"),
        (0.4320, 0.004, "as printed"),
        (0.4320, 0.005, "uncertain"),
        (0.4000, 0.030, "uncertain"),
        (0.3000, 0.030, "lower"),
        (None, 0.001, ""),
    ],
)
def test_a_printed_number_is_ours_if_one_more_seed_may_have_it(ours: float | None, std: float, verdict: str) -> None:
    """The 95 % interval of one more seed, ten seeds, reaches 2.37 standard deviations: .0095 of .004, .0119 of .005."""
    printed = cell("performance", "ml-100k", "mf", "auc-ns", 5, metric="precision")
    assert Pair(ours, std, printed, seeds=10).verdict == verdict


def test_the_command_reads_the_claims(tmp_path: Path) -> None:
    results = tmp_path / "results"
    rows = {"auc-ns": entry(precision_at_5=0.43), "rns": entry(precision_at_5=0.37)}
    write_document(results, document("overall", rows))
    gamma = {value: entry(precision_at_5=0.41) for value in swept_values("gamma")}
    write_document(results, document("gamma", gamma))
    ended = evenhand("reproduce", "claims", "--out", results)
    assert ended.code == 0
    assert "yes  precision@5, auc-ns − rns: +0.0600" in ended.out
    claims = evenhand("reproduce", "claims", "--out", results, "--json").document
    assert {claim["holds"] for claim in claims} == {True, False}
    nothing = evenhand("reproduce", "claims", "--out", tmp_path)
    assert nothing.code == 2
    assert nothing.err.count("\n") == 1
