"""Gates as CI uses them: what they read, refuse and say; and changes since an earlier audit."""

import xml.etree.ElementTree as ET
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.audit.gates import Quantity, against, check_gates, evaluate_gates, github_lines, junit, parse_gate
from evenhand.audit.result import Audit, Finding, SystemRow
from evenhand.metrics.statistics import Estimate
from evenhand.utils.errors import InputError


def audit(**systems: dict[str, float | tuple[float, float, float]]) -> Audit:
    """The values of each system at k = 10; a triple is a value with its interval."""
    rows = tuple(
        SystemRow(name, 10, {m: Estimate(*v) if isinstance(v, tuple) else Estimate(v) for m, v in metrics.items()})
        for name, metrics in systems.items()
    )
    return Audit(
        systems=tuple(systems),
        ks=(10,),
        k=10,
        data={"hot_rule": "by hand", "test_interactions": 5},
        notes=(),
        findings=(Finding("50 % are\nwrong.", None),),
        rows=rows,
        contrasts=(),
        slices=(),
        demand={},
        exposure=(),
        confusion=(),
        examples=(),
    )


TWO = audit(mine={"ohr": 0.58, "ndcg": 0.41}, other={"ohr": 0.64, "ndcg": 0.38})


def failures(text: str, of: Audit = TWO) -> list[str]:
    return [one.sentence for one in evaluate_gates([parse_gate(text)], of) if one.failed]


def test_a_number_is_asked_of_every_system() -> None:
    assert failures("ohr@10>0.60") == ["ohr@10>0.60 holds: ohr@10 of other is 0.6400."]
    assert len(failures("ohr@10 > 0.5")) == 2
    assert failures("ohr@10>0.64") == []
    assert len(failures("ohr@10>=0.64")) == 1
    assert len(failures("0.6 <= ohr@10")) == 1


def test_systems_can_be_compared() -> None:
    assert failures("mine.ndcg@10<other.ndcg@10") == []
    assert failures("other.ndcg@10<mine.ndcg@10") == [
        "other.ndcg@10<mine.ndcg@10 holds: ndcg@10 of other is 0.3800, ndcg@10 of mine is 0.4100."
    ]
    # A side without a system means each of them in turn.
    assert len(failures("ndcg@10<mine.ndcg@10")) == 1
    assert failures("ndcg@10>ohr@10") == []


def test_a_side_may_be_a_multiple() -> None:
    assert failures("other.ndcg@10<0.9*mine.ndcg@10") == []
    assert failures("other.ndcg@10 < 0.95 * mine.ndcg@10") == [
        "other.ndcg@10 < 0.95 * mine.ndcg@10 holds: ndcg@10 of other is 0.3800, 0.95 times ndcg@10 of mine is 0.3895."
    ]
    assert len(failures("2*ndcg@10>0.8")) == 1
    with pytest.raises(InputError, match=r"'1\.\.2' is no number to multiply with"):
        parse_gate("1..2*ndcg@10<1")


def test_names_may_hold_dots_dashes_and_slashes() -> None:
    odd = audit(**{"v1.2/auc-ns": {"ndcg": 0.3}})
    assert parse_gate("v1.2/auc-ns.ndcg@10<0.4").left == Quantity(None, "ndcg", 10, "v1.2/auc-ns")
    assert len(failures("v1.2/auc-ns.ndcg@10<0.4", odd)) == 1


