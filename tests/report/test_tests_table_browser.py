"""The table of several tests in a real browser, on a phone and on a desk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenhand.experiments.verdict import AIMS, Answer
from evenhand.metrics.statistics import Estimate
from evenhand.report.audit_page import audit_page
from in_browser import HOSTILE, opening
from sample_audit import SYSTEMS, sample_audit, sample_story


def answers() -> dict[str, Answer]:
    made = {}
    for place, (name, aim) in enumerate(AIMS.items()):
        values = {
            label: {"ndcg": Estimate(0.1 * n + 0.2, 0.1 * n + 0.15, 0.1 * n + 0.25)} for n, label in enumerate(SYSTEMS)
        }
        made[name] = Answer(aim.title, aim.aim, 10, values, SYSTEMS[place % len(SYSTEMS)], (HOSTILE,), "validation")
    return made


@pytest.fixture(scope="module")
def page_of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(audit_page(sample_audit(), sample_story(), answers=answers()), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [390, 1280])
def test_three_questions_side_by_side(browser: Any, page_of_three: Path, width: int) -> None:
    with opening(browser, {"page": page_of_three}) as open_one:
        page = open_one("page", width=width)
        table = page.locator("#tests table")
        heads = [text.split("\u200a")[0].strip() for text in table.locator("thead th").all_inner_texts()]
        assert heads == ["System", *(aim.title for aim in AIMS.values())]
        assert table.locator("tbody th").all_inner_texts() == list(SYSTEMS)
        # One choice for each question, and an interval in each cell.
        assert table.locator("tbody .star").count() == 3
        assert table.locator("tbody small").count() == 3 * len(SYSTEMS)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # What is wider than the page scrolls in a box of its own, which the last column can be reached in.
        box = page.locator("#tests .scroll")
        box.evaluate("one => one.scrollLeft = one.scrollWidth")
        last = table.locator("thead th").last.bounding_box()
        assert last["x"] + last["width"] <= width
        table.locator("thead button").nth(1).click()
        firsts = table.locator("tbody th").first.inner_text()
        table.locator("thead button").nth(1).click()
        assert table.locator("tbody th").first.inner_text() != firsts


def test_without_several_tests_there_is_no_such_table() -> None:
    one = dict(list(answers().items())[:1])
    assert 'id="tests"' not in audit_page(sample_audit(), sample_story(), answers=one)