@pytest.mark.parametrize(
    ("text", "column", "why"),
    [
        ("ohr@10", 7, "a comparison"),
        ("ohr@10>>0.6", 8, "second comparison"),
        ("ohr@10=0.6", 11, "a comparison"),
        (">0.6", 1, "is missing"),
        ("ohr@10 >", 9, "is missing"),
        ("ohr@10 > a lot", 10, "'a lot'"),
        ("ohr>0.6", 1, "'ohr'"),
        ("ohr@ten>0.6", 1, "'ohr@ten'"),
        ("0.5>0.4", 1, "two numbers"),
        ("", 1, "a comparison"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_place(text: str, column: int, why: str) -> None:
    with pytest.raises(InputError) as printed:
        parse_gate(text)
    assert f"at column {column}:" in str(printed.value)
    assert why in str(printed.value)


@given(st.text(max_size=30))
def test_any_text_is_a_gate_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        assert parse_gate(text).text == text.strip()


def test_unknown_names_are_reported_by_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'ndcg'"):
        parse_gate("ngcd@10<1")
    with pytest.raises(InputError, match="unknown system 'mien'; did you mean 'mine'"):
        failures("mien.ndcg@10<1")


def test_what_could_not_be_evaluated_is_refused_before_the_work() -> None:
    with pytest.raises(InputError, match="k = 7; the audit has 5, 10"):
        check_gates([parse_gate("ohr@7>0.5")], (5, 10), has_test=True)
    with pytest.raises(InputError, match="give a test file"):
        check_gates([parse_gate("ohr@5>0.5")], (5, 10), has_test=False)
    check_gates([parse_gate("gini@5>0.5")], (5, 10), has_test=False)


def test_an_undefined_number_fails() -> None:
    nothing = audit(mine={"ocr_defined": float("nan")})
    assert failures("ocr_defined@10>0.5", nothing) == [
        "ocr_defined@10>0.5 cannot be evaluated: ocr_defined@10 of mine is undefined, 0.5."
    ]


def test_junit_has_a_case_for_each_gate_and_system() -> None:
    evaluated = evaluate_gates([parse_gate("ohr@10>0.6"), parse_gate("mine.ndcg@10<other.ndcg@10")], TWO)
    suite = ET.fromstring(junit(evaluated).encode()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert list(cases) == ["ohr@10>0.6 (mine)", "ohr@10>0.6 (other)", "mine.ndcg@10<other.ndcg@10"]
    failed = cases["ohr@10>0.6 (other)"].find("failure")
    assert failed is not None
    assert "0.6400" in (failed.get("message") or "")
    assert cases["ohr@10>0.6 (mine)"].find("failure") is None


def test_github_lines_are_escaped() -> None:
    lines = github_lines(TWO, evaluate_gates([parse_gate("ohr@10>0.6")], TWO))
    assert lines == [
        "::error title=evenhand audit::ohr@10>0.6 holds: ohr@10 of other is 0.6400.",
        "::notice title=evenhand audit::50 %25 are%0Awrong.",
    ]


def test_changes_beyond_both_intervals_are_flagged() -> None:
    before = audit(mine={"ndcg": (0.40, 0.37, 0.43), "ohr": (0.60, 0.57, 0.63), "arp": (90, 80, 100)})
    after = audit(mine={"ndcg": (0.36, 0.33, 0.39), "ohr": (0.55, 0.52, 0.58), "arp": (150, 140, 160)})
    changes = {change.metric: change for change in against(after, before).changes}
    # Half widths of .03 each allow .0424 together.
    assert (changes["ndcg"].beyond_uncertainty, changes["ndcg"].worse) == (False, True)
    assert (changes["ohr"].beyond_uncertainty, changes["ohr"].worse) == (True, False)
    assert (changes["arp"].beyond_uncertainty, changes["arp"].worse) == (True, None)
    worse = against(before, after)
    assert any(line.startswith("::warning") and "ohr@10 of mine" in line for line in github_lines(worse, []))
    assert worse.notes[-1] == "2 of 3 metrics differ from the baseline beyond the uncertainty."


def test_a_baseline_of_other_things_says_so() -> None:
    earlier = replace(audit(mine={"ndcg": 0.4}, gone={"ndcg": 0.3}), ks=(5, 10))
    notes = against(TWO, earlier).notes
    assert "The baseline has other systems (mine, gone); mine can be compared." in notes
    assert "The baseline has other list lengths (5, 10); 10 can be compared." in notes
    apart = against(TWO, audit(else_={"ndcg": 0.4}))
    assert "The baseline has other systems (else_); nothing can be compared." in apart.notes
    assert apart.changes == ()


def test_what_a_re_ranking_was_asked_for_is_not_held_against_it() -> None:
    """More of the long tail: more lists hold a cold item, so that the paper's OCR rises; exposure leaves the hits."""
    near = 0.001
    before = audit(
        mine={
            m: (v, v - near, v + near)
            for m, v in {
                "aplt": 0.02,
                "ocr": 0.06,
                "ocr_pooled": 0.6,
                "exposure_gap": 0.4,
                "ndcg": 0.4,
                "gini": 0.9,
            }.items()
        }
    )
    asked = {"aplt": 0.2, "ocr": 0.5, "ocr_pooled": 0.55, "exposure_gap": 0.45, "ndcg": 0.39, "gini": 0.95}
    after = audit(mine={m: (v, v - near, v + near) for m, v in asked.items()})
    worse = {change.metric: change.worse for change in against(after, before).changes}
    assert worse == {"aplt": False, "ocr": None, "ocr_pooled": False, "exposure_gap": None, "ndcg": True, "gini": True}
    # The other way about, towards hits, the same changes are for the worse.
    back = {change.metric: change.worse for change in against(before, replace(after)).changes}
    assert back["aplt"] is True
    towards_hits = audit(
        mine={"aplt": (0.01, 0.009, 0.011), "exposure_gap": (0.5, 0.49, 0.51), "ocr": (0.09, 0.08, 0.1)}
    )
    worse = {change.metric: change.worse for change in against(towards_hits, before).changes}
    assert worse == {"aplt": True, "exposure_gap": True, "ocr": True}
